"""Tables 1 to 3 of arXiv 2608.02244 made again on the token-step model.

The paper names neither its lengths nor its constants. n, B, c·T, τ·Q and the revenue are printed, and from them
c = 5e-4, τ = 1e-6 and ρ0 = 0.002; lengths and Table 3's step time are fitted and are not identified by the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.reproduce.isjl_published import Published, PublishedRow
from harness.reproduce.length_laws import of_table1, of_table3
from harness.simulate.token_steps import Segments, StepTime, Totals, segments_of, totals_of
from policies.offline.baselines import Planner, fcfs, ljf, sjf
from policies.offline.isjl import isjl, isjl_best, isjl_paper

SLOTS = 50
PRICE, STEP_COST, TOKEN_COST = 0.002, 5e-4, 1e-6

# Table 3 in independent pools: (requests a pool, step time c + k·max r), each fitted to the throughputs.
POOLS = ((200, StepTime(31.5e-3, 0.0, 0.0886e-3)), (100, StepTime(22.2e-3, 0.0, 0.081e-3)))

BASELINES: dict[str, Planner] = {"FCFS": fcfs, "SJF": sjf, "LJF": ljf}
FORMS: dict[str, Callable[[int], Planner]] = {
    "isjl": lambda alpha: lambda lengths, slots: isjl(lengths, slots, alpha),
    "isjl-best": lambda alpha: lambda lengths, slots: isjl_best(lengths, slots, alpha),
    "isjl-paper, hold": lambda alpha: lambda lengths, slots: isjl_paper(lengths, slots, alpha, hold=True),
}


@dataclass(frozen=True, slots=True)
class RemadeRow:
    """A published row and ours, a dictionary of cells for each form of the policy."""

    row: PublishedRow
    ours: dict[str, dict[str, float]]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"policy": self.row.policy, "alpha": self.row.alpha, "published": self.row.cells, "ours": self.ours}


def tables_again(published: Published, seeds: int) -> dict[str, list[RemadeRow]]:
    """The three tables beside ours, each of ours a mean over `seeds` samples of lengths."""
    samples = [of_table1(seed) for seed in range(seeds)]
    longest_first = [_totals(lengths, ljf, SLOTS) for lengths in samples]

    def profit(row: PublishedRow) -> dict[str, dict[str, float]]:
        return {
            form: _mean(
                [_money(_totals(o, planner, SLOTS), base) for o, base in zip(samples, longest_first, strict=True)]
            )
            for form, planner in _planners(row).items()
        }

    def only(cells: dict[str, dict[str, float]], row: PublishedRow) -> dict[str, dict[str, float]]:
        return {form: {name: of_form[name] for name in row.cells} for form, of_form in cells.items()}

    again = {
        name: [RemadeRow(row, only(profit(row), row)) for row in published.tables[name]]
        for name in ("table1", "table2")
    }
    again["table3"] = [RemadeRow(row, _pools(row, seeds)) for row in published.tables["table3"]]
    return again


def _planners(row: PublishedRow) -> dict[str, Planner]:
    if row.alpha is None:
        return {row.policy.lower(): BASELINES[row.policy]}
    return {form: make(row.alpha) for form, make in FORMS.items()}


def _scheduled(lengths: Sequence[int], planner: Planner, slots: int) -> tuple[Any, Any, Segments]:
    o = np.array(lengths, dtype=np.int64)
    starts = np.array(planner(lengths, slots), dtype=np.int64)
    return o, starts, segments_of(starts, o, o, slots)


def _totals(lengths: Sequence[int], planner: Planner, slots: int) -> Totals:
    o, _, segments = _scheduled(lengths, planner, slots)
    return totals_of(segments, o)


def _money(totals: Totals, base: Totals) -> dict[str, float]:
    """The cells of Tables 1 and 2; `base` is LJF on the same lengths."""
    tau_q, tau_e = TOKEN_COST * totals.resource, TOKEN_COST * totals.externality
    saved = base.steps - totals.steps
    return {
        "profit": totals.profit(PRICE, STEP_COST, TOKEN_COST),
        "cost": tau_q + STEP_COST * totals.steps + tau_e,
        "tau_q": tau_q,
        "c_t": STEP_COST * totals.steps,
        "tau_e": tau_e,
        "gain": 100 * (base.steps / totals.steps - 1),
        "gap": totals.gap_sum / totals.steps,
        "saved": float(saved),
    }


def _mean(samples: Sequence[dict[str, float]]) -> dict[str, float]:
    mean = {name: float(np.mean([cells[name] for cells in samples])) for name in samples[0]}
    if mean.get("saved"):
        # As printed: of the means, c* = τE/(T_LJF − T).
        mean["break_even"] = mean["tau_e"] / mean["saved"]
    return mean


def _pools(row: PublishedRow, seeds: int) -> dict[str, dict[str, float]]:
    """Table 3: throughput (tokens/s) and mean end-to-end latency (s, from the pool's start) at B = 16 and 32."""
    cells_of_pools = {}
    planner = BASELINES.get(row.policy) or FORMS["isjl"](row.alpha or 0)
    for size, step_time in POOLS:
        cells = {}
        for slots in (16, 32):
            rates, latencies = [], []
            for seed in range(seeds):
                lengths = of_table3(seed)
                ends = [
                    _ends(lengths[first : first + size], planner, slots, step_time)
                    for first in range(0, len(lengths), size)
                ]
                rates.append(sum(lengths) / sum(float(ends_of_pool.max()) for ends_of_pool in ends))
                latencies.append(float(np.concatenate(ends).mean()))
            cells[f"throughput{slots}"] = float(np.mean(rates))
            cells[f"latency{slots}"] = float(np.mean(latencies))
        cells_of_pools[f"pools of {size}"] = cells
    return cells_of_pools


def _ends(lengths: Sequence[int], planner: Planner, slots: int, step_time: StepTime) -> Any:
    """When each request of a pool is done, s from the pool's start."""
    o, starts, segments = _scheduled(lengths, planner, slots)
    t = np.arange(segments.steps)
    place = np.searchsorted(segments.end, t, side="right")
    ends = np.cumsum(step_time.nanoseconds(segments.n[place], t + 1 - segments.start_min[place])) / 1e9
    return ends[starts + o - 1]
