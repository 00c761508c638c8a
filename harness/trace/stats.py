"""What a trace looks like: arrivals, hazard of the output length, phases, and what its prompts share."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from policies.online.hazard import ExposureEstimator
from workloads.core.trace import Floats, Ints, Trace

# Nobody tells the hazard of more rows apart, and the estimator sorts them in plain Python.
MOST_ROWS = 1_000_000
BINS = 32


@dataclass(frozen=True, slots=True)
class Hazard:
    """The hazard of the output length of whole requests: p̄ and the line p0 + η·t (1/token, 1/token²).

    `ages` (middles, tokens) and `rates` (1/token) are the bins of about equal exposure that a line goes through.
    """

    p_bar: float
    p0: float
    eta: float
    ages: Floats
    rates: Floats


def hazard_of(output_tokens: Ints) -> Hazard:
    """The hazard as the policies' own estimator fits it, every request followed to its end."""
    outputs = output_tokens
    if len(outputs) > MOST_ROWS:
        outputs = outputs[np.linspace(0, len(outputs) - 1, MOST_ROWS).astype(np.int64)]
    estimator = ExposureEstimator(len(outputs))
    # All begin together and are followed to their last token: none is late at risk, none left in flight.
    longest = int(outputs.max())
    estimator.on_steps(longest, 1, int(outputs.sum()) - longest)
    for length in outputs.tolist():
        estimator.on_finish(length)
    line = estimator.line(())
    return Hazard(estimator.p_bar, line.p0, line.eta, *_bins(outputs))


def _bins(outputs: Ints) -> tuple[Floats, Floats]:
    """Middles and hazard (completions ÷ tokens produced) of bins of about equal exposure up to the 95th percentile."""
    ordered = np.sort(outputs)
    oldest = int(ordered[(95 * len(ordered) + 99) // 100 - 1])
    sums = np.concatenate([[0], np.cumsum(ordered)])

    def exposure(ages: Ints) -> Ints:
        shorter = np.searchsorted(ordered, ages, side="right")
        return np.asarray(sums[shorter] + ages * (len(ordered) - shorter), dtype=np.int64)

    every = np.unique(np.linspace(0, oldest, min(oldest, 4096) + 1).astype(np.int64))
    targets = np.linspace(0, int(exposure(np.array([oldest]))[0]), BINS + 1)
    edges = np.unique(every[np.minimum(np.searchsorted(exposure(every), targets), len(every) - 1)])
    events = np.diff(np.searchsorted(ordered, edges, side="right"))
    weight = np.diff(exposure(edges))
    return np.asarray((edges[:-1] + 1 + edges[1:]) / 2), np.asarray(events / weight)


def arrivals_of(trace: Trace) -> dict[str, float | None] | None:
    """Rate (requests/s), coefficient of variation of the gaps and burstiness 1/cv²; None without times."""
    times = trace.timestamp_s
    if times is None:
        return None
    span = float(times[-1] - times[0])
    gaps = np.diff(times)
    cv = float(gaps.std() / gaps.mean()) if len(gaps) > 1 and span > 0 else None
    return {
        "rate": (len(times) - 1) / span if span > 0 else None,
        "cv": cv,
        "burstiness": 1 / cv**2 if cv else None,
    }


def sharing_of(trace: Trace) -> dict[str, Any] | None:
    """What a prefix cache without bounds would save: prompt tokens in blocks that an earlier prompt begins with too."""
    if trace.blocks is None:
        return None
    shared = trace.blocks.shared_tokens(trace.prompt_tokens)
    return {
        "block_tokens": trace.blocks.tokens,
        "shared_tokens": shared,
        "share": shared / int(trace.prompt_tokens.sum()),
    }


def duplicates_of(trace: Trace) -> int:
    """Rows that have the time and both lengths of an earlier row; 0 without times."""
    if trace.timestamp_s is None:
        return 0
    rows = np.column_stack([trace.timestamp_s.view(np.int64), trace.prompt_tokens, trace.output_tokens])
    order = np.lexsort(rows.T)
    return int((np.diff(rows[order], axis=0) == 0).all(axis=1).sum())


def phase_rows(trace: Trace) -> list[tuple[dict[str, Any], slice]]:
    """The marks of a drift with the rows of each phase."""
    marks = trace.source.get("phases", [])
    edges = [*(mark["first_row"] for mark in marks), len(trace)]
    return [(mark, slice(first, end)) for mark, (first, end) in zip(marks, pairwise(edges), strict=True)]


def phases_of(trace: Trace) -> list[dict[str, Any]]:
    """Name, rows, mean lengths (tokens), decode ratio and, where known, start (s) and level of each phase."""
    phases = []
    for mark, rows in phase_rows(trace):
        mu_l, mu_o = float(trace.prompt_tokens[rows].mean()), float(trace.output_tokens[rows].mean())
        counts = {"rows": rows.stop - rows.start, "mu_l": mu_l, "mu_o": mu_o, "decode_ratio": mu_o / (mu_l + mu_o)}
        phases.append({**mark, **counts})
    return phases
