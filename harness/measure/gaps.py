"""The gaps between a request's tokens, exactly, from its own list or from the steps it decoded in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.measure.arrivals import Arrivals
from harness.measure.columns import MISSING, Requests, integers, nanoseconds
from harness.measure.sample import Sample
from harness.measure.statistics import Ints


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Gaps, ns, and how often each stands; of each request how many it has, their sum, and how many are at most v."""

    values: Any
    times: Ints
    counts: Ints
    sums: Ints
    below: Callable[[float], Ints]


def token_gaps(requests: Requests, arrivals: Arrivals, steps: Any | None) -> Sample:
    """Every gap between two tokens of every completed request, ns.

    A request with a list of gaps has those, each shared among the tokens that came at its end; one that was held back
    has none. Where the list is null and `steps` are given (a virtual run),
    its tokens come at first_token_s and then at the end of every later step with decodes, up to
    last_token_s: a request that was never preempted decodes in all of them.
    """
    followed, listed = _followed_gaps(requests, arrivals, steps), _listed_gaps(requests, arrivals)
    values = np.concatenate((followed.values, listed.values))
    times = np.concatenate((followed.times, listed.times))
    order = np.argsort(values, kind="stable")
    order = order[times[order] > 0]
    counts = followed.counts + listed.counts
    units = np.flatnonzero(counts)
    return Sample(
        values=values[order],
        cumulative=np.cumsum(times[order]),
        units=requests.row[units],
        sums=(followed.sums + listed.sums)[units].astype(np.float64),
        counts=counts[units],
        below=lambda limit: (followed.below(limit) + listed.below(limit))[units],
    )


def _listed_gaps(requests: Requests, arrivals: Arrivals) -> _Gaps:
    """The gaps that requests bring a list of."""
    n = len(requests)
    shown = (requests.completed & ~arrivals.held_back)[arrivals.parent]
    parent, tokens, gaps = arrivals.parent[shown], arrivals.tokens[shown], arrivals.gaps[shown]
    values: Any = gaps if (tokens == 1).all() else gaps / tokens
    counts, sums = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    np.add.at(counts, parent, tokens)
    np.add.at(sums, parent, gaps)

    def below(limit: float) -> Ints:
        small = np.zeros(n, dtype=np.int64)
        np.add.at(small, parent[values <= limit], tokens[values <= limit])
        return small

    return _Gaps(values, tokens, counts, sums, below)


def _followed_gaps(requests: Requests, arrivals: Arrivals, steps: Any | None) -> _Gaps:
    """The gaps of requests without a list, from the ends of the steps that they decode in."""
    n = len(requests)
    ends = np.zeros(0, dtype=np.int64) if steps is None else decode_ends(steps)
    start, stop = follow_steps(requests, ends, ~arrivals.listed)
    counts = stop - start
    following = np.flatnonzero(counts)
    start, stop = start[following], stop[following]
    first_gaps = ends[start] - requests.first[following]
    between = np.diff(ends)
    sums = np.zeros(n, dtype=np.int64)
    sums[following] = ends[stop - 1] - requests.first[following]

    # How many requests see each gap between two steps' ends: they come and go, so a running sum counts them.
    change = np.zeros(len(ends) + 1, dtype=np.int64)
    np.add.at(change, start, 1)
    np.add.at(change, stop - 1, -1)
    seen = np.cumsum(change)[: len(between)]

    def below(limit: float) -> Ints:
        small_so_far = np.concatenate(([0], np.cumsum(between <= limit)))
        small = np.zeros(n, dtype=np.int64)
        small[following] = (first_gaps <= limit) + small_so_far[stop - 1] - small_so_far[start]
        return small

    values = np.concatenate((first_gaps, between))
    times = np.concatenate((np.ones(len(following), dtype=np.int64), seen))
    return _Gaps(values, times, counts, sums, below)


def decode_ends(steps: Any) -> Ints:
    """The ends of the steps that decode, ns, ascending."""
    decodes = integers(steps.column("decode_requests")) > 0
    return np.sort((nanoseconds(steps.column("t_s")) + nanoseconds(steps.column("duration_s")))[decodes])


def follow_steps(requests: Requests, ends: Ints, without_list: Any) -> tuple[Ints, Ints]:
    """The range [start, stop) of `ends` at which a request's tokens after its first come; empty if none do."""
    timed = requests.completed & without_list & (requests.first != MISSING) & (requests.last != MISSING)
    start = np.zeros(len(requests), dtype=np.int64)
    stop = np.zeros(len(requests), dtype=np.int64)
    start[timed] = np.searchsorted(ends, requests.first[timed], side="right")
    stop[timed] = np.maximum(np.searchsorted(ends, requests.last[timed], side="right"), start[timed])
    return start, stop
