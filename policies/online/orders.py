"""Waiting queues with an order of their own that the engine draws from whenever it has room."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush

from policies.core import View, Waiting

# The length to reckon with where nobody said: longer than any.
UNKNOWN = 1 << 62


def expected(one: Waiting) -> int:
    """The most output tokens that its sender expects of it."""
    return UNKNOWN if one.high is None else one.high


class Ranked:
    """Who was preempted first, the latest before the others; then by rank, the smallest first, ties as they came.

    A heap with lazy removal: every call costs O(log n) at most, but iterating sorts. SJF is the rank `expected`.
    """

    __slots__ = ("_alive", "_front", "_heap", "_pushed", "_rank")

    def __init__(self, rank: Callable[[Waiting], int]) -> None:
        self._rank = rank
        self._front: list[Waiting] = []
        self._heap: list[tuple[int, int, Waiting]] = []
        self._alive: dict[Hashable, int] = {}  # request -> its number in the order of arrival
        self._pushed = 0

    def push(self, one: Waiting) -> None:
        """A request has arrived."""
        self._pushed += 1
        self._alive[one.request] = self._pushed
        heappush(self._heap, (self._rank(one), self._pushed, one))

    def push_front(self, one: Waiting) -> None:
        """A request was preempted."""
        self._front.append(one)

    def peek(self, view: View) -> Waiting | None:
        """The first of those that wait: any may start."""
        if self._front:
            return self._front[-1]
        heap, alive = self._heap, self._alive
        while heap and alive.get(heap[0][2].request) != heap[0][1]:
            heappop(heap)
        return heap[0][2] if heap else None

    def pop(self, view: View) -> Waiting:
        """Takes the first out."""
        one = self.peek(view)
        assert one is not None
        if self._front:
            return self._front.pop()
        heappop(self._heap)
        del self._alive[one.request]
        return one

    def remove(self, request: Hashable) -> None:
        """A waiting request was aborted."""
        if self._alive.pop(request, None) is None:
            self._front = [one for one in self._front if one.request != request]

    def __len__(self) -> int:
        return len(self._front) + len(self._alive)

    def __iter__(self) -> Iterator[Waiting]:
        yield from reversed(self._front)
        for _, number, one in sorted(self._heap):
            if self._alive.get(one.request) == number:
                yield one
