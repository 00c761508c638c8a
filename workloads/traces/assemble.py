"""From the columns of a published trace to a Trace: what is left out and counted, put in order, or asked about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from workloads.core import cache
from workloads.core.blocks import Blocks
from workloads.core.errors import WorkloadError
from workloads.core.reading import shown
from workloads.core.trace import Floats, Ints, Trace, passing

# Requests a second: beyond these it is rather the unit that is wrong.
HIGHEST_RATE, LOWEST_RATE = 1e4, 1e-3


def assemble(
    path: Path,
    source: dict[str, Any],
    *,
    prompt_tokens: Ints,
    output_tokens: Ints,
    stamps: Ints | Floats | None,
    per_second: float = 1.0,
    session: Ints | None = None,
    blocks: Blocks | None = None,
    empty_output: str = "0 output tokens",
) -> Trace:
    """The trace of a published file: rows without tokens skipped and counted, then in the order of `stamps`.

    `stamps` are times of `per_second` to the second; the trace counts seconds from the first row kept. Rows out of
    order are sorted (stable) and a note says how many there were. Raises WorkloadError where no row is left.
    """
    skipped: dict[str, int] = {}
    rows = np.flatnonzero(passing({"0 prompt tokens": prompt_tokens == 0, empty_output: output_tokens == 0}, skipped))
    if not len(rows):
        raise WorkloadError(f"{shown(path)}: no row has tokens in and out ({skipped}): nothing to replay")
    source = {
        "kind": "file",
        **source,
        "file": shown(path.name),
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
        seconds = (stamps[rows] - stamps[rows[0]]) / per_second
        question = rate_question(source["file"], seconds)
        if question:
            source["notices"] = [question]
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


def rate_question(file: str, seconds: Floats) -> str | None:
    """What to ask where the times look to be in another unit than seconds; None where they do not."""
    span = float(seconds[-1] - seconds[0])
    if len(seconds) < 2:
        return None
    rate = (len(seconds) - 1) / span if span > 0 else float("inf")
    if LOWEST_RATE <= rate <= HIGHEST_RATE:
        return None
    why = f"all {len(seconds):,} rows have one time" if span == 0 else f"{rate:.3g} requests/s over {span:.3g} s"
    remedy = "trace:scale=1000" if rate > HIGHEST_RATE else "trace:scale=0.001"
    return f"{file}: {why}: are the times in the unit that the format has? --arrival {remedy} replays them in another"


def turn_numbers(session: Ints) -> Ints:
    """The turn of each row: how many rows of its session stand before it."""
    order = np.argsort(session, kind="stable")
    starts = np.flatnonzero(np.diff(session[order], prepend=session[order[0]] - 1))
    sizes = np.diff(np.append(starts, len(session)))
    turn = np.empty(len(session), dtype=np.int64)
    turn[order] = np.arange(len(session)) - np.repeat(starts, sizes)
    return turn
