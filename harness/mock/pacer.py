"""Sleep until absolute deadlines: one alarm for all streams, so that no stream drifts."""

from __future__ import annotations

import asyncio
import heapq
import time
from itertools import count

from harness.drive.clock import NEVER, Clock


class Pacer:
    """Wakes each sleeper once its deadline (ns of `time.perf_counter_ns`) has passed, never before.

    The alarm is that of the driver: on Linux it rings to some ten microseconds, elsewhere to a millisecond.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._armed = NEVER
        # It goes by CLOCK_MONOTONIC, which perf_counter_ns reads too.
        self._alarm = Clock().alarm(loop, self._wake)

    async def until(self, due_ns: int) -> None:
        """Return at the deadline; other tasks get their turn even where it has passed."""
        if due_ns <= time.perf_counter_ns():
            await asyncio.sleep(0)
            return
        future = self._loop.create_future()
        heapq.heappush(self._heap, (due_ns, next(self._order), future))
        if due_ns < self._armed:
            self._arm(due_ns)
        await future

    def close(self) -> None:
        """Let go of the alarm; sleepers are cancelled by whoever owns them."""
        self._alarm.close()
        self._heap.clear()

    def _arm(self, due_ns: int) -> None:
        self._armed = due_ns
        self._alarm.set(due_ns)

    def _wake(self) -> None:
        heap, now_ns = self._heap, time.perf_counter_ns()
        self._armed = NEVER
        while heap and heap[0][0] <= now_ns:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(None)
        # The deadlines of streams that were cancelled would wake the loop for nothing.
        while heap and heap[0][2].done():
            heapq.heappop(heap)
        if heap:
            self._arm(heap[0][0])
