"""Elapsed and remaining time of a session."""

from __future__ import annotations

import pytest

from harness.session.clock import SessionClock, as_clock


class Hand:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_what_is_left_follows_from_the_requests_that_ended() -> None:
    now = Hand()
    clock = SessionClock(400, now)
    assert clock.remaining_s() is None
    assert clock.told() == "0:00 elapsed"
    now.at += 10
    clock.ended(100)
    assert clock.remaining_s() == 30
    # A hundred requests of the run under way count as well.
    assert clock.remaining_s(100) == 10
    assert clock.told(100) == "0:10 elapsed, about 0:10 left"


def test_a_line_comes_at_most_every_half_minute_and_not_at_the_end() -> None:
    now = Hand()
    clock = SessionClock(300, now)
    clock.ended(100)
    assert clock.line(1, 3) is None
    now.at += 31
    assert clock.line(1, 3) == "1 of 3 runs done: 0:31 elapsed, about 1:02 left"
    assert clock.line(1, 3) is None
    now.at += 31
    assert clock.line(3, 3) is None


@pytest.mark.parametrize(("seconds", "text"), [(5, "0:05"), (754, "12:34"), (3723, "1:02:03"), (59.7, "1:00")])
def test_times_read_as_on_a_clock(seconds: float, text: str) -> None:
    assert as_clock(seconds) == text
