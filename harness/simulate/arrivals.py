"""Which request of a stream comes next, and when: as harness/drive/schedule.py does it over HTTP."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from workloads.core.sessions import turns_of
from workloads.core.stream import Stream

NEVER = (1 << 63) - 1  # ns


class Arrivals:
    """The requests of a stream in the order in which they come.

    A request comes by the clock in an open loop, and to a free place in a closed one. Of a stream of sessions this
    holds for the first turn of each conversation, which keeps its place; a later turn is due its think time after the
    answer before it. Of turns due at the same time the later ones of conversations under way go first, by row. After
    `last_send` nothing comes.

    `due` has, by row, when a request that has come was due, ns. A `refused` one ends as soon as it comes.
    """

    def __init__(self, stream: Stream, last_send: int, refused: frozenset[int]) -> None:
        n = len(stream.trace)
        self.due: list[int] = [0] * n if stream.due_ns is None else stream.due_ns.tolist()
        self.sent = 0
        self.next_due = NEVER  # by the clock; NEVER also where only the end of another brings the next, or none comes
        self._last_send = last_send
        self._refused = refused
        self._timed = stream.due_ns is not None
        turns = None if stream.think_ns is None else turns_of(stream.trace)
        self._heads: Sequence[int] = range(n) if turns is None else turns.heads  # the conversations
        self._after = {} if turns is None else turns.after
        self._think = stream.think_ns or 0
        self._next = 0  # of the heads
        self._later: list[tuple[int, int]] = []  # heap of (due, row)
        self._under_way = 0  # conversations that have begun and not ended
        # Of a closed loop: its places, the head at which its next phase begins, and the phases to come by first row.
        self._places = self._until = 0
        self._levels = deque(stream.levels)
        self._drain = stream.drain
        self._look_ahead()

    @property
    def horizon(self) -> int:
        """Nothing comes before this time, ns, unless one that is under way ends."""
        return self.next_due

    def take(self, now: int) -> list[int]:
        """All that come by `now`, in their order."""
        arrived: list[int] = []
        while True:
            if self.next_due <= now:
                rows: Sequence[int] = (self._due_next(),)
            elif self._under_way < self._places and self._next < self._until and now <= self._last_send:
                # One at a time where some are refused: the place of such a one is free again at once.
                free = 1 if self._refused else self._places - self._under_way
                rows = self._heads[self._next : min(self._next + free, self._until)]
                self._next += len(rows)
                self._under_way += len(rows)
                for row in rows:
                    self.due[row] = now
            elif self._levels and self._next_phase():
                continue
            else:
                break
            arrived += rows
            if rows[0] in self._refused:
                self.ended(rows, self.due[rows[0]])
        self.sent += len(arrived)
        return arrived

    def ended(self, rows: Sequence[int], end: int) -> None:
        """The answers to these rows came at `end`: each conversation goes on after its think time, or is over."""
        self._under_way -= len(rows)
        if not self._after:
            return
        for row in rows:
            turn = self._after.get(row)
            if turn is not None:
                self._under_way += 1
                self.due[turn] = end + self._think
                heapq.heappush(self._later, (self.due[turn], turn))
        self._look_ahead()

    def _look_ahead(self) -> None:
        due = self._later[0][0] if self._later else NEVER
        if self._timed and self._next < len(self._heads):
            due = min(due, self.due[self._heads[self._next]])
        self.next_due = due if due <= self._last_send else NEVER

    def _due_next(self) -> int:
        """Takes the request that `next_due` is of."""
        if self._later and self._later[0][0] == self.next_due:
            row = heapq.heappop(self._later)[1]
        else:
            row = self._heads[self._next]
            self._next += 1
            self._under_way += 1
        self._look_ahead()
        return row

    def _next_phase(self) -> bool:
        """Goes on to the next phase of a closed loop, where it may begin now."""
        if self._next < self._until or (self._drain and self._under_way):
            return False
        self._places = self._levels.popleft()[1]
        self._until = self._levels[0][0] if self._levels else len(self._heads)
        return True
