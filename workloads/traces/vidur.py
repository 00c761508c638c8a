"""Vidur's CSV: two lengths a row, and when it arrived where the trace has times."""

from __future__ import annotations

from pathlib import Path

from workloads.core.trace import Trace
from workloads.traces.assemble import assemble
from workloads.traces.table import read_table

COLUMNS = ("num_prefill_tokens", "num_decode_tokens")
ARRIVED = "arrived_at"


def load(path: Path) -> Trace:
    """The trace of `arrived_at,num_prefill_tokens,num_decode_tokens`, seconds; without arrived_at lengths only."""
    table = read_table(path, COLUMNS, (ARRIVED,), "vidur")
    return assemble(
        path,
        {"format": "vidur", "licence": None},
        prompt_tokens=table.whole("num_prefill_tokens"),
        output_tokens=table.whole("num_decode_tokens"),
        stamps=table.seconds(ARRIVED, 9e9) if ARRIVED in table.columns else None,
    )
