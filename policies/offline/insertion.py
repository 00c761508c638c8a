"""Inserting short requests into a batch of ISJL: who waits, how much room each slot has, which slot takes whom."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from operator import neg


class Shorts:
    """Which of the short requests still wait; they begin at `first` of `sizes`, the longest first.

    `then` leads from a place to the next that may still wait (union-find): a place that waits leads to itself.
    """

    def __init__(self, sizes: list[int], first: int) -> None:
        self.first = first
        self.end = len(sizes)
        self.sizes = sizes
        self.then = list(range(len(sizes) + 1))

    def find(self, place: int) -> int:
        """The first that waits at or after `place`; `end` where none does."""
        then = self.then
        while then[place] != place:
            then[place] = then[then[place]]
            place = then[place]
        return place

    def longest_that_fits(self, room: int, place: int) -> int:
        """The longest of at most `room` that waits, at or after `place`."""
        return self.find(bisect_left(self.sizes, -room, place, key=neg))

    def left(self) -> list[int]:
        """All that still wait, longest first."""
        return [place for place in range(self.first, self.end) if self.then[place] == place]


@dataclass(slots=True)
class Batch:
    """A batch under way: leaders on slots 0 … M−1; `origin` − `room` is when a slot's next short would start."""

    leaders: range
    room: list[int]
    origin: list[int]
    closes_at: int  # a slot without leader takes no more below this room
    latest: int  # last start of a short on a slot without leader


def into_most_room(shorts: Shorts, batch: Batch, starts: list[int]) -> None:
    """Each short, longest first, on the slot with most room; of equals the lowest."""
    room, origin, leaders = batch.room, batch.origin, len(batch.leaders)
    slots = len(room)
    # One integer a slot: less is more room, then a lower slot.
    heap = [slot - left * slots for slot, left in enumerate(room) if slot < leaders or left >= batch.closes_at]
    heapify(heap)
    sizes, then, end = shorts.sizes, shorts.then, shorts.end
    place = shorts.find(shorts.first)
    while place < end and heap:
        key = heap[0]
        slot = key % slots
        left = room[slot]
        size = sizes[place]
        if size > left:
            place = shorts.longest_that_fits(left, place)
            continue
        start = starts[place] = origin[slot] - left
        left -= size
        room[slot] = left
        if slot < leaders or _stays_open(batch, start, left):
            heapreplace(heap, key + size * slots)
        else:
            heappop(heap)
        then[place] = place + 1
        place = shorts.find(place + 1)


def into_tightest(shorts: Shorts, batch: Batch, starts: list[int]) -> None:
    """Each short, longest first, on the slot with the least room that takes it; of equals the lowest."""
    room, origin, leaders = batch.room, batch.origin, len(batch.leaders)
    slots = len(room)
    keys = sorted(left * slots + slot for slot, left in enumerate(room) if slot < leaders or left >= batch.closes_at)
    sizes, then, end = shorts.sizes, shorts.then, shorts.end
    place = shorts.find(shorts.first)
    while place < end and keys:
        size = sizes[place]
        at = bisect_left(keys, size * slots)
        if at == len(keys):
            place = shorts.longest_that_fits(keys[-1] // slots, place)
            continue
        key = keys.pop(at)
        slot = key % slots
        left = room[slot]
        start = starts[place] = origin[slot] - left
        left -= size
        room[slot] = left
        if slot < leaders or _stays_open(batch, start, left):
            insort(keys, key - size * slots)
        then[place] = place + 1
        place = shorts.find(place + 1)


def _stays_open(batch: Batch, start: int, left: int) -> bool:
    """Notes a short on a slot without leader; whether the slot takes more."""
    batch.latest = max(batch.latest, start)
    return left >= batch.closes_at
