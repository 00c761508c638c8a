"""A latency of the run: the multiset of its values, and what each request puts into it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.measure.columns import NANOSECONDS
from harness.measure.estimate import Estimate, ratio_of_sums
from harness.measure.statistics import Floats, Ints, enough, mean_variance, weighted_percentile

# Requests beyond a percentile below which its interval would rest on a handful of them.
LEAST_ABOVE = 20

# Whole nanoseconds, or fractions of them where a time is divided.
Numbers = Ints | Floats


@dataclass(frozen=True, slots=True)
class Sample:
    """Values in ns, ascending, how often each stands, and the requests behind them.

    `cumulative` is the running sum of how often each value stands, None where each does once.
    `units` are rows of the stream, `sums` and `counts` what each adds to the multiset, `below(v)` how many of
    each request's values are at most v. A request has one value (TTFT) or many (token gaps).
    """

    values: Numbers
    cumulative: Ints | None
    units: Ints
    sums: Numbers
    counts: Ints
    below: Callable[[float], Ints]
    overlap: float = 0.0

    @classmethod
    def of(cls, rows: Ints, values: Numbers) -> Sample:
        """One value a request, in nanoseconds."""
        once = np.broadcast_to(np.int64(1), len(values))
        ascending: Any = np.sort(values)

        def below(limit: float) -> Ints:
            return np.asarray(values <= limit, dtype=np.int64)

        return cls(ascending, None, rows, values, once, below)

    @property
    def count(self) -> int:
        """How many values there are."""
        if self.cumulative is None or not len(self.cumulative):
            return len(self.values)
        return int(self.cumulative[-1])

    @property
    def maximum_s(self) -> float | None:
        """The largest value, s."""
        return float(self.values[-1]) / NANOSECONDS if self.count else None

    def percentile_s(self, percent: float) -> float | None:
        """The percentile, s; None without enough values."""
        if not enough(percent, self.count):
            return None
        return weighted_percentile(self.values, self.cumulative, percent) / NANOSECONDS

    def mean(self) -> Estimate | None:
        """The mean, s; None without a value."""
        if not self.count:
            return None
        return ratio_of_sums(self.units, self.sums / NANOSECONDS, self.counts.astype(np.float64), self.overlap)

    def percentile(self, percent: float) -> Estimate | None:
        """The percentile, s, with its influence (empty where the tail is too thin); None without enough values.

        Woodruff (1952): the share below the percentile is a mean with a block bootstrap variance, and the
        slope of the quantile function over that share's own interval carries it to the percentile.
        """
        value = self.percentile_s(percent)
        if value is None or value <= 0:
            return None
        share = percent / 100
        below = self.below(value * NANOSECONDS)
        over = self.counts * share - below
        influence = (over - over.mean()) * (len(self.units) / self.count)
        none = Estimate(value, self.units[:0], np.zeros(0))
        if np.count_nonzero(below < self.counts) < LEAST_ABOVE:
            return none
        half = 2 * math.sqrt(mean_variance(influence, self.overlap)[0])
        low, high = max(share - half, 0.0), min(share + half, 1.0)
        edges = [weighted_percentile(self.values, self.cumulative, 100 * at) for at in (low, high)]
        slope = (edges[1] - edges[0]) / NANOSECONDS / (high - low) if high > low else 0.0
        # Equal values all around the percentile say nothing of how far another draw would move it.
        return Estimate(value, self.units, influence * (slope / value), self.overlap) if slope > 0 else none
