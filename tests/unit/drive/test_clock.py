"""Every time is the one clock's, whatever the wall clock does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from harness.drive.clock import Alarm, Clock
from tests.support.drive_servers import (
    FINE,
    MS,
    answer_well,
    driven,
    plan_of,
)


class _FarClock(Clock):
    """A clock that is elsewhere and runs a millisecond a look; its alarms ring at once, as if they were early."""

    def __init__(self) -> None:
        self.looks = 0

    def now_ns(self) -> int:
        self.looks += 1
        return 10**15 + self.looks * MS

    def alarm(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Alarm:
        class Eager:
            def set(self, at_ns: int) -> None:
                loop.call_soon(ring)

            def close(self) -> None:
                pass

        return Eager()


def test_every_time_is_the_clocks() -> None:
    done = driven(answer_well, plan_of(4, due_ns=[0, 30 * MS, 30 * MS, 90 * MS]), clock=_FarClock())
    assert done.ends == [FINE] * 4
    start = done.results[0].due_ns
    for one in done.results:
        assert one.sent_ns is not None
        assert one.done_ns is not None
        times = [one.due_ns, one.sent_ns, *one.stamps, one.done_ns]
        assert all(time_ns % MS == 0 and time_ns > 10**15 for time_ns in times)
        assert times == sorted(times)
    assert [one.due_ns - start for one in done.results] == [0, 30 * MS, 30 * MS, 90 * MS]


def test_steps_of_the_wall_clock_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter(range(1_000_000))
    monkeypatch.setattr(time, "time", lambda: 1e9 * (-1) ** next(steps))
    monkeypatch.setattr(time, "time_ns", lambda: 10**18 * (-1) ** next(steps))
    done = driven(answer_well, plan_of(5, due_ns=[i * MS for i in range(5)]))
    assert done.ends == [FINE] * 5
    assert all(0 <= (one.done_ns or 0) - one.due_ns < 20_000 * MS for one in done.results)


def test_the_fallback_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "other")
    assert driven(answer_well, plan_of(5, due_ns=[i * MS for i in range(5)])).ends == [FINE] * 5
