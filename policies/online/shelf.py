"""Waiting requests on shelves by the length to expect, for whoever asks for the longest below a bound."""

from __future__ import annotations

import enum
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from policies.core import Waiting


class Place(enum.Enum):
    """Where an entry is."""

    SHELF = 0
    FRONT = 1  # preempted
    LEADER = 2  # with a slot reserved for it
    GONE = 3  # started or aborted


@dataclass(slots=True, eq=False)
class Entry:
    """A waiting request and what a guard reckons with.

    `length` is the output to expect and `tokens` what its prefill computes. `start` is its count (output tokens,
    or KV footprint) when its prefill is done, which gives a token. `since` is the clock at which it came, `number`
    its place in the order of arrival.
    """

    one: Waiting
    length: int
    tokens: int
    start: int
    since: int
    number: int
    place: Place = Place.SHELF


class Shelf:
    """Entries by length, those of one length in the order in which they came.

    Lengths are whole numbers and few are distinct, so one sorted list of them and a line for each make every call
    cost O(log n) but for a short move within that list.
    """

    __slots__ = ("_lengths", "_lines")

    def __init__(self) -> None:
        self._lengths: list[int] = []
        # Ordered by their own links: a plain dict searches for its first key through all that were taken before it.
        self._lines: dict[int, OrderedDict[Hashable, Entry]] = {}

    def __bool__(self) -> bool:
        return bool(self._lengths)

    def add(self, entry: Entry, ahead: bool = False) -> None:
        """Puts it behind those of its length, or ahead of them."""
        line = self._lines.get(entry.length)
        if line is None:
            insort(self._lengths, entry.length)
            line = self._lines[entry.length] = OrderedDict()
        line[entry.one.request] = entry
        if ahead:
            line.move_to_end(entry.one.request, last=False)

    def remove(self, entry: Entry) -> None:
        """Takes it out."""
        line = self._lines[entry.length]
        del line[entry.one.request]
        if not line:
            del self._lines[entry.length]
            del self._lengths[bisect_right(self._lengths, entry.length) - 1]

    def longest(self, bound: int, above: int = -1) -> Iterator[Entry]:
        """Those of at most `bound` and more than `above`, longest first."""
        lengths = self._lengths
        for i in range(bisect_right(lengths, bound) - 1, bisect_right(lengths, above) - 1, -1):
            yield from self._lines[lengths[i]].values()
