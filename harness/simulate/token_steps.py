"""The token-step model: what every step holds, from the starts and lengths of an offline schedule.

Step t covers [t, t + 1). Request i holds a slot from its start s_i for o_i steps and gives a token in each, so
in step t it has r_i = t − s_i + 1 tokens after the step. Between two steps in which somebody starts or ends
nothing changes but t: a schedule is kept as these segments, and all is exact integers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from workloads.core.trace import Floats, Ints


@dataclass(frozen=True, slots=True)
class Segments:
    """Stretches of steps [begin, end) with the same requests; each array has an entry a segment.

    `n` requests hold a slot, `started` have started by then. With s their starts and p their prompts (tokens):
    `start_sum`, `start_min`, `start_max` are of s; `base_sum`, `base_min`, `base_max` of p − s.
    """

    begin: Ints
    end: Ints
    n: Ints
    started: Ints
    start_sum: Ints
    start_min: Ints
    start_max: Ints
    base_sum: Ints
    base_min: Ints
    base_max: Ints

    @property
    def steps(self) -> int:
        """T, the makespan."""
        return int(self.end[-1])


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all steps: T = `steps`, O = `tokens`, Q = `resource`, E = `externality`; the gap is max r − min r."""

    steps: int
    tokens: int
    resource: int
    externality: int
    gap_sum: int
    gap_max: int

    def profit(self, price: float, step_cost: float, token_cost: float) -> float:
        """Π = ρ0·O − τQ − cT − τE."""
        return price * self.tokens - token_cost * (self.resource + self.externality) - step_cost * self.steps


def segments_of(starts: Ints, lengths: Ints, prompts: Ints, slots: int) -> Segments:
    """The segments of a schedule; asserts that it never holds more than `slots` requests nor none."""
    ends = starts + lengths
    times = np.unique(np.concatenate((starts, ends)))
    m = len(times) - 1
    enter, leave = np.searchsorted(times, starts), np.searchsorted(times, ends)

    def running(values: Ints) -> Ints:
        change = np.zeros(m + 1, dtype=np.int64)
        np.add.at(change, enter, values)
        np.subtract.at(change, leave, values)
        return np.cumsum(change)[:m]

    n = running(np.ones(len(starts), dtype=np.int64))
    assert times[0] == 0
    assert n.min() >= 1
    assert n.max() <= slots
    base = prompts - starts
    return Segments(
        begin=times[:-1],
        end=times[1:],
        n=n,
        started=np.cumsum(np.bincount(enter, minlength=m))[:m],
        start_sum=running(starts),
        start_min=_least(starts, enter, leave, m),
        start_max=-_least(-starts, enter, leave, m),
        base_sum=running(base),
        base_min=_least(base, enter, leave, m),
        base_max=-_least(-base, enter, leave, m),
    )


def _least(values: Ints, enter: Ints, leave: Ints, m: int) -> Ints:
    """The least value among those present in each of m segments; each is present in [enter, leave)."""
    order = np.argsort(enter, kind="stable")
    coming = iter(zip(enter[order].tolist(), values[order].tolist(), leave[order].tolist(), strict=True))
    following: tuple[int, int, int] | None = next(coming)
    heap: list[tuple[int, int]] = []
    least = np.empty(m, dtype=np.int64)
    for segment in range(m):
        while following is not None and following[0] == segment:
            heapq.heappush(heap, following[1:])
            following = next(coming, None)
        while heap[0][1] <= segment:
            heapq.heappop(heap)
        least[segment] = heap[0][0]
    return least


def totals_of(segments: Segments, lengths: Ints) -> Totals:
    """The sums over all steps; asserts Σ n·max r = Q + E, hence the profit identity, in integers.

    Q is taken from the lengths, Q = Σ o(o + 1)/2, and E from the steps.
    """
    begin, end, n = segments.begin, segments.end, segments.n
    width = end - begin
    ticks = (begin + end + 1) * width // 2  # Σ (t + 1) over the segment
    most = ticks - segments.start_min * width
    summed = n * ticks - segments.start_sum * width
    gap = segments.start_max - segments.start_min
    tokens, resource = int(lengths.sum()), int((lengths * (lengths + 1) // 2).sum())
    externality = int((n * most - summed).sum())
    assert int((n * width).sum()) == tokens
    assert int((n * most).sum()) == resource + externality
    return Totals(segments.steps, tokens, resource, externality, int((gap * width).sum()), int(gap.max()))


@dataclass(frozen=True, slots=True)
class StepTime:
    """What a step takes: c + τ·n·max r + k·max r, seconds; c, τ and k in s, s/token, s/token."""

    c: float
    tau: float
    k: float

    def seconds(self, n: Ints, most: Ints) -> Floats:
        """The time of steps with n requests and a longest of `most`."""
        return np.asarray(self.c + self.tau * (n * most) + self.k * most)

    def nanoseconds(self, n: Ints, most: Ints) -> Ints:
        """The same, rounded once to whole ns, at least 1."""
        return np.maximum(np.rint(self.seconds(n, most) * 1e9), 1).astype(np.int64)


def blocks(segments: Segments, size: int) -> Iterator[tuple[Ints, Ints]]:
    """All steps in blocks of at most `size`: their numbers t, and the segment of each."""
    for first in range(0, segments.steps, size):
        t = np.arange(first, min(first + size, segments.steps), dtype=np.int64)
        yield t, np.searchsorted(segments.end, t, side="right")
