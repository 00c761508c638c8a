"""Several engines behind one router, in one virtual time: each has its own steps, policy and KV cache."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from harness.simulate.arrivals import NEVER, Arrivals
from harness.simulate.batch import BatchLoop
from harness.simulate.router import Desk, Router
from harness.simulate.rows import Rows, joined
from policies.core import STEP_COLUMNS
from workloads.core.trace import Ints

_START = STEP_COLUMNS.index("t")
# Makes one replica of what it gets its requests from.
MakeLoop = Callable[[Desk], BatchLoop]


class Replicas:
    """A loop of each maker's, which share the arrivals of one stream.

    The loop whose time is earliest takes its turn, once all that happens by then has: answers that end, and what comes
    and is given to a replica. So a router sees what has happened, and no loop goes beyond what may still come to it.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        refused: frozenset[int],
        router: Router,
        makers: Sequence[MakeLoop],
        reacts: bool,
    ) -> None:
        self.whole = False
        self._arrivals = arrivals
        self._refused = refused
        self._router = router
        self._reacts = reacts  # an answer that ends may bring the next request
        self._desks = [Desk(arrivals.due) for _ in makers]
        self.loops = [make(desk) for make, desk in zip(makers, self._desks, strict=True)]
        self._turns = [loop.turns() for loop in self.loops]
        self._busy: set[int] = set()
        self._ended: list[tuple[int, int, Sequence[int]]] = []  # heap of (end, replica, rows)
        self._held_back = Held()

    @property
    def sent(self) -> int:
        """Requests of the stream that have arrived."""
        return self._arrivals.sent

    @property
    def finished(self) -> int:
        """Requests that have ended."""
        return sum(loop.finished for loop in self.loops)

    def run(self, sink: Callable[[Rows], bool], every: int = 1024) -> bool:
        """As `BatchLoop.run`; steps are handed over in the order in which they began."""
        steps = flushed = 0
        self._happen(0)
        while True:
            now, place = min(((self.loops[place].now, place) for place in self._busy), default=(NEVER, -1))
            event = min(self._next_under_way(), self._arrivals.next_due)
            if event <= now and event != NEVER:
                self._happen(event)
                continue
            if place < 0:
                break
            before = self.loops[place].step_count
            self._turn(place)
            steps += self.loops[place].step_count - before
            if steps - flushed >= every:
                flushed = steps
                if not sink(self.drain(now)):
                    return False
        sink(self.drain())
        self.whole = True
        return True

    def drain(self, until: int = NEVER) -> Rows:
        """The rows since the last call, of steps those that began before `until`."""
        parts = self._parts()
        rows = joined(parts)
        rows.now_ns = max(part.now_ns for part in parts)
        rows.finished = self.finished
        rows.request_replicas = np.repeat(np.arange(len(parts)), [len(part.requests) for part in parts])
        replicas = np.repeat(np.arange(len(parts)), [len(part.steps) for part in parts])
        rows.steps, rows.step_replicas = self._held_back.until(rows.steps, replicas, until)
        return rows

    def _parts(self) -> list[Rows]:
        """The rows of each replica since the last call."""
        return [loop.drain() for loop in self.loops]

    def _happen(self, at: int) -> None:
        """Answers that end at this time, then what comes and whom it goes to."""
        while self._ended and self._ended[0][0] <= at:
            end, place, rows = heapq.heappop(self._ended)
            self._answered(place, rows, end)
        for row in self._arrivals.take(at):
            place = self._router.choose()
            if row in self._refused:
                self._router.ended(place, 1)
            self._give(place, row, at)

    def _answered(self, place: int, rows: Sequence[int], end: int) -> None:
        """A replica has ended these."""
        self._router.ended(place, len(rows))
        self._arrivals.ended(rows, end)

    def _give(self, place: int, row: int, at: int) -> None:
        self._desks[place].give(row, at)
        loop = self.loops[place]
        if place not in self._busy or loop.holds:
            loop.wake(at)
        self._busy.add(place)

    def _next_under_way(self) -> int:
        """When the next of what is known to happen happens, ns, arrivals apart."""
        return self._ended[0][0] if self._ended else NEVER

    def _turn(self, place: int) -> None:
        """The turn of the loop whose time is earliest."""
        desk = self._desks[place]
        desk.horizon = self._arrivals.next_due
        if self._reacts:
            # Another's request ends after the beginning of its next step at the earliest.
            others = (self.loops[other].now for other in self._busy if other != place)
            desk.horizon = min(desk.horizon, min(others, default=NEVER), self._next_under_way())
        if not next(self._turns[place]):
            self._busy.discard(place)
        for end, rows in desk.has_ended:
            heapq.heappush(self._ended, (end, place, rows))
        desk.has_ended.clear()


class Held:
    """Steps that are held back until no earlier one can come, with the replica of each."""

    def __init__(self) -> None:
        self._steps = np.zeros((0, len(STEP_COLUMNS)), dtype=np.int64)
        self._replicas = np.zeros(0, dtype=np.int64)

    def until(self, steps: Ints, replicas: Ints, until: int) -> tuple[Ints, Ints]:
        """Of all so far those that began before `until`, by their beginnings and then by replica; the rest is held."""
        steps, replicas = np.concatenate((self._steps, steps)), np.concatenate((self._replicas, replicas))
        order = np.lexsort((replicas, steps[:, _START]))
        steps, replicas = steps[order], replicas[order]
        ready = int(np.searchsorted(steps[:, _START], until, side="left"))
        self._steps, self._replicas = steps[ready:], replicas[ready:]
        return steps[:ready], replicas[:ready]
