"""Mooncake's traces: milliseconds, two lengths and the hash ids of the prompt's blocks, a JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from workloads.core.blocks import Blocks, misfit
from workloads.core.errors import WorkloadError
from workloads.core.options import suggest
from workloads.core.reading import brief, open_regular, shown
from workloads.core.trace import Trace
from workloads.traces.assemble import assemble

KEYS = ("timestamp", "input_length", "output_length")
BLOCK_TOKENS = 512
_MOST_TOKENS = 10**9
_LARGEST_MS = 9e12


@dataclass(slots=True)
class _Rows:
    """The columns of the rows read so far; `ids` are empty where the file has none (`shared` is then False)."""

    stamps: list[float] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    ids: list[tuple[int, ...]] = field(default_factory=list)
    shared: bool | None = None

    def add(self, where: str, row: Any) -> None:
        """A row's JSON value; WorkloadError where it is none, or has hash_ids other than the rows before it."""
        stamp, prompt, output, ids = _checked(where, row)
        if self.shared not in (None, ids is not None):
            has = "lacks" if self.shared else "has"
            raise WorkloadError(f"{where}: {has} hash_ids, other than the rows before: all have them or none")
        self.shared = ids is not None
        self.stamps.append(stamp)
        self.prompts.append(prompt)
        self.outputs.append(output)
        self.ids.append(ids or ())


def _read(path: Path) -> _Rows:
    rows = _Rows()
    with open_regular(path) as file:
        for number, raw in enumerate(file, 1):
            line = raw.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else raw.strip()
            if not line:
                continue
            where = f"{shown(path)}, row {number}"
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                cut = "" if raw.endswith(b"\n") else ": is the file cut off? fetch it again"
                raise WorkloadError(f"{where}: not JSON ({error}){cut}") from None
            rows.add(where, row)
    if not rows.prompts:
        raise WorkloadError(f"{shown(path)} is empty: nothing to replay")
    return rows


def load(path: Path) -> Trace:
    """The trace of a Mooncake file; equal hash ids are equal blocks of 512 tokens, so prompts share prefixes.

    Raises WorkloadError naming file and row.
    """
    rows = _read(path)
    source: dict[str, Any] = {
        "format": "mooncake",
        "data_set": "Mooncake trace",
        "licence": "Apache-2.0 as published (kvcache-ai/Mooncake)",
    }
    return assemble(
        path,
        source,
        prompt_tokens=np.array(rows.prompts, np.int64),
        output_tokens=np.array(rows.outputs, np.int64),
        stamps=np.array(rows.stamps, np.float64),
        per_second=1e3,
        blocks=Blocks(tuple(rows.ids), BLOCK_TOKENS) if rows.shared else None,
    )


def _checked(where: str, row: Any) -> tuple[float, int, int, tuple[int, ...] | None]:
    """Milliseconds, input and output length and hash ids of a row; None where it has no hash ids."""
    if not isinstance(row, dict):
        raise WorkloadError(f"{where}: not a JSON object")
    for key in KEYS:
        if row.get(key) is None:
            near = suggest(key, set(map(str, row)) - set(KEYS))
            raise WorkloadError(
                f"{where}: no {key}{near}: found {shown(', '.join(map(str, row)), 120)}; "
                f"format mooncake needs {', '.join(KEYS)}"
            )
    stamp = row["timestamp"]
    if type(stamp) not in (int, float) or not abs(stamp) <= _LARGEST_MS:
        raise WorkloadError(f"{where}: timestamp is {brief(stamp)}, not a number of milliseconds")
    for key in ("input_length", "output_length"):
        value = row[key]
        if type(value) is not int or not 0 <= value <= _MOST_TOKENS:
            raise WorkloadError(f"{where}: {key} is {brief(value)}, not a whole number of 0 to {_MOST_TOKENS}")
    ids = row.get("hash_ids")
    if ids is not None:
        if not isinstance(ids, list) or any(type(block) is not int for block in ids):
            raise WorkloadError(f"{where}: hash_ids is {brief(ids)}, not a list of whole numbers")
        why = misfit(ids, row["input_length"], BLOCK_TOKENS)
        if why:
            raise WorkloadError(f"{where}: {why}")
    return float(stamp), row["input_length"], row["output_length"], None if ids is None else tuple(ids)
