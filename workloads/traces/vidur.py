"""Vidur's CSV: two lengths a row, and when it arrived where the trace has times."""

from __future__ import annotations

from pathlib import Path

from workloads.core.trace import Trace
from workloads.traces.assemble import assemble
from workloads.traces.file_options import NO_BLOCKS, NO_TIMES, NOTHING, FileOptions
from workloads.traces.table import read_table
from workloads.traces.units import unit_of

COLUMNS = ("num_prefill_tokens", "num_decode_tokens")
ARRIVED = "arrived_at"


def load(path: Path, given: FileOptions = NOTHING) -> Trace:
    """The trace of `arrived_at,num_prefill_tokens,num_decode_tokens`, seconds; without arrived_at lengths only."""
    table = read_table(path, COLUMNS, (ARRIVED,), "vidur")
    timed = ARRIVED in table.columns
    given.refuse(path, no_times="" if timed else NO_TIMES, no_blocks=NO_BLOCKS)
    return assemble(
        path,
        {"format": "vidur", "licence": None},
        prompt_tokens=table.whole("num_prefill_tokens"),
        output_tokens=table.whole("num_decode_tokens"),
        stamps=table.times(ARRIVED, given.unit) if timed else None,
        unit=lambda file, stamps: unit_of(file, stamps, "s", given.unit),
    )
