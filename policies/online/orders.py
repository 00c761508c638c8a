"""Waiting queues with an order of their own that the engine draws from whenever it has room."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush

from policies.core import View, WaitingRequest

# The length to reckon with where nobody said: longer than any.
UNKNOWN = 1 << 62


def expected(request: WaitingRequest) -> int:
    """The most output tokens that its sender expects of a request."""
    return UNKNOWN if request.hint_high is None else request.hint_high


class Ranked:
    """Preempted requests first, the latest before the others; then by rank, the smallest first, ties as they came.

    A heap with lazy removal: every call costs O(log n) at most, but iterating sorts. SJF is the rank `expected`.
    """

    __slots__ = ("_arrivals", "_heap", "_number_of", "_preempted", "_rank")

    def __init__(self, rank: Callable[[WaitingRequest], int]) -> None:
        self._rank = rank
        self._preempted: list[WaitingRequest] = []  # the latest last
        # Rank, number in the order of arrival, request; those that were aborted stay until they come to the top.
        self._heap: list[tuple[int, int, WaitingRequest]] = []
        self._number_of: dict[Hashable, int] = {}  # of each request in the heap that still waits
        self._arrivals = 0

    def push(self, request: WaitingRequest) -> None:
        """A request has arrived."""
        self._arrivals += 1
        self._number_of[request.request_id] = self._arrivals
        heappush(self._heap, (self._rank(request), self._arrivals, request))

    def push_front(self, request: WaitingRequest) -> None:
        """A request was preempted."""
        self._preempted.append(request)

    def peek(self, view: View) -> WaitingRequest | None:
        """The first of those that wait: any may start."""
        if self._preempted:
            return self._preempted[-1]
        heap, number_of = self._heap, self._number_of
        while heap:
            _, number, request = heap[0]
            if number_of.get(request.request_id) == number:
                return request
            heappop(heap)
        return None

    def pop(self, view: View) -> WaitingRequest:
        """Takes the first out."""
        request = self.peek(view)
        assert request is not None
        if self._preempted:
            return self._preempted.pop()
        heappop(self._heap)
        del self._number_of[request.request_id]
        return request

    def remove(self, request_id: Hashable) -> None:
        """A waiting request was aborted."""
        if self._number_of.pop(request_id, None) is None:
            self._preempted = [request for request in self._preempted if request.request_id != request_id]

    def __len__(self) -> int:
        return len(self._preempted) + len(self._number_of)

    def __iter__(self) -> Iterator[WaitingRequest]:
        yield from reversed(self._preempted)
        for _, number, request in sorted(self._heap):
            if self._number_of.get(request.request_id) == number:
                yield request
