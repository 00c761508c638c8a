"""Mooncake's traces: milliseconds, two lengths and the hash ids of the prompt's blocks, a JSON object a line."""

from __future__ import annotations

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


def load(path: Path) -> Trace:
    """The trace of a Mooncake file; equal hash ids are equal blocks of 512 tokens, so prompts share prefixes.

    Raises WorkloadError naming file and row.
    """
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
            stamp, prompt, output, blocks = _checked(where, row)
            if shared not in (None, blocks is not None):
                has = "lacks" if shared else "has"
                raise WorkloadError(f"{where}: {has} hash_ids, other than the rows before: all have them or none")
            shared = blocks is not None
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
    return assemble(
        path,
        source,
        prompt_tokens=np.array(prompts, np.int64),
        output_tokens=np.array(outputs, np.int64),
        stamps=np.array(stamps, np.float64),
        per_second=1e3,
        blocks=Blocks(tuple(ids), BLOCK_TOKENS) if shared else None,
    )


def _checked(where: str, row: Any) -> tuple[float, int, int, tuple[int, ...] | None]:
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
    if type(stamp) not in (int, float) or not abs(stamp) <= _LARGEST_MS:
        raise WorkloadError(f"{where}: timestamp is {brief(stamp)}, not a number of milliseconds")
    for key in ("input_length", "output_length"):
        value = row[key]
        if type(value) is not int or not 0 <= value <= _MOST_TOKENS:
            raise WorkloadError(f"{where}: {key} is {brief(value)}, not a whole number of 0 to {_MOST_TOKENS}")
    ids = row.get("hash_ids")
    if ids is not None:
        if not isinstance(ids, list) or any(type(one) is not int for one in ids):
            raise WorkloadError(f"{where}: hash_ids is {brief(ids)}, not a list of whole numbers")
        if why := misfit(ids, row["input_length"], BLOCK_TOKENS):
            raise WorkloadError(f"{where}: {why}")
    return float(stamp), row["input_length"], row["output_length"], None if ids is None else tuple(ids)
