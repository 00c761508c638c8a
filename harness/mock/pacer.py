"""Sleep until absolute deadlines: one timer for all streams, so that no stream drifts."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import heapq
import os
import sys
import time
from itertools import count

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000


class Pacer:
    """Wakes each sleeper once its deadline (ns of `time.perf_counter_ns`) has passed, never before.

    On Linux a timerfd wakes the loop to some ten microseconds; elsewhere the loop's own timer, to a millisecond.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._armed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._fd = _timerfd()
        if self._fd is not None:
            loop.add_reader(self._fd, self._rung)

    async def until(self, due_ns: int) -> None:
        """Return at the deadline; other tasks get their turn even where it has passed."""
        if due_ns <= time.perf_counter_ns():
            await asyncio.sleep(0)
            return
        future = self._loop.create_future()
        heapq.heappush(self._heap, (due_ns, next(self._order), future))
        if not self._armed or due_ns < self._armed:
            self._arm(due_ns)
        await future

    def close(self) -> None:
        """Let go of the timer; sleepers are cancelled by whoever owns them."""
        if self._timer is not None:
            self._timer.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
        self._heap.clear()

    def _arm(self, due_ns: int) -> None:
        self._armed = due_ns
        left_ns = max(due_ns - time.perf_counter_ns(), 1)
        if self._fd is not None:
            _settime(self._fd, left_ns)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(left_ns / 1e9, self._wake)

    def _rung(self) -> None:
        assert self._fd is not None
        # Nothing to read where it was armed anew after it rang.
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
        self._wake()

    def _wake(self) -> None:
        heap, now = self._heap, time.perf_counter_ns()
        self._armed = 0
        while heap and heap[0][0] <= now:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(None)
        # The deadlines of streams that were cancelled would wake the loop for nothing.
        while heap and heap[0][2].done():
            heapq.heappop(heap)
        if heap:
            self._arm(heap[0][0])


# os.timerfd_create came with Python 3.13.
class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _timerfd() -> int | None:
    try:
        fd = int(_libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)) if _libc is not None else -1
    except AttributeError:
        return None
    return fd if fd >= 0 else None


def _settime(fd: int, left_ns: int) -> None:
    assert _libc is not None
    seconds, nanoseconds = divmod(left_ns, 1_000_000_000)
    spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
    _libc.timerfd_settime(fd, 0, ctypes.byref(spec), None)
