"""What repeats of whole runs show: differences with the spread between runs, and how many repeats would show more."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.measure.statistics import CONFIDENCE, Floats, t_p_value, t_quantile

# Below this share of a value the spread is the rounding of the arithmetic: equal repeats would look infinitely sure.
ROUNDING = 1e-12
# Where pairs spread more than runs of equals do, at this level, the equals know less than the pairs and are left out.
POOLING = 0.10
# More repeats than this are no plan.
MOST_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class Shift:
    """The mean of B - A over paired repeats: its standard error, degrees of freedom and two-sided p-value.

    `deviation` is that of one pair. `pooled` says whether runs of equals had their part in it.
    """

    mean: float
    error: float
    freedom: int
    deviation: float
    p: float
    pooled: bool = False

    def half(self, share: float = 1.0) -> float:
        """Half of the 95 % interval: what could have been shown; `share` of the other 5 % may be left outside."""
        return t_quantile(self.freedom, share) * self.error


def shift_of(differences: Sequence[float], equals: Sequence[Sequence[float]] = (), scale: float = 1.0) -> Shift | None:
    """Student's t on paired differences, None where nothing tells how runs spread.

    `equals` holds, a group for each stream, the values of runs of one policy on it (A/A): twice their variance is that
    of a difference, and joins the pairs' own, weighted by degrees of freedom. `scale` is the size of the values.
    """
    values = np.array(differences, dtype=np.float64)
    if not len(values) or not np.isfinite(values).all():
        return None
    own, freedom = (float(values.var(ddof=1)), len(values) - 1) if len(values) > 1 else (0.0, 0)
    groups = [np.array(group, dtype=np.float64) for group in equals if len(group) > 1]
    more = sum(len(group) - 1 for group in groups)
    pooled = False
    if more:
        between = 2 * sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / more
        if not freedom or not _spread_more(own, freedom, between, more):
            own = (freedom * own + more * between) / (freedom + more)
            freedom, pooled = freedom + more, True
    if not freedom:
        return None
    deviation = max(math.sqrt(own), ROUNDING * max(scale, 1e-300))
    error = deviation / math.sqrt(len(values))
    mean = float(values.mean())
    p = 1.0 if not values.any() else t_p_value(mean / error, freedom)
    return Shift(mean, error, freedom, deviation, p, pooled)


def _spread_more(own: float, freedom: int, between: float, more: int) -> bool:
    """Whether pairs spread more than twice the variance of equals explains (an F test)."""
    from scipy.special import fdtrc

    return between == 0 < own or (between > 0 and float(fdtrc(freedom, more, own / between)) < POOLING)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted so that one false word in all of them is as rare as in one (Holm, 1979)."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, so_far = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = so_far
    return adjusted


def repeats_for(half: float, deviation: float, more: int = 0) -> int | None:
    """The fewest paired repeats whose 95 % interval is no wider than ± `half`, None beyond MOST_REPEATS.

    `deviation` is that of one pair, `more` the degrees of freedom that runs of equals add.
    """
    return next(
        (n for n in _counts() if n - 1 + more and t_quantile(n - 1 + more) * deviation / math.sqrt(n) <= half), None
    )


def power(effect: float, deviation: float, repeats: int, level: float = 1 - CONFIDENCE) -> float:
    """How often an effect of this size is shown by so many paired repeats, at a two-sided level (noncentral t)."""
    from scipy.special import nctdtr, stdtrit

    if repeats < 2:
        return 0.0
    critical = float(stdtrit(repeats - 1, 1 - level / 2))
    if deviation <= 0:
        return 1.0 if effect else level
    centre = abs(effect) / (deviation / math.sqrt(repeats))
    if centre > 30:
        # The noncentral t is as good as certain there, and its series slow.
        return 1.0
    return float(1 - nctdtr(repeats - 1, centre, critical) + nctdtr(repeats - 1, centre, -critical))


def repeats_to_show(effect: float, deviation: float, wanted: float, level: float = 1 - CONFIDENCE) -> int | None:
    """The fewest paired repeats that show an effect in the share `wanted` of cases, None beyond MOST_REPEATS."""
    return next((n for n in _counts() if n > 1 and power(effect, deviation, n, level) >= wanted), None)


def _counts() -> range:
    return range(1, MOST_REPEATS + 1)


def dunnett(baseline: Sequence[float], arms: Sequence[Sequence[float]]) -> list[float]:
    """p-values of every arm against the baseline, two-sided, for the best of all of them (Dunnett, 1955).

    One value a repeat, the n-th of every arm on the same stream: the repeats are blocks, whose effect is taken out
    before the common variance is estimated with arms x (repeats - 1) degrees of freedom.
    """
    table = np.array([baseline, *arms], dtype=np.float64)
    treatments, blocks = len(table) - 1, table.shape[1]
    if blocks < 2 or treatments < 1:
        return [1.0] * treatments
    rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    freedom = treatments * (blocks - 1)
    size = float(np.abs(table).max())
    variance = max(float((rest**2).sum()) / freedom, (ROUNDING * size) ** 2, 1e-300)
    shifts = table[1:].mean(axis=1) - table[0].mean()
    return [_beyond(abs(float(shift)) / math.sqrt(2 * variance / blocks), treatments, freedom) for shift in shifts]


@functools.cache
def _legendre() -> tuple[Floats, Floats]:
    """Nodes and weights of an integral from -1 to 1; they take longer than all that they are used for."""
    nodes, weights = np.polynomial.legendre.leggauss(128)
    return nodes, weights


def _beyond(t: float, arms: int, freedom: int) -> float:
    """P(the largest of |t_i| > t) for arms that share a baseline of their own size: t_i correlate by one half.

    t_i = (z_i - z_0) / (sqrt(2) s): the integral over z_0 (normal) and s (chi over root freedom), both on a grid.
    """
    from scipy.special import gammaln, ndtr

    if t == 0:
        return 1.0
    nodes, weights = _legendre()
    z0 = 8.5 * nodes
    at_z0 = 8.5 * weights * np.exp(-(z0**2) / 2) / math.sqrt(2 * math.pi)
    # All of the mass of s lies within nine deviations of one.
    wide = 9 / math.sqrt(2 * freedom)
    low, high = max(0.0, 1 - wide), 1 + wide
    s = (high + low) / 2 + (high - low) / 2 * nodes
    half = freedom / 2
    log_density = math.log(2) + half * math.log(half) - float(gammaln(half)) + (freedom - 1) * np.log(s) - half * s**2
    at_s: Floats = (high - low) / 2 * weights * np.exp(log_density)
    reach = math.sqrt(2) * t * s[:, None]
    inside = (ndtr(z0 + reach) - ndtr(z0 - reach)) ** arms @ at_z0
    return float(min(1.0, max(0.0, 1 - inside @ at_s)))
