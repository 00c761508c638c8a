"""Waiting requests on shelves by the output to expect, for whoever asks for the longest below a bound."""

from __future__ import annotations

import enum
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from heapq import merge

from policies.core import WaitingRequest


class Place(enum.Enum):
    """Where a candidate is."""

    SHELF = 0
    FRONT = 1  # preempted
    LEADER = 2  # with a slot reserved for it
    GONE = 3  # started or aborted


@dataclass(slots=True, eq=False)
class Candidate:
    """A waiting request and what a guard reckons with.

    `expected` is the output to expect and `prefill_tokens` what its prefill computes, tokens. `start` is its count
    (output tokens, or KV footprint) when its prefill is done, which gives a token. `since` is the clock at which it
    came, `number` its place in the order of arrival.
    """

    request: WaitingRequest
    expected: int
    prefill_tokens: int
    start: int
    since: int
    number: int
    place: Place = Place.SHELF


class Shelf:
    """Candidates by the output to expect, those of one length in the order in which they came.

    Lengths are whole numbers and few are distinct, so one sorted list of them and a queue for each make every call
    cost O(log n) but for a short move within that list.
    """

    __slots__ = ("_lengths", "_waiting")

    def __init__(self) -> None:
        self._lengths: list[int] = []
        # Length -> who waits with it, by request id. Ordered by their own links: a plain dict searches for its first
        # key through all that were taken before it.
        self._waiting: dict[int, OrderedDict[Hashable, Candidate]] = {}

    def __bool__(self) -> bool:
        return bool(self._lengths)

    def add(self, candidate: Candidate, ahead: bool = False) -> None:
        """Puts it behind those of its length, or ahead of them."""
        waiting = self._waiting.get(candidate.expected)
        if waiting is None:
            insort(self._lengths, candidate.expected)
            waiting = self._waiting[candidate.expected] = OrderedDict()
        waiting[candidate.request.request_id] = candidate
        if ahead:
            waiting.move_to_end(candidate.request.request_id, last=False)

    def remove(self, candidate: Candidate) -> None:
        """Takes it out."""
        waiting = self._waiting[candidate.expected]
        del waiting[candidate.request.request_id]
        if not waiting:
            del self._waiting[candidate.expected]
            del self._lengths[bisect_right(self._lengths, candidate.expected) - 1]

    def longest(self, bound: int, above: int = -1) -> Iterator[Candidate]:
        """Those of at most `bound` and more than `above`, longest first."""
        lengths = self._lengths
        first, last = bisect_right(lengths, bound) - 1, bisect_right(lengths, above)
        for place in range(first, last - 1, -1):
            yield from self._waiting[lengths[place]].values()


class Shelves:
    """All that wait and have no slot reserved, by the output to expect; with `kv` also by the size of their prompt.

    `alpha` is the guard's: a few sizes of prompt span what it lets in, and most with one of them pass it.
    """

    __slots__ = ("_all", "_near", "_prompts_a_shelf")

    def __init__(self, alpha: int, kv: bool) -> None:
        self._all = Shelf()
        # The same candidates on a shelf for each span of prompts, where those are asked for.
        self._near: dict[int, Shelf] | None = {} if kv else None
        self._prompts_a_shelf = alpha // 3 + 1

    def add(self, candidate: Candidate, ahead: bool = False) -> None:
        """Puts it behind those of its length, or ahead of them."""
        candidate.place = Place.SHELF
        self._all.add(candidate, ahead)
        if self._near is not None:
            span = candidate.request.num_prompt_tokens // self._prompts_a_shelf
            self._near.setdefault(span, Shelf()).add(candidate, ahead)

    def remove(self, candidate: Candidate) -> None:
        """Takes it out."""
        self._all.remove(candidate)
        if self._near is not None:
            span = candidate.request.num_prompt_tokens // self._prompts_a_shelf
            self._near[span].remove(candidate)
            if not self._near[span]:
                del self._near[span]

    def longest(self, bound: int, above: int = -1) -> Iterator[Candidate]:
        """Those of an expected output of at most `bound` and more than `above`, longest first."""
        return self._all.longest(bound, above)

    def near_prompts(self, least: int, most: int, bound: int, above: int = -1) -> Iterator[Candidate]:
        """The same of those with about these prompts, tokens: all within `least` and `most`, and some beside."""
        assert self._near is not None
        spans = range(max(0, least) // self._prompts_a_shelf, max(0, most) // self._prompts_a_shelf + 1)
        near = [self._near[span].longest(bound, above) for span in spans if span in self._near]
        return merge(*near, key=lambda candidate: (-candidate.expected, candidate.number))
