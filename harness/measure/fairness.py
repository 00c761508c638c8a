"""Fairness of a run from its step log: gaps between the requests of a step, and what they cost the batch.

Per step, over the n requests that produce a token in it, r counts each one's tokens after the step: those it
generated (decode) or its prompt too (KV footprint). gap = max r - min r. K = Σ n·max r is what the batch is
charged, Q = Σ r what it holds, E = K - Q the externality (arXiv 2608.02244, theorem 5.1).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.core.runspec import RunSpec
from harness.measure.columns import NANOSECONDS, Ints, integers, nanoseconds
from harness.measure.estimate import Estimate, ratio_of_sums
from harness.measure.statistics import LEAST_UNITS, enough, weighted_percentile

# What r counts: the suffix of its metrics, and the prefix of its columns in the step table.
DECODE, KV = "", "_kv"
COLUMNS = {DECODE: "generated", KV: "footprint"}

# Metrics that need an α to hold gaps against.
OVER_ALPHA = ("violation_share", "excess_mean")

# Steps taken at once: whatever the length of the log, memory holds so many and the histogram.
MOST_STEPS = 65_536

# Stretches of the run that an interval is made from.
MOST_STRETCHES = 1000

_ALPHA = re.compile(r"isjl[^:]*:(?:.*,)?alpha=([^,]+)")


@dataclass(frozen=True, slots=True)
class Fairness:
    """Exact sums over steps that add up: the state of two shards merged is that of the whole.

    `steps` is T, `working` the steps with prefill or tokens (what c is charged on), `busy` those that produce
    tokens. `charged` is K and `held` Q, in tokens; with `_time` each step counts with its duration, in
    token·ns. `gaps` ascend, with the busy steps (`counts`) and their time (`times`, ns) at each.
    `contradictions` counts the steps whose sum, min and max cannot all be true.
    """

    steps: int
    working: int
    busy: int
    tokens: int
    charged: int
    held: int
    charged_time: int
    held_time: int
    contradictions: int
    gaps: Ints
    counts: Ints
    times: Ints

    @property
    def externality(self) -> int:
        """E, tokens: what shorter requests are charged for the longest one of their step."""
        return self.charged - self.held

    @property
    def externality_time(self) -> float:
        """E with each step weighted by its duration, token·s."""
        return (self.charged_time - self.held_time) / NANOSECONDS

    @property
    def externality_per_token(self) -> float | None:
        """E over the tokens produced, None where there are none; at most α where no gap exceeds α."""
        return self.externality / self.tokens if self.tokens else None

    def gap_mean(self, timed: bool = False) -> float | None:
        """The mean gap of busy steps (with `timed` of busy time), tokens; None without any."""
        return self._mean(self.gaps, timed)

    def violation_share(self, alpha: float, timed: bool = False) -> float | None:
        """The share of busy steps (of busy time) whose gap exceeds α."""
        return self._mean((self.gaps > alpha).astype(np.int64), timed)

    def excess_mean(self, alpha: float, timed: bool = False) -> float | None:
        """The mean of max(gap - α, 0) over busy steps (busy time), tokens."""
        over = self.gaps > alpha
        total, _ = self._sum(np.where(over, self.gaps, 0), timed)
        number, weight = self._sum(over.astype(np.int64), timed)
        return (total - alpha * number) / weight if weight else None

    def gap_percentile(self, percent: float) -> float | None:
        """The percentile of the gaps of busy steps by numpy's rule "linear", tokens; None from too few."""
        if not enough(percent, self.busy):
            return None
        return weighted_percentile(self.gaps, np.cumsum(self.counts), percent)

    @property
    def gap_max(self) -> int | None:
        """The largest gap, tokens; None without a busy step."""
        return int(self.gaps[-1]) if self.busy else None

    def _sum(self, values: Ints, timed: bool) -> tuple[int, int]:
        weights = self.times if timed else self.counts
        return dot(values, weights), int(weights.sum())

    def _mean(self, values: Ints, timed: bool) -> float | None:
        total, weight = self._sum(values, timed)
        return total / weight if weight else None


NOTHING = Fairness(0, 0, 0, 0, 0, 0, 0, 0, 0, *(np.zeros(0, dtype=np.int64) for _ in range(3)))


def merge(a: Fairness, b: Fairness) -> Fairness:
    """The state of both shards together."""
    gaps, place = np.unique(np.concatenate((a.gaps, b.gaps)), return_inverse=True)
    counts, times = np.zeros(len(gaps), dtype=np.int64), np.zeros(len(gaps), dtype=np.int64)
    np.add.at(counts, place, np.concatenate((a.counts, b.counts)))
    np.add.at(times, place, np.concatenate((a.times, b.times)))
    return Fairness(
        steps=a.steps + b.steps,
        working=a.working + b.working,
        busy=a.busy + b.busy,
        tokens=a.tokens + b.tokens,
        charged=a.charged + b.charged,
        held=a.held + b.held,
        charged_time=a.charged_time + b.charged_time,
        held_time=a.held_time + b.held_time,
        contradictions=a.contradictions + b.contradictions,
        gaps=gaps,
        counts=counts,
        times=times,
    )


def fairness(steps: Any, variant: str = DECODE) -> Fairness | None:
    """The state of a step table (columns of `records.STEPS`), None where the log does not say who produced what."""
    if not _says_who_produced(steps, variant):
        return None
    state = NOTHING
    for batch in steps.to_batches(max_chunksize=MOST_STEPS):
        state = merge(state, of_batch(batch, variant))
    return state


def of_batch(batch: Any, variant: str = DECODE) -> Fairness:
    """The state of a few steps: a record batch of at most MOST_STEPS rows."""
    step = _ProducingSteps(batch, variant)
    gaps, counts, times = _histogram(step.gap, step.duration)
    return Fairness(
        steps=batch.num_rows,
        working=int(np.count_nonzero(step.busy | (integers(batch.column("prefill_tokens")) > 0))),
        busy=len(step.n),
        tokens=int(step.n.sum()),
        charged=dot(step.n, step.highest),
        held=int(step.total.sum()),
        charged_time=dot(step.n * step.highest, step.duration),
        held_time=dot(step.total, step.duration),
        contradictions=step.contradictions,
        gaps=gaps,
        counts=counts,
        times=times,
    )


def _histogram(gaps: Ints, durations: Ints) -> tuple[Ints, Ints, Ints]:
    """The distinct gaps, ascending, how often each occurs and for how long, ns."""
    if not len(gaps):
        return gaps, gaps, gaps
    least = int(gaps.min())
    if int(gaps.max()) - least < MOST_STEPS:
        # Counting is far quicker than sorting.
        place = gaps - least
        counts = np.bincount(place)
        values = np.flatnonzero(counts)
    else:
        values, place = np.unique(gaps, return_inverse=True)
        counts = np.bincount(place)
        least = 0
    times = np.zeros(len(counts), dtype=np.int64)
    np.add.at(times, place, durations)
    occurring = counts > 0
    return values + least, counts[occurring].astype(np.int64), times[occurring]


def intervals(steps: Any, variant: str, alpha: float | None, overlap: float) -> dict[str, Estimate]:
    """The means of `fairness` by metric name, with what each stretch of the run adds to them.

    Stretches are up to 1,000 runs of as many busy steps each; `overlap` is a request's mean stay as a share of
    the run, since two requests keep their gap for as long as both are there.
    """
    step = _ProducingSteps(steps, variant)
    busy = len(step.n)
    stretches = min(MOST_STRETCHES, busy)
    if stretches < LEAST_UNITS:
        return {}
    starts = np.arange(stretches, dtype=np.int64) * busy // stretches
    units = np.arange(stretches, dtype=np.int64)
    lengths = np.diff(np.append(starts, busy)).astype(np.float64)

    def estimate(values: Any, weights: Any) -> Estimate:
        return ratio_of_sums(units, np.add.reduceat(values, starts).astype(np.float64), weights, overlap)

    means = {"gap_mean": estimate(step.gap, lengths)}
    if alpha is not None:
        means["violation_share"] = estimate((step.gap > alpha).astype(np.int64), lengths)
        means["excess_mean"] = estimate(np.maximum(step.gap - alpha, 0), lengths)
    tokens = np.add.reduceat(step.n, starts).astype(np.float64)
    means["externality_per_token"] = estimate(step.n * step.highest - step.total, tokens)
    return {f"{name}{variant}": mean for name, mean in means.items()}


def estimates(steps: Any, variant: str, state: Fairness, alpha: float | None, overlap: float) -> dict[str, Estimate]:
    """Every fairness metric of one variant by its name: exact values, intervals for what is a mean over steps."""
    means = intervals(steps, variant, alpha, overlap)
    no_units: Ints = np.zeros(0, dtype=np.int64)
    by_name = {}
    for short_name, value in _exact_values(state, variant, alpha).items():
        if value is None:
            continue
        name = f"{short_name}{variant}"
        mean = means.get(name)
        by_name[name] = (
            Estimate(value, no_units, np.zeros(0))
            if mean is None
            else Estimate(value, mean.units, mean.influence, mean.overlap)
        )
    return by_name


def _exact_values(state: Fairness, variant: str, alpha: float | None) -> dict[str, float | None]:
    """The metrics' values by their names without the variant's suffix."""
    values: dict[str, float | None] = {
        "gap_mean": state.gap_mean(),
        "gap_p99": state.gap_percentile(99),
        "gap_max": state.gap_max,
        "externality": state.externality if state.busy else None,
        "externality_per_token": state.externality_per_token,
        "gap_mean_time": state.gap_mean(timed=True),
        "externality_time": state.externality_time if state.busy else None,
    }
    if alpha is not None:
        values |= values_over(state, alpha)
    if variant == DECODE:
        values |= {"makespan_steps": state.steps, "busy_steps": state.busy}
    return values


def values_over(state: Fairness, alpha: float) -> dict[str, float | None]:
    """The metrics that need an α, by their names without the variant's suffix."""
    return {
        "violation_share": state.violation_share(alpha),
        "excess_mean": state.excess_mean(alpha),
        "violation_share_time": state.violation_share(alpha, timed=True),
        "excess_mean_time": state.excess_mean(alpha, timed=True),
    }


def alpha_of(spec: RunSpec, variant: str | None = None) -> float | None:
    """The α that a run's gaps are held against: that of the spec, else of its policy, None without either.

    With a `variant`, None too where the α is the policy's own and bounds the other count.
    """
    return spec.alpha if spec.alpha is not None else alpha_of_policy(spec.policy, variant)


def alpha_of_policy(policy: str, variant: str | None = None) -> float | None:
    """The α that a policy keeps to (`isjl:alpha=100`), None where it has none (in what the `variant` counts)."""
    if variant not in (None, KV if "footprint=kv" in policy else DECODE):
        return None
    match = _ALPHA.match(policy)
    try:
        alpha = float(match[1]) if match else math.nan
    except ValueError:
        return None
    return alpha if math.isfinite(alpha) else None


def dot(a: Ints, b: Ints) -> int:
    """Σ a·b of up to two million 64-bit integers each, exactly: three limbs of 21 bits keep each sum in range."""
    mask = (1 << 21) - 1
    left = [a & mask, (a >> 21) & mask, a >> 42]
    right = [b & mask, (b >> 21) & mask, b >> 42]
    return sum(int(np.dot(x, y)) << (21 * (i + j)) for i, x in enumerate(left) for j, y in enumerate(right) if x.any())


def _says_who_produced(steps: Any, variant: str) -> bool:
    """Whether every step says how many requests produce a token, and of those what they then have."""
    import pyarrow.compute as pc

    producing = steps.column("producing")
    if producing.null_count:
        return False
    busy = pc.greater(producing, 0)
    columns = (steps.column(f"{COLUMNS[variant]}_{name}") for name in ("sum", "min", "max"))
    return not any(pc.any(pc.and_(pc.is_null(column), busy)).as_py() for column in columns)


class _ProducingSteps:
    """The steps that produce tokens: n, and the sum, least and highest of r after the step."""

    def __init__(self, rows: Any, variant: str) -> None:
        prefix = COLUMNS[variant]
        producing = integers(rows.column("producing"))
        self.busy = producing != 0
        self.n = producing[self.busy]
        self.total, least, self.highest = (
            integers(rows.column(f"{prefix}_{name}"))[self.busy] for name in ("sum", "min", "max")
        )
        # A duration that is not known weighs nothing.
        self.duration = np.maximum(nanoseconds(rows.column("duration_s"))[self.busy], 0)
        self.gap = self.highest - least
        impossible = (least > self.highest) | (self.total < self.n * least) | (self.total > self.n * self.highest)
        self.contradictions = int(np.count_nonzero(impossible))
