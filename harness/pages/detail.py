"""What a page shows of one run's tables: distribution curves, the course of the run, sums for fairness and profit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.measure.columns import NANOSECONDS
from harness.measure.measured import is_closed_loop, measure
from harness.measure.statistics import weighted_percentile
from harness.runs import Run

# Points of a distribution curve: every half percent, and finer at the end that people look at.
QUANTILES = (0.0, 0.1, 0.5, *(float(q) for q in range(1, 99)), 98.5, 99.0, 99.5, 99.9, 100.0)
# Stretches of time in the course of a run.
STRETCHES = 240
CURVES = ("ttft_s", "tpot_s", "itl_s", "e2el_s")


def detail_of(run: Run) -> dict[str, Any]:
    """JSON values: `curves` (metric to values at QUANTILES, s), `course` (columns over STRETCHES of time), `sums`.

    A reported run has no tables and gives none of them. UserError where a table is damaged.
    """
    if run.kind == "reported":
        return {"curves": {}, "course": None, "sums": None}
    requests, steps = run.requests(), run.steps()
    measured = measure(requests, steps, run.spec, is_closed_loop(run.spec))
    curves = {}
    for name in CURVES:
        sample = measured.samples[name]
        if sample.count:
            curves[name] = [
                _short(weighted_percentile(sample.values, sample.cumulative, q) / NANOSECONDS) for q in QUANTILES
            ]
    return {"curves": curves, "course": None if steps is None else _course(steps), "sums": _sums(requests, steps)}


def _course(steps: Any) -> dict[str, list[Any]]:
    """The run in STRETCHES of equal time: share of time in each phase, and means weighted by time."""
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
    return columns


def _sums(requests: Any, steps: Any | None) -> dict[str, Any] | None:
    """Exact sums that profit and fairness need: O, T, Q, E, prompt tokens, and the seconds of the run."""
    if steps is None:
        return None
    producing, total, most = (steps.column(name).to_numpy() for name in ("producing", "generated_sum", "generated_max"))
    end = steps.column("t_s").to_numpy() + steps.column("duration_s").to_numpy()
    return {
        "output_tokens": int(producing.sum()),
        "busy_steps": int((producing > 0).sum()),
        "q": int(total.sum()),
        "e": int((producing * most - total).sum()),
        "prompt_tokens": int(sum(one or 0 for one in requests.column("prompt_tokens").to_pylist())),
        "seconds": _short(float(end.max())),
    }


def _short(value: Any) -> Any:
    """Six digits are more than a chart shows, and keep the pages small."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
