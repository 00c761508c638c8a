"""The gaps between a request's tokens, exactly, from its own list or from the steps it decoded in."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.measure.arrivals import Arrivals
from harness.measure.columns import MISSING, Requests, integers, nanoseconds
from harness.measure.sample import Sample
from harness.measure.statistics import Ints


def token_gaps(requests: Requests, arrivals: Arrivals, steps: Any | None) -> Sample:
    """Every gap between two tokens of every completed request, ns.

    A request with a list of gaps has those, each shared among the tokens that came at its end; one that was held back
    has none. Where the list is null and `steps` are given (a virtual run),
    its tokens come at first_token_s and then at the end of every later step with decodes, up to
    last_token_s: a request that was never preempted decodes in all of them.
    """
    n = len(requests)
    shown = ~arrivals.held_back[arrivals.parent]
    listed, parent, tokens = arrivals.listed, arrivals.parent[shown], arrivals.tokens[shown]
    gaps = arrivals.gaps[shown]
    flat: Any = gaps if (tokens == 1).all() else gaps / tokens
    ends = np.zeros(0, dtype=np.int64) if steps is None else decode_ends(steps)
    start, stop = follow_steps(requests, ends, ~listed)
    following = np.flatnonzero(stop > start)
    first_gap = np.zeros(n, dtype=np.int64)
    first_gap[following] = ends[start[following]] - requests.first[following]
    between = np.diff(ends)

    # How many requests see each gap between two steps' ends: they come and go, so a running sum counts them.
    change = np.zeros(len(ends) + 1, dtype=np.int64)
    np.add.at(change, start[following], 1)
    np.add.at(change, stop[following] - 1, -1)
    seen = np.cumsum(change)[: len(between)]

    counts = stop - start
    sums = np.zeros(n, dtype=np.int64)
    sums[following] = ends[stop[following] - 1] - requests.first[following]
    own = np.zeros(n, dtype=np.int64)
    np.add.at(own, parent, tokens)
    counts = counts + own
    np.add.at(sums, parent, gaps)

    values = np.concatenate((first_gap[following], between, flat))
    times = np.concatenate((np.ones(len(following), dtype=np.int64), seen, tokens))
    order = np.argsort(values, kind="stable")
    order = order[times[order] > 0]
    units = np.flatnonzero(counts)

    def below(limit: float) -> Ints:
        small = np.concatenate(([0], np.cumsum(between <= limit)))
        out = np.zeros(n, dtype=np.int64)
        np.add.at(out, parent[flat <= limit], tokens[flat <= limit])
        out[following] += first_gap[following] <= limit
        out[following] += small[stop[following] - 1] - small[start[following]]
        return out[units]

    return Sample(
        values=values[order],
        cumulative=np.cumsum(times[order]),
        units=requests.row[units],
        sums=sums[units].astype(np.float64),
        counts=counts[units],
        below=below,
    )


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
