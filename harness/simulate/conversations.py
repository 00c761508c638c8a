"""Which turn of a conversation comes next, and when: as harness/drive/schedule.py does it over HTTP."""

from __future__ import annotations

import heapq

from workloads.arrivals import Stream
from workloads.sessions import turns_of

NEVER = (1 << 63) - 1  # ns


class Conversations:
    """The requests of a stream of sessions in the order in which they come.

    The first turn of each conversation comes by the clock in an open loop, and to a free place in a closed one; a
    later turn is due its think time after the answer before it. Of turns due at the same time the later ones of
    conversations under way go first, by row. After `last_send` nothing comes.
    """

    def __init__(self, stream: Stream, last_send: int) -> None:
        assert stream.think_ns is not None
        turns = turns_of(stream.trace)
        self.sent = 0
        self._heads = turns.heads
        self._after = turns.after
        self._think = stream.think_ns
        self._places = stream.concurrency or 0
        self._due = None if stream.due_ns is None else stream.due_ns[turns.heads].tolist()
        self._last_send = last_send
        self._next = 0  # of the heads
        self._later: list[tuple[int, int]] = []  # heap of (due, row)
        self._under_way = 0  # conversations that have begun and not ended

    def next_due(self) -> int:
        """When the clock brings the next turn, ns; NEVER where only the end of another does, or none comes."""
        due = self._later[0][0] if self._later else NEVER
        if self._due is not None and self._next < len(self._due):
            due = min(due, self._due[self._next])
        return due if due <= self._last_send else NEVER

    def take(self, now: int) -> tuple[int, int] | None:
        """The next (row, due) that comes by `now`; None where none does."""
        by = min(now, self._last_send)
        due = self.next_due()
        if due <= by:
            self.sent += 1
            if self._later and self._later[0][0] == due:
                return heapq.heappop(self._later)[1], due
        elif self._due is None and now <= self._last_send and self._under_way < self._places and self._more():
            self.sent += 1
            due = now
        else:
            return None
        self._under_way += 1
        self._next += 1
        return self._heads[self._next - 1], due

    def _more(self) -> bool:
        return self._next < len(self._heads)

    def ended(self, row: int, end: int) -> None:
        """The answer to a row came at `end`: its conversation goes on after its think time, or is over."""
        turn = self._after.get(row)
        if turn is None:
            self._under_way -= 1
        else:
            heapq.heappush(self._later, (end + self._think, turn))
