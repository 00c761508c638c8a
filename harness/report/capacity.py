"""The highest load at which limits hold: a ladder of loads, searched by bisection, with an interval over repeats.

Latency is taken to grow with load. The ladder is the same whoever climbs it, so that two policies and two searches meet
at the same loads, on the same requests, and what was run once is found again.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from harness.measure.estimate import Ratio, repeats_ratio
from harness.measure.repeats import holm
from harness.measure.statistics import CONFIDENCE, t_quantile
from harness.report.words import BETTER, NO_DIFFERENCE, NOT_TESTED, WORSE

# From one request in a quarter of an hour to a million a second; from one in flight to a million.
_LOWEST_RATE, _HIGHEST = 1e-3, 1e6
# A factor between two loads in the first, coarse part of the search.
_COARSE_UP, _COARSE_DOWN = 2.0, 4.0
# Of a load that is none to serve.
BEYOND = math.inf


def ladder(axis: str, precision: float) -> tuple[float, ...]:
    """All loads that may be tried, ascending, each `precision` (a share) above the one before it.

    `axis` is rate (four digits) or concurrency (whole numbers, each once).
    """
    step = math.log1p(precision)
    if axis == "concurrency":
        count = math.ceil(math.log(_HIGHEST) / step)
        return tuple(float(one) for one in sorted({max(1, round(math.exp(k * step))) for k in range(count + 1)}))
    low, high = (math.ceil(math.log(bound) / step) for bound in (_LOWEST_RATE, _HIGHEST))
    return tuple(sorted({float(f"{math.exp(k * step):.4g}") for k in range(low, high)}))


@dataclass(frozen=True, slots=True)
class Tried:
    """What a load gave: `excess` is log(value / limit), a row a repeat, an entry a limit; BEYOND where none is kept.

    `why` says what kept the load from being met, empty where it was met.
    """

    excess: tuple[tuple[float, ...], ...]
    why: str = ""

    @property
    def met(self) -> bool:
        """Whether every limit holds, by the geometric mean over the repeats."""
        return all(BEYOND not in one and math.fsum(one) <= 0 for one in zip(*self.excess, strict=True))

    @property
    def worst(self) -> tuple[float, ...]:
        """Each repeat's excess over the limit that it passes the most, or comes nearest to."""
        return tuple(map(max, self.excess))


@dataclass(slots=True)
class Search:
    """One policy's search on a ladder: `tried` by place on it. `most` is the last place that may be tried."""

    loads: tuple[float, ...]
    start: int
    most: int
    tried: dict[int, Tried] = field(default_factory=dict)

    def next_place(self) -> int | None:
        """The place to try next; None where the search has ended.

        First up by factors of two (down by four) until one load is met and another is not; then the middle between
        them, until they are neighbours; then the same for each repeat by itself.
        """
        if not self.tried:
            return self.start
        place = self._between({at: one.met for at, one in self.tried.items()})
        if place is not None:
            return place
        for repeat in range(self._repeats):
            place = self._between({at: one.worst[repeat] <= 0 for at, one in self.tried.items()})
            if place is not None:
                return place
        return None

    @property
    def _repeats(self) -> int:
        return min(len(one.excess) for one in self.tried.values())

    def bracket(self) -> tuple[int | None, int | None]:
        """The places of the highest load that is met below all that are not, and of the lowest that is not."""
        return _bracket({at: one.met for at, one in self.tried.items()})

    def of_repeats(self) -> list[float | None]:
        """Each repeat's own capacity, between two loads where its excess crosses 0; None where it was not crossed."""
        return [self._crossing(repeat) for repeat in range(self._repeats)] if self.tried else []

    def met_again(self) -> float | None:
        """The highest load that was met above one that was not: latency did not grow with load there."""
        _, unmet = self.bracket()
        above = [at for at, one in self.tried.items() if one.met and unmet is not None and at > unmet]
        return self.loads[max(above)] if above else None

    def _between(self, met: Mapping[int, bool]) -> int | None:
        low, high = _bracket(met)
        if high is None:
            assert low is not None
            return None if low >= self.most else min(self.most, self._times(low, _COARSE_UP))
        if low is None:
            return None if high <= 0 else max(0, self._times(high, 1 / _COARSE_DOWN))
        return (low + high) // 2 if high - low > 1 else None

    def _times(self, place: int, factor: float) -> int:
        wanted = self.loads[place] * factor
        found = bisect.bisect_left(self.loads, wanted)
        return max(found, place + 1) if factor > 1 else min(found, place - 1)

    def _crossing(self, repeat: int) -> float | None:
        low, high = _bracket({at: one.worst[repeat] <= 0 for at, one in self.tried.items()})
        if low is None or high is None:
            return None
        below, above = self.tried[low].worst[repeat], self.tried[high].worst[repeat]
        if not (math.isfinite(above) and math.isfinite(below)):
            return self.loads[low]
        share = below / (below - above)
        return float(self.loads[low] * (self.loads[high] / self.loads[low]) ** share)


def _bracket(met: Mapping[int, bool]) -> tuple[int | None, int | None]:
    high = min((at for at, holds in met.items() if not holds), default=None)
    below = [at for at, holds in met.items() if holds and (high is None or at < high)]
    return (max(below) if below else None), high


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a search found: `value` with its 95 % interval, and the loads that enclose it.

    `met` is the highest load that was tried and met, `unmet` the lowest that was not; None where there is none.
    `value` is the geometric mean of the repeats' own crossings; of one repeat, or where one did not cross, `met`.
    """

    value: float | None
    low: float | None
    high: float | None
    met: float | None
    unmet: float | None
    of_repeats: tuple[float | None, ...]


def capacity_of(search: Search) -> Capacity:
    """The capacity that a search found: Student's t on the logs of the repeats' own."""
    low, high = search.bracket()
    met = None if low is None else search.loads[low]
    unmet = None if high is None else search.loads[high]
    each = search.of_repeats()
    crossed = list(takewhile(lambda one: one is not None, each))
    if met is None or len(each) < 2 or len(crossed) < len(each):
        return Capacity(met, None, None, met, unmet, tuple(each))
    logs = np.log(np.array(crossed, dtype=np.float64))
    middle, n = float(logs.mean()), len(logs)
    half = t_quantile(n - 1) * float(logs.std(ddof=1)) / math.sqrt(n)
    return Capacity(math.exp(middle), math.exp(middle - half), math.exp(middle + half), met, unmet, tuple(each))


def capacity_ratio(a: Capacity, b: Capacity) -> Ratio | None:
    """B over A by paired repeats; None where there are fewer than two or one has no capacity of its own."""
    pairs = [(x, y) for x, y in zip(a.of_repeats, b.of_repeats, strict=True) if x is not None and y is not None]
    return repeats_ratio(pairs) if len(pairs) == len(a.of_repeats) >= 2 else None


# Two repeats have a spread, and hardly more than that.
LEAST_REPEATS = 3


def capacity_words(ratios: Sequence[Ratio | None], repeats: int) -> list[str]:
    """The word for each arm against the first, Holm's correction over all; not tested below three repeats."""
    tested = [place for place, ratio in enumerate(ratios) if ratio is not None and repeats >= LEAST_REPEATS]
    words = [NOT_TESTED] * len(ratios)
    adjusted = holm([ratio.p for place in tested if (ratio := ratios[place]) is not None])
    for place, p in zip(tested, adjusted, strict=True):
        ratio = ratios[place]
        if ratio is not None:
            words[place] = NO_DIFFERENCE if p >= 1 - CONFIDENCE else BETTER if ratio.ratio > 1 else WORSE
    return words
