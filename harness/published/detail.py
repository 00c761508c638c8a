"""What a page shows of one run's tables: distribution curves, the course of the run, sums for fairness and profit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.measure.columns import MISSING, NANOSECONDS, Requests
from harness.measure.fairness import dot, fairness
from harness.measure.measured import is_closed_loop, span
from harness.measure.statistics import weighted_percentile
from harness.published.tables import Tables
from harness.published.verify import differs
from harness.runs.run import Run

# Points of a distribution curve: every half percent, and finer at the end that people look at.
QUANTILES = (0.0, 0.1, 0.5, *(float(q) for q in range(1, 99)), 98.5, 99.0, 99.5, 99.9, 100.0)
# Stretches of time in the course of a run.
STRETCHES = 240
CURVES = ("ttft_s", "tpot_s", "itl_s", "e2el_s")
# Gaps, tokens, that a reader can hold a run's own against.
GAPS = (0, 10, 25, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1000, 1500, 2000)


def seen(run: Run) -> dict[str, Any]:
    """All that a build needs of a run's tables: its `detail`, and how its summary `differs` from them.

    A reported run has no tables and gives neither. UserError where a table is damaged.
    """
    if run.kind == "reported":
        return {"detail": {"curves": {}, "course": None, "sums": None, "marks": []}, "differs": None}
    tables = Tables.of(run)
    return {"detail": detail_of(run, tables), "differs": differs(run, tables)}


def detail_of(run: Run, tables: Tables) -> dict[str, Any]:
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
                _short(weighted_percentile(sample.values, sample.cumulative, q) / NANOSECONDS) for q in QUANTILES
            ]
    return {
        "curves": curves,
        "course": None if steps is None else _course(steps, requests, closed),
        "sums": _sums(requests, steps),
        "marks": _marks(run, requests),
    }


def _course(steps: Any, requests: Requests, closed: bool) -> dict[str, list[Any]]:
    """The run in STRETCHES of equal time: share of time in each phase, and means weighted by time.

    `ttft_s` is the mean TTFT of the requests sent (open loop: due) in the stretch.
    """
    start, length = (steps.column(name).to_numpy() for name in ("t_s", "duration_s"))
    end = float((start + length).max())
    place = np.minimum((start / end * STRETCHES).astype(np.int64), STRETCHES - 1) if end > 0 else start.astype(np.int64)
    time = np.bincount(place, length, STRETCHES)
    busy = time > 0

    def mean(values: npt.NDArray[np.float64]) -> list[float | None]:
        total = np.bincount(place, values * length, STRETCHES)
        return [_short(t / w) if w else None for t, w in zip(total.tolist(), time.tolist(), strict=True)]

    phase = steps.column("phase").combine_chunks().dictionary_decode().to_numpy(zero_copy_only=False)
    columns: dict[str, list[Any]] = {"t_s": [_short((i + 0.5) * end / STRETCHES) for i in range(STRETCHES)]}
    for name in ("mixed", "prefill", "decode"):
        columns[name] = mean((phase == name).astype(np.float64))
    for name in ("running", "waiting", "kv_tokens"):
        columns[name] = mean(steps.column(name).to_numpy().astype(np.float64))
    gap = (steps.column("generated_max").to_numpy() - steps.column("generated_min").to_numpy()).astype(np.float64)
    columns["gap"] = mean(gap)
    last = np.full(STRETCHES, -1, dtype=np.int64)
    last[place] = np.arange(len(place))
    for name in ("policy_k", "policy_n", "policy_mode", "crossover_left", "crossover_right"):
        column = steps.column(name)
        if column.null_count < len(column):
            values = column.take(np.maximum(last, 0)).to_pylist()
            columns[name] = [_short(v) if i >= 0 else None for v, i in zip(values, last.tolist(), strict=True)]
    columns["busy"] = busy.tolist()
    columns["ttft_s"] = _ttft(requests, closed, end)
    return columns


def _ttft(requests: Requests, closed: bool, end: float) -> list[float | None]:
    since = requests.sent if closed else requests.due
    known = requests.completed & (since != MISSING) & (requests.first != MISSING)
    if not known.any() or end <= 0:
        return [None] * STRETCHES
    start = since[known] / NANOSECONDS
    place = np.clip((start / end * STRETCHES).astype(np.int64), 0, STRETCHES - 1)
    count = np.bincount(place, minlength=STRETCHES)
    total = np.bincount(place, (requests.first[known] - since[known]) / NANOSECONDS, STRETCHES)
    return [_short(t / n) if n else None for t, n in zip(total.tolist(), count.tolist(), strict=True)]


def _marks(run: Run, requests: Requests) -> list[dict[str, Any]]:
    """When the first request of each phase was sent; a phase without one is left out."""
    trace = run.manifest.get("provenance", {}).get("trace")
    phases = trace.get("phases") if isinstance(trace, dict) else None
    marks = []
    for one in phases if isinstance(phases, list) else []:
        if not (isinstance(one, dict) and isinstance(one.get("first_row"), int)):
            continue
        times = requests.sent[(requests.row >= one["first_row"]) & (requests.sent != MISSING)]
        if len(times):
            marks.append({"name": str(one.get("name", "")), "t_s": _short(int(times.min()) / NANOSECONDS)})
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


def _short(value: Any) -> Any:
    """Six digits are more than a chart shows, and keep the pages small."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
