"""Who sends when, slow and plain: open and closed loops, schedules of concurrency, turns of conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from workloads.core.stream import Stream


class Clients:
    """All clients of a stream; `last_send` is the time after which nothing is sent, ns."""

    def __init__(self, stream: Stream, last_send: int | None) -> None:
        self.stream = stream
        self.last_send = last_send
        self.sent = 0
        # Of sessions: what is to come, by session in order of turns, and when the next of each is due.
        self.turns: dict[int, list[int]] = {}
        self.turn_due: dict[int, int] = {}
        self.begun: set[int] = set()
        self.session: list[int] = []
        if stream.think_ns is not None:
            trace = stream.trace
            assert trace.session is not None
            assert trace.turn is not None
            self.session, turns = trace.session.tolist(), trace.turn.tolist()
            for row in sorted(range(len(trace)), key=lambda row: (turns[row], row)):
                self.turns.setdefault(self.session[row], []).append(row)

    def due(self, now: int, in_flight: Callable[[], list[int]]) -> Iterator[tuple[int, int]]:
        """(row, due time in ns) of each request that is sent now, one after the other: each is in flight then."""
        yield from self._turns(now, in_flight) if self.stream.think_ns is not None else self._rows(now, in_flight)

    def _rows(self, now: int, in_flight: Callable[[], list[int]]) -> Iterator[tuple[int, int]]:
        stream = self.stream
        while self.sent < len(stream.trace):
            if stream.due_ns is None:
                concurrency = next(level for first, level in reversed(stream.levels) if first <= self.sent)
                begins = self.sent in [first for first, _ in stream.levels[1:]]
                held = len(in_flight())
                if held >= concurrency or (begins and stream.drain and held):
                    return
                due = now
            else:
                due = int(stream.due_ns[self.sent])
            if due > now or self._too_late(due):
                return
            self.sent += 1
            yield self.sent - 1, due

    def _turns(self, now: int, in_flight: Callable[[], list[int]]) -> Iterator[tuple[int, int]]:
        while True:
            coming = min(self._coming(), default=None)
            if coming is not None and coming[0] <= now:
                due, _, row = coming
            elif self.stream.concurrency is not None:
                # A conversation is under way until the answer to its last turn has ended.
                under_way = sum(bool(self.turns[session]) for session in self.begun)
                under_way += sum(not self.turns[self.session[row]] for row in in_flight())
                fresh = self._fresh()
                if under_way >= self.stream.concurrency or not fresh:
                    return
                due, row = now, min(fresh)
            else:
                return
            if self._too_late(due):
                return
            session = self.session[row]
            self.begun.add(session)
            self.turns[session].remove(row)
            self.turn_due.pop(session, None)
            self.sent += 1
            yield row, due

    def follow(self, row: int, end: int) -> None:
        """The answer to a row has ended: the next turn of its conversation is due after the time to think."""
        if self.stream.think_ns is not None and self.turns[self.session[row]]:
            self.turn_due[self.session[row]] = end + self.stream.think_ns

    def next_due(self) -> int | None:
        """When the clock brings the next request, ns; None where it brings no more."""
        if self.stream.think_ns is not None:
            due = min((due for due, _, _ in self._coming()), default=None)
        elif self.sent == len(self.stream.trace) or self.stream.due_ns is None:
            due = None
        else:
            due = int(self.stream.due_ns[self.sent])
        return None if due is None or self._too_late(due) else due

    def _coming(self) -> list[tuple[int, bool, int]]:
        """When the clock brings the next turn of each conversation, whether that is its first, and its row."""
        coming = [(due, False, self.turns[session][0]) for session, due in self.turn_due.items()]
        if self.stream.due_ns is not None:
            coming += [(int(self.stream.due_ns[row]), True, row) for row in self._fresh()]
        return coming

    def _fresh(self) -> list[int]:
        """The first row of each conversation that has not begun."""
        return [rows[0] for session, rows in self.turns.items() if rows and session not in self.begun]

    def _too_late(self, due: int) -> bool:
        return self.last_send is not None and due > self.last_send
