"""What another tool's result file says of one run: counts and figures, each with the field that it was read from."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.core.apart import reading
from harness.core.errors import UserError
from harness.core.text import one_line

NOT_TOLD = "not told"
# Larger files are no summary of a run, and would not fit into memory as JSON.
MOST_BYTES = 2**30
LONGEST_TEXT = 200
PERCENTILES = ("p50", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Figure:
    """A value in our unit (seconds, 1/s), and the dotted field of the file that it was read from."""

    value: float
    field: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """One run of another tool. `figures` go by `metric` or `metric.key` as in summary.json; `definitions` by metric.

    `counts` has requests, completed, failed and, where they are told, prompt_tokens and output_tokens. `part` tells
    apart several runs of one file. `started` is in UTC, None where the file tells no time of a known zone.
    """

    tool: str
    version: str
    counts: dict[str, int]
    figures: dict[str, Figure]
    definitions: dict[str, str]
    model: str = ""
    arrival: str = NOT_TOLD
    notes: tuple[str, ...] = ()
    part: str = ""
    started: datetime | None = None


@dataclass(slots=True)
class Fields:
    """A document that nobody checked: values by dotted fields, UserError in a line for what they may not be."""

    path: Path
    document: Any
    figures: dict[str, Figure] = field(default_factory=dict)

    def at(self, dotted: str) -> Any:
        """The value there; None where there is none."""
        value = self.document
        for part in dotted.split(".") if dotted else ():
            if isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            elif isinstance(value, Mapping) and part in value:
                value = value[part]
            else:
                return None
        return value

    def number(self, dotted: str) -> float | None:
        """A finite number of at least 0; None where there is none, or the tool had none to tell."""
        value = self.at(dotted)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e15:
            raise self.wrong(dotted, value, "it must be a number of 0 or more")
        return float(value)

    def count(self, dotted: str, needed: bool = False) -> int | None:
        """A whole number; UserError where one is `needed` and there is none."""
        value = self.number(dotted)
        if value is None:
            if needed:
                raise UserError(f"{self.path}: {dotted} is missing: the file was cut short, or another tool wrote it")
            return None
        # Sums of floats in a tool's own file may miss a whole number in the last digit.
        if abs(value - round(value)) > 1e-6:
            raise self.wrong(dotted, value, "it must be a whole number")
        return round(value)

    def time(self, dotted: str) -> datetime | None:
        """A time in UTC, of seconds since 1970 or of a text with its zone; None where neither stands there."""
        value = self.at(dotted)
        try:
            if isinstance(value, str):
                value = datetime.fromisoformat(value)
            if isinstance(value, int | float) and not isinstance(value, bool):
                value = datetime.fromtimestamp(value, UTC)
            return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else None
        except (ValueError, OverflowError, OSError):
            return None

    def text(self, dotted: str) -> str:
        """One printable line of at most 200 letters; empty where there is no text."""
        value = self.at(dotted)
        if not isinstance(value, str):
            return ""
        line = one_line(value.strip())
        return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"

    def take(self, name: str, dotted: str, scale: float = 1.0) -> None:
        """Keeps a figure by its name, where the document has it; `scale` turns it into our unit."""
        value = self.number(dotted)
        if value is not None:
            self.figures[name] = Figure(value * scale, dotted)

    def defined(self, definitions: Mapping[str, str]) -> dict[str, str]:
        """Of the definitions by metric those of the figures that were kept."""
        known = {name.partition(".")[0] for name in self.figures}
        return {name: meaning for name, meaning in definitions.items() if name in known}

    def wrong(self, dotted: str, value: Any, why: str) -> UserError:
        """The error for a value that cannot be."""
        shown = one_line(str(value))
        return UserError(f"{self.path}: {dotted} is {shown[:60]}: {why}: take the file from a copy")

    def part(self, dotted: str) -> Fields:
        """The document below a field, with figures of its own."""
        return Fields(self.path, self.at(dotted))


def read_document(path: Path) -> Any:
    """The JSON or YAML in a file; UserError where it cannot be read, is too large, or was cut short."""
    reading(path)
    try:
        # A pipe would be waited for.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UserError(f"{path}: cannot be read (no regular file): name a result file")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read ({why}): name a result file") from None
    if len(data) > MOST_BYTES:
        raise UserError(f"{path}: more than 1 GiB: save the result without the text of its requests")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8, so no result file of a benchmark: name its JSON or YAML") from None
    if path.suffix.lower() in (".yaml", ".yml"):
        return _yaml(path, text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        place = f" in line {line}" if line else ""
        raise UserError(f"{path}: no whole JSON{place}: it was cut short, or is no result file") from None


def _yaml(path: Path, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark is not None else ""
        raise UserError(f"{path}: no whole YAML{place}: it was cut short, or is no result file") from None
