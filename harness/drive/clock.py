"""The monotonic clock of a run and alarms at absolute times of it; the wall clock is never read."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import Protocol

NEVER = (1 << 63) - 1

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_TFD_TIMER_ABSTIME = 1


class Alarm(Protocol):
    """Calls back once at, or a little after, each time that it was last set to."""

    def set(self, at_ns: int) -> None:
        """Ring at `at_ns`, a time of the clock; a time that has passed rings at once, NEVER not at all."""

    def close(self) -> None:
        """Ring no more."""


class Clock:
    """CLOCK_MONOTONIC in ns: one time for every process of a machine, and no step of the wall clock moves it."""

    def now_ns(self) -> int:
        """The time, ns from an arbitrary start."""
        return time.monotonic_ns()

    def alarm(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Alarm:
        """An alarm on an event loop: a timerfd where there is one, since the loop's own timers count in ms."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError, AttributeError):
                return _TimerFd(loop, ring)
        return _LoopAlarm(loop, ring)


class _TimerFd:
    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._settime = libc.timerfd_settime
        self._settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self._fd = libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = loop
        self._ring = ring
        loop.add_reader(self._fd, self._readable)

    def set(self, at_ns: int) -> None:
        # All zeros disarm it.
        seconds, rest = divmod(max(at_ns, 1), 1_000_000_000) if at_ns != NEVER else (0, 0)
        self._settime(self._fd, _TFD_TIMER_ABSTIME, struct.pack("llll", 0, 0, seconds, rest), None)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._ring()


class _LoopAlarm:
    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at_ns: int) -> None:
        self.close()
        if at_ns != NEVER:
            self._handle = self._loop.call_later(max(at_ns - time.monotonic_ns(), 0) / 1e9, self._ring)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
