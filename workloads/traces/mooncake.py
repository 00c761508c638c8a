"""Mooncake's traces: milliseconds, two lengths and the hash ids of the prompt's blocks, a JSON object a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from workloads.core.blocks import Blocks, misfit
from workloads.core.errors import WorkloadError
from workloads.core.options import suggest
from workloads.core.reading import brief, open_regular, shown
from workloads.core.trace import Ints, Trace
from workloads.traces.assemble import assemble
from workloads.traces.block_size import block_size
from workloads.traces.table import LARGEST_S
from workloads.traces.told import NOTHING, Told
from workloads.traces.units import UNITS, unit_of

KEYS = ("timestamp", "input_length", "output_length")
_MOST_TOKENS = 10**9


def load(path: Path, told: Told = NOTHING) -> Trace:
    """The trace of a Mooncake file; equal hash ids are equal blocks of tokens, so prompts share prefixes.

    Times are milliseconds and blocks have 512 tokens unless the user has `told` otherwise or the rows speak against it.
    Raises WorkloadError naming file and row.
    """
    largest = LARGEST_S * UNITS[told.unit or "ms"]
    numbers: list[int] = []
    stamps: list[float] = []
    prompts: list[int] = []
    outputs: list[int] = []
    ids: list[tuple[int, ...]] = []
    shared: bool | None = None
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
            stamp, prompt, output, blocks = _checked(where, row, largest)
            if shared not in (None, blocks is not None):
                has = "lacks" if shared else "has"
                raise WorkloadError(f"{where}: {has} hash_ids, other than the rows before: all have them or none")
            shared = blocks is not None
            numbers.append(number)
            stamps.append(stamp)
            prompts.append(prompt)
            outputs.append(output)
            ids.append(blocks or ())
    if not prompts:
        raise WorkloadError(f"{shown(path)} is empty: nothing to replay")
    source: dict[str, Any] = {
        "format": "mooncake",
        "data_set": "Mooncake trace",
        "licence": "Apache-2.0 as published (kvcache-ai/Mooncake)",
    }
    told.refuse(path, blocks="" if shared else "its rows have no hash_ids")
    lengths = np.array(prompts, np.int64)
    blocks_of = read_blocks(path, numbers, ids, lengths, told, source) if shared else None
    return assemble(
        path,
        source,
        prompt_tokens=lengths,
        output_tokens=np.array(outputs, np.int64),
        stamps=np.array(stamps, np.float64),
        unit=lambda file, kept: unit_of(file, kept, "ms", told.unit),
        blocks=blocks_of,
    )


def read_blocks(
    path: Path,
    numbers: Sequence[int],
    ids: Sequence[Sequence[int]],
    prompt_tokens: Ints,
    told: Told,
    source: dict[str, Any],
) -> Blocks:
    """The blocks of rows that stand at these numbers in a file; what there is to say of their size goes to `source`.

    Raises WorkloadError, naming file and row, where ids do not fit their prompt.
    """
    size, line = block_size(shown(path.name), ids, prompt_tokens, told.block)
    for number, row, length in zip(numbers, ids, prompt_tokens.tolist(), strict=True):
        if why := misfit(row, length, size):
            raise WorkloadError(f"{shown(path)}, row {number}: {why}")
    if line:
        source["notices"] = [*source.get("notices", ()), line]
    return Blocks(tuple(map(tuple, ids)), size)


def _checked(where: str, row: Any, largest: float) -> tuple[float, int, int, tuple[int, ...] | None]:
    if not isinstance(row, dict):
        raise WorkloadError(f"{where}: not a JSON object")
    for key in KEYS:
        if row.get(key) is None:
            found = shown(", ".join(map(str, row)), 120)
            raise WorkloadError(
                f"{where}: no {key}{suggest(key, set(map(str, row)) - set(KEYS))}: found {found}; "
                f"format mooncake needs {', '.join(KEYS)}"
            )
    stamp = row["timestamp"]
    if type(stamp) not in (int, float) or not abs(stamp) <= largest:
        raise WorkloadError(f"{where}: timestamp is {brief(stamp)}, not a number of milliseconds")
    for key in ("input_length", "output_length"):
        value = row[key]
        if type(value) is not int or not 0 <= value <= _MOST_TOKENS:
            raise WorkloadError(f"{where}: {key} is {brief(value)}, not a whole number of 0 to {_MOST_TOKENS}")
    ids = row.get("hash_ids")
    if ids is not None and (not isinstance(ids, list) or any(type(one) is not int for one in ids)):
        raise WorkloadError(f"{where}: hash_ids is {brief(ids)}, not a list of whole numbers")
    return float(stamp), row["input_length"], row["output_length"], None if ids is None else tuple(ids)
