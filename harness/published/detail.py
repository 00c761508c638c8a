"""What a page shows of one run's tables: distribution curves, the course of the run, sums for fairness and profit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.measure.columns import MISSING, NANOSECONDS, Ints, Requests
from harness.measure.fairness import NOTHING, Fairness, dot, fairness
from harness.measure.measured import is_closed_loop, span
from harness.measure.phases import phase_marks
from harness.measure.statistics import weighted_percentile
from harness.published.submitted import columns_of
from harness.published.tables import RunTables
from harness.runs.run import Run

# Points of a distribution curve: every half percent, and finer at the end that people look at.
QUANTILES = (0.0, 0.1, 0.5, *(float(q) for q in range(1, 99)), 98.5, 99.0, 99.5, 99.9, 100.0)
# Stretches of time in the course of a run.
STRETCHES = 240
CURVES = ("ttft_s", "tpot_s", "itl_s", "e2el_s")
# Gaps, tokens, that a reader can hold a run's own against.
GAPS = (0, 10, 25, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1000, 1500, 2000)


def detail_of(run: Run, tables: RunTables) -> dict[str, Any]:
    """JSON values: `curves` (metric to values at QUANTILES, s), `course` (columns over STRETCHES of time), `sums`,
    `marks` (the phases of a drifting workload, by name and the second that each begins).
    """
    table, steps, measured = tables.requests, tables.steps, tables.measured
    closed = is_closed_loop(run.spec)
    requests = Requests.of(table)
    curves = {}
    for name in CURVES:
        sample = measured.samples[name]
        if sample.count:
            curves[name] = [
                six_digits(weighted_percentile(sample.values, sample.cumulative, q) / NANOSECONDS) for q in QUANTILES
            ]
    return {
        "curves": curves,
        "course": None if steps is None else _course(steps, requests, closed, columns_of(run)),
        "sums": _sums(requests, steps),
        "marks": _marks(run, requests),
    }


def _course(steps: Any, requests: Requests, closed: bool, own: Sequence[str]) -> dict[str, list[Any]]:
    """The run in STRETCHES of equal time: share of time in each phase, and means weighted by time.

    `own` names the columns of a user's own policy, which are `own.NAME` here.
    `ttft_s` is the mean TTFT of the requests sent (open loop: due) in the stretch.
    """
    start, length = (steps.column(name).to_numpy() for name in ("t_s", "duration_s"))
    end = float((start + length).max())
    stretch = _stretches(start, end) if end > 0 else start.astype(np.int64)
    time = np.bincount(stretch, length, STRETCHES)

    def mean(values: npt.NDArray[np.float64]) -> list[float | None]:
        return _quotients(np.bincount(stretch, values * length, STRETCHES), time)

    phase = steps.column("phase").combine_chunks().dictionary_decode().to_numpy(zero_copy_only=False)
    columns: dict[str, list[Any]] = {"t_s": [six_digits((i + 0.5) * end / STRETCHES) for i in range(STRETCHES)]}
    for name in ("mixed", "prefill", "decode"):
        columns[name] = mean((phase == name).astype(np.float64))
    for name in ("running", "waiting"):
        columns[name] = mean(steps.column(name).to_numpy().astype(np.float64))
    gap = (steps.column("generated_max").to_numpy() - steps.column("generated_min").to_numpy()).astype(np.float64)
    columns["gap"] = mean(gap)
    columns |= _policy_columns(steps, stretch, own)
    columns["ttft_s"] = _mean_ttft(requests, closed, end)
    return columns


def _stretches(times: npt.NDArray[np.float64], end: float) -> Ints:
    """In which of the STRETCHES from 0 to `end`, s, each time lies."""
    return np.clip((times / end * STRETCHES).astype(np.int64), 0, STRETCHES - 1)


def _quotients(totals: npt.NDArray[Any], weights: npt.NDArray[Any]) -> list[float | None]:
    """Each total over its weight, None where that is 0."""
    pairs = zip(totals.tolist(), weights.tolist(), strict=True)
    return [six_digits(total / weight) if weight else None for total, weight in pairs]


def _policy_columns(steps: Any, stretch: Ints, own: Sequence[str]) -> dict[str, list[Any]]:
    """What the policy held to be true at the end of each stretch, None where the stretch has no step."""
    last = np.full(STRETCHES, -1, dtype=np.int64)
    last[stretch] = np.arange(len(stretch))
    columns = {}
    for name in ("policy_k", "policy_n", "policy_mode"):
        column = steps.column(name)
        if column.null_count == len(column):
            continue
        values = column.take(np.maximum(last, 0)).to_pylist()
        pairs = zip(values, last.tolist(), strict=True)
        columns[name] = [six_digits(value) if step >= 0 else None for value, step in pairs]
    values = steps.column("policy_own").take(np.maximum(last, 0)).to_pylist() if own else []
    for place, name in enumerate(own):
        columns[f"own.{name}"] = [
            six_digits(row[place]) if step >= 0 and row is not None and len(row) == len(own) else None
            for row, step in zip(values, last.tolist(), strict=True)
        ]
    return columns


def _mean_ttft(requests: Requests, closed: bool, end: float) -> list[float | None]:
    """The mean TTFT, s, of the requests whose wait begins in each stretch."""
    since = requests.sent if closed else requests.due
    served = requests.completed & (since != MISSING) & (requests.first != MISSING)
    if not served.any() or end <= 0:
        return [None] * STRETCHES
    stretch = _stretches(since[served] / NANOSECONDS, end)
    waits = np.bincount(stretch, (requests.first[served] - since[served]) / NANOSECONDS, STRETCHES)
    return _quotients(waits, np.bincount(stretch, minlength=STRETCHES))


def _marks(run: Run, requests: Requests) -> list[dict[str, Any]]:
    """When the first request of each phase was sent; a phase without one is left out."""
    marks = []
    for name, first in phase_marks(run.manifest):
        times = requests.sent[(requests.row >= first) & (requests.sent != MISSING)]
        if len(times):
            marks.append({"name": name, "t_s": six_digits(int(times.min()) / NANOSECONDS)})
    return marks


def _sums(requests: Requests, steps: Any | None) -> dict[str, Any]:
    """Exact sums that profit and fairness need, which add up over repeats.

    Tokens are those of completed requests, `seconds` from first send to last token; `fairness` is None without a step
    log, its `over` counts the busy steps with a gap beyond each of GAPS.
    """
    start, end = span(requests)
    work = None if steps is None else fairness(steps)
    return {
        "completed": int(requests.completed.sum()),
        "prompt_tokens": int(requests.prompt_tokens[requests.completed].sum()),
        "output_tokens": int(requests.output_tokens[requests.completed].sum()),
        "seconds": (end - start) / NANOSECONDS,
        "fairness": work
        and {
            "steps": work.steps,
            "working": work.working,
            "busy": work.busy,
            "tokens": work.tokens,
            "charged": work.charged,
            "held": work.held,
            "gap_sum": dot(work.gaps, work.counts),
            "gap_max": work.gap_max or 0,
            "over": [int(work.counts[work.gaps > gap].sum()) for gap in GAPS],
        },
    }


def fairness_of_sums(sums: Sequence[dict[str, Any]]) -> Fairness | None:
    """The fairness of repeats added up, as far as their `sums` tell it: no gaps and no times.

    None where a repeat has no step log.
    """
    works = [repeat["fairness"] for repeat in sums]
    if not all(works):
        return None
    names = ("steps", "working", "busy", "tokens", "charged", "held")
    return dataclasses.replace(NOTHING, **{name: sum(work[name] for work in works) for name in names})


def six_digits(value: Any) -> Any:
    """A number with six digits, which are more than a chart shows, and keep the pages small; else what it is.

    None of what is no number, such as a mean of nothing.
    """
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
