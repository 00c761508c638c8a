"""The phases of a load that changes by plan, each measured by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.measure.columns import MISSING, NANOSECONDS
from harness.measure.measured import Measured

# Longer than any trace: where the last phase ends.
_END = 2**62

Marks = Sequence[tuple[str, int]]


def phase_marks(manifest: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Each phase's name and the first row of it, as a run's manifest marks them; none of any other load."""
    trace = manifest.get("provenance", {}).get("trace")
    phases = trace.get("phases") if isinstance(trace, dict) else None
    return [
        (str(phase.get("name", "")), phase["first_row"])
        for phase in (phases if isinstance(phases, list) else [])
        if isinstance(phase, dict) and isinstance(phase.get("first_row"), int)
    ]


def phase_values(measured: Measured, marks: Marks) -> dict[str, dict[str, float]]:
    """By phase what its requests alone say: output tok/s from their first send to their last token, TTFT and TPOT, s.

    What a phase has none of is absent. Where phases overlap their rates do not add up.
    """
    requests = measured.requests
    found: dict[str, dict[str, float]] = {}
    ends = [first for _, first in marks[1:]] + [_END]
    for (name, first), end in zip(marks, ends[: len(marks)], strict=True):
        inside = (requests.row >= first) & (requests.row < end)
        done = inside & requests.completed
        told: dict[str, float] = {}
        if done.any():
            begun = int(requests.sent[inside & (requests.sent != MISSING)].min())
            span = int(requests.last[done].max()) - begun
            if span > 0:
                told["output_throughput"] = float(requests.output_tokens[done].sum()) * NANOSECONDS / span
        for metric in ("ttft_s", "tpot_s"):
            sample = measured.samples[metric]
            own = (sample.units >= first) & (sample.units < end)
            if own.any():
                told[metric] = float(np.sum(sample.sums[own]) / np.sum(sample.counts[own])) / NANOSECONDS
        if told:
            found[name] = told
    return found
