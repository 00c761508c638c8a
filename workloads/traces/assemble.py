"""From the columns of a published trace to a Trace: what is left out and counted, put in order, or asked about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from workloads.core import cache
from workloads.core.blocks import Blocks
from workloads.core.errors import WorkloadError
from workloads.core.reading import spelled
from workloads.core.trace import Floats, Ints, Trace, passing
from workloads.traces.units import Unit


def assemble(
    path: Path,
    source: dict[str, Any],
    *,
    prompt_tokens: Ints,
    output_tokens: Ints,
    stamps: Ints | Floats | None,
    unit: Callable[[str, Ints | Floats], Unit],
    session: Ints | None = None,
    blocks: Blocks | None = None,
    empty_output: str = "0 output tokens",
) -> Trace:
    """The trace of a published file: rows without tokens skipped and counted, then in the order of `stamps`.

    `unit` says of the file's name and the times kept how many make a second; the trace counts seconds from the first
    row kept. Rows out of order are sorted (stable) and a note says how many there were. Raises WorkloadError where no
    row is left.
    """
    skipped: dict[str, int] = {}
    rows = np.flatnonzero(passing({"0 prompt tokens": prompt_tokens == 0, empty_output: output_tokens == 0}, skipped))
    if not len(rows):
        raise WorkloadError(f"{spelled(path)}: no row has tokens in and out ({skipped}): nothing to replay")
    source = {
        "kind": "file",
        **source,
        "file": spelled(path.name),
        "file_sha256": cache.file_digest(path),
        "rows_in_file": len(prompt_tokens),
        "skipped": skipped,
    }
    seconds = None
    if stamps is not None:
        back = int((np.diff(stamps[rows]) < 0).sum())
        if back:
            rows = rows[np.argsort(stamps[rows], kind="stable")]
            source["notes"] = [f"{source['file']}: {back:,} rows are earlier than the row before them: sorted by time"]
        counted = unit(source["file"], stamps[rows])
        seconds = (stamps[rows] - stamps[rows[0]]) / counted.per_second
        counted.join(source)
    return Trace(
        name="file",
        prompt_tokens=prompt_tokens[rows],
        output_tokens=output_tokens[rows],
        source=source,
        timestamp_s=seconds,
        session=None if session is None else session[rows],
        turn=None if session is None else turn_numbers(session[rows]),
        blocks=None if blocks is None else blocks.take(rows.tolist()),
    )


def turn_numbers(session: Ints) -> Ints:
    """The turn of each row: how many rows of its session stand before it."""
    order = np.argsort(session, kind="stable")
    starts = np.flatnonzero(np.diff(session[order], prepend=session[order[0]] - 1))
    sizes = np.diff(np.append(starts, len(session)))
    turn = np.empty(len(session), dtype=np.int64)
    turn[order] = np.arange(len(session)) - np.repeat(starts, sizes)
    return turn
