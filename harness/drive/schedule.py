"""What is to be sent next, and when it is due: the plan's heads in their order, and later turns as they come up."""

from __future__ import annotations

import heapq

from harness.drive.clock import NEVER
from harness.drive.plan import Plan


class Schedule:
    """The share of a plan that one process sends.

    A head waits for no other request: an open loop sends it by the clock, a closed one when a slot `take`s it.
    A later turn is due its think time after the answer before it, in both.
    """

    def __init__(self, plan: Plan, places: list[int], closed: bool) -> None:
        self.heads, self._after = plan.chains(places)
        self._due = plan.columns["due_ns"]
        self._think = plan.columns["think_ns"]
        self._next = 0  # of the heads
        self._timed = 0 if closed else len(self.heads)  # heads that the clock sends
        self._later: list[tuple[int, int]] = []  # heap of (due, place)
        self._t0 = 0

    def start(self, t0_ns: int) -> None:
        """Due times count from `t0_ns`."""
        self._t0 = t0_ns

    def due_of_heads(self) -> list[int]:
        """When the heads are due, ns from the start, ascending."""
        return [self._due[i] for i in self.heads]

    def next_due(self) -> int:
        """When the clock next has something to send."""
        later = self._later[0][0] if self._later else NEVER
        return min(later, self._t0 + self._due[self.heads[self._next]]) if self._next < self._timed else later

    def pop(self) -> tuple[int, int]:
        """The (place, due) behind `next_due`."""
        due_ns = self.next_due()
        if self._later and self._later[0][0] == due_ns:
            return heapq.heappop(self._later)[1], due_ns
        self._next += 1
        return self.heads[self._next - 1], due_ns

    def peek(self) -> int | None:
        """The head that `take` gives next."""
        return self.heads[self._next] if self._next < len(self.heads) else None

    def take(self) -> int | None:
        """The next head for a free slot; None where there is none left."""
        if self._next >= len(self.heads):
            return None
        self._next += 1
        return self.heads[self._next - 1]

    def follow(self, place: int, end_ns: int) -> bool:
        """The answer to `place` ended: whether a turn follows it, which is then on the schedule."""
        turn = self._after.get(place)
        if turn is None:
            return False
        heapq.heappush(self._later, (end_ns + self._think[turn], turn))
        return True

    def drop(self) -> None:
        """Send nothing more."""
        self._next = len(self.heads)
        self._later.clear()

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left, unless an answer brings it up."""
        return self._next >= len(self.heads) and not self._later
