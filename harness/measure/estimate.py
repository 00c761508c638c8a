"""A number with what every unit of the run adds to it: what intervals and comparisons are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.measure.statistics import LEAST_UNITS, LONGEST_STAY, Floats, Ints, mean_variance, t_p_value, t_quantile


@dataclass(frozen=True, slots=True)
class Estimate:
    """A positive statistic of one run and its influence function on the log scale.

    `influence` has mean 0 and one entry a unit (a request, a share of the work); the log of the statistic
    moves by their mean when the units are drawn again. `units` ascend and name them, so that the same
    request, or the same share of the work, meets itself in another arm. `overlap` is a request's mean stay
    as a share of the run, of which blocks span three; 0 where the units are stretches of time already.
    """

    value: float
    units: Ints
    influence: Floats
    overlap: float = 0.0

    @property
    def bounded(self) -> bool:
        """Whether the run is long enough for an interval: ten units, three blocks, and a value above 0."""
        return self.value > 0 and len(self.units) >= LEAST_UNITS and self.overlap <= LONGEST_STAY

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval (low, high), None where the run is too short for one."""
        if not self.bounded:
            return None
        variance, freedom = mean_variance(self.influence, self.overlap)
        half = t_quantile(freedom) * math.sqrt(variance)
        return self.value * math.exp(-half), self.value * math.exp(min(half, 700.0))


@dataclass(frozen=True, slots=True)
class Ratio:
    """B over A with its 95 % interval and the two-sided p-value of "no difference"."""

    ratio: float
    low: float
    high: float
    p: float


def ratio_of_sums(units: Ints, sums: Floats, weights: Floats, overlap: float = 0.0) -> Estimate:
    """The statistic Σ sums / Σ weights (a mean where the weights are 1), one entry of each a unit."""
    total, weight = float(sums.sum()), float(weights.sum())
    value = total / weight if weight else 0.0
    if total == 0:
        return Estimate(0.0, units, np.zeros(len(units)), overlap)
    return Estimate(value, units, (sums - value * weights) * (len(units) / total), overlap)


def within_run_ratio(a: Estimate, b: Estimate, paired: bool) -> Ratio | None:
    """B over A from one run each, None where there is no ratio or too few units.

    Paired: a unit's influence in A is taken from its influence in B before the blocks are formed, so that
    what both arms share cancels. Unpaired: the variances add, with Welch's degrees of freedom.
    """
    if a.value == b.value:
        same = np.array_equal(a.units, b.units) and np.array_equal(a.influence, b.influence)
        if a.value == 0 or same:
            return Ratio(1.0, 1.0, 1.0, 1.0)
    if not (a.bounded and b.bounded):
        return None
    if paired:
        variance, freedom = mean_variance(_influence_difference(a, b), max(a.overlap, b.overlap))
    else:
        (va, fa), (vb, fb) = (mean_variance(arm.influence, arm.overlap) for arm in (a, b))
        variance = va + vb
        freedom = variance**2 / (va**2 / fa + vb**2 / fb) if variance else fa + fb
    return log_ratio(math.log(b.value / a.value), variance, freedom)


def repeats_ratio(pairs: list[tuple[float, float]]) -> Ratio | None:
    """B over A from two or more paired repeats (a, b), all above 0: Student's t on the log ratios."""
    if pairs and all(a == b for a, b in pairs):
        return Ratio(1.0, 1.0, 1.0, 1.0)
    if len(pairs) < 2 or any(a <= 0 or b <= 0 for a, b in pairs):
        return None
    logs = np.array([math.log(b / a) for a, b in pairs])
    return log_ratio(float(logs.mean()), float(logs.var(ddof=1)) / len(logs), len(logs) - 1)


def log_ratio(log: float, variance: float, freedom: float) -> Ratio:
    """The ratio, interval and p-value of a log ratio with its variance and degrees of freedom."""
    # Below this the spread is the rounding of the arithmetic, and equal repeats would look infinitely sure.
    error = math.sqrt(max(variance, 1e-24))
    half = min(t_quantile(freedom) * error, 300.0)
    return Ratio(math.exp(log), math.exp(log - half), math.exp(log + half), t_p_value(log / error, freedom))


def _influence_difference(a: Estimate, b: Estimate) -> Floats:
    """The influence of B minus that of A over the units that either has."""
    if np.array_equal(a.units, b.units):
        return b.influence - a.influence
    units = np.union1d(a.units, b.units)
    difference = np.zeros(len(units))
    for arm, sign in ((a, -1.0), (b, 1.0)):
        scale = sign * len(units) / len(arm.units)
        np.add.at(difference, np.searchsorted(units, arm.units), scale * arm.influence)
    return difference
