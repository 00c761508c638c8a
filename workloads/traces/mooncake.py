"""Mooncake's traces: milliseconds, two lengths and the hash ids of the prompt's blocks, a JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from workloads.core.errors import WorkloadError
from workloads.core.options import suggest
from workloads.core.reading import open_regular, shown, spelled
from workloads.core.trace import Trace
from workloads.traces.assemble import assemble
from workloads.traces.block_size import blocks_of
from workloads.traces.file_options import NOTHING, FileOptions
from workloads.traces.units import LARGEST_S, UNITS, unit_of

KEYS = ("timestamp", "input_length", "output_length")
_MOST_TOKENS = 10**9


@dataclass(slots=True)
class _Rows:
    """The columns of the rows read so far, with their numbers in the file and times of `unit`.

    `ids` are empty where the file has none (`shared` is then False).
    """

    unit: str
    numbers: list[int] = field(default_factory=list)
    stamps: list[float] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    ids: list[tuple[int, ...]] = field(default_factory=list)
    shared: bool | None = None

    def add(self, where: str, number: int, row: Any) -> None:
        """A row's JSON value; WorkloadError where it is none, or has hash_ids other than the rows before it."""
        stamp, prompt, output, ids = _checked(where, row, self.unit)
        if self.shared not in (None, ids is not None):
            has = "lacks" if self.shared else "has"
            raise WorkloadError(f"{where}: {has} hash_ids, other than the rows before: all have them or none")
        self.shared = ids is not None
        self.numbers.append(number)
        self.stamps.append(stamp)
        self.prompts.append(prompt)
        self.outputs.append(output)
        self.ids.append(ids or ())


def _read(path: Path, unit: str) -> _Rows:
    rows = _Rows(unit)
    with open_regular(path) as file:
        for number, raw in enumerate(file, 1):
            line = raw.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else raw.strip()
            if not line:
                continue
            where = f"{spelled(path)}, row {number}"
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                cut = "" if raw.endswith(b"\n") else ": is the file cut off? fetch it again"
                raise WorkloadError(f"{where}: not JSON ({error}){cut}") from None
            rows.add(where, number, row)
    if not rows.prompts:
        raise WorkloadError(f"{spelled(path)} is empty: nothing to replay")
    return rows


def load(path: Path, given: FileOptions = NOTHING) -> Trace:
    """The trace of a Mooncake file; equal hash ids are equal blocks of tokens, so prompts share prefixes.

    Times are milliseconds and blocks have 512 tokens unless another is `given`, or the rows speak against it.
    Raises WorkloadError naming file and row.
    """
    rows = _read(path, given.unit or "ms")
    given.refuse(path, no_blocks="" if rows.shared else "its rows have no hash_ids")
    prompt_tokens = np.array(rows.prompts, np.int64)
    source: dict[str, Any] = {
        "format": "mooncake",
        "data_set": "Mooncake trace",
        "licence": "Apache-2.0 as published (kvcache-ai/Mooncake)",
    }
    blocks = None
    if rows.shared:
        blocks = blocks_of(path, list(zip(rows.numbers, rows.ids, strict=True)), prompt_tokens, given, source)
    return assemble(
        path,
        source,
        prompt_tokens=prompt_tokens,
        output_tokens=np.array(rows.outputs, np.int64),
        stamps=np.array(rows.stamps, np.float64),
        unit=lambda file, kept: unit_of(file, kept, "ms", given.unit),
        blocks=blocks,
    )


def _checked(where: str, row: Any, unit: str) -> tuple[float, int, int, tuple[int, ...] | None]:
    """Time, input and output length and hash ids of a row; None where it has no hash ids."""
    if not isinstance(row, dict):
        raise WorkloadError(f"{where}: not a JSON object")
    for key in KEYS:
        if row.get(key) is None:
            near = suggest(key, set(map(str, row)) - set(KEYS))
            raise WorkloadError(
                f"{where}: no {key}{near}: found {spelled(', '.join(map(str, row)), 120)}; "
                f"format mooncake needs {', '.join(KEYS)}"
            )
    stamp = row["timestamp"]
    if type(stamp) not in (int, float) or not abs(stamp) <= LARGEST_S * UNITS[unit]:
        raise WorkloadError(f"{where}: timestamp is {shown(stamp)}, not a number of {unit}")
    for key in ("input_length", "output_length"):
        value = row[key]
        if type(value) is not int or not 0 <= value <= _MOST_TOKENS:
            raise WorkloadError(f"{where}: {key} is {shown(value)}, not a whole number of 0 to {_MOST_TOKENS}")
    ids = row.get("hash_ids")
    if ids is not None and (not isinstance(ids, list) or any(type(block) is not int for block in ids)):
        raise WorkloadError(f"{where}: hash_ids is {shown(ids)}, not a list of whole numbers")
    return float(stamp), row["input_length"], row["output_length"], None if ids is None else tuple(ids)
