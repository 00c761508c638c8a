"""How long the runs of a session have taken, and how long the rest will take."""

from __future__ import annotations

import time
from collections.abc import Callable

# Where nobody watches a bar, lines come no more often than this.
LEAST_BETWEEN_S = 30.0


class SessionClock:
    """Elapsed time, and what is left judged by the runs that ended: each run counts by its requests."""

    def __init__(self, requests: int, now: Callable[[], float] = time.monotonic) -> None:
        self._total = requests
        self._done = 0
        self._now = now
        self._start = now()
        self._told = self._start

    @property
    def elapsed_s(self) -> float:
        """Seconds since the session began."""
        return self._now() - self._start

    def ended(self, requests: int) -> None:
        """A run of so many requests has ended."""
        self._done += requests

    def remaining_s(self, finished: int = 0) -> float | None:
        """Seconds left, with so many requests of the run under way finished; None before anything is done."""
        done = self._done + finished
        if done <= 0:
            return None
        return max(0.0, self.elapsed_s * (self._total - done) / done)

    def told(self, finished: int = 0) -> str:
        """Both as a text: `1:05 elapsed, about 0:40 left`."""
        left = self.remaining_s(finished)
        tail = "" if left is None else f", about {as_clock(left)} left"
        return f"{as_clock(self.elapsed_s)} elapsed{tail}"

    def line(self, place: int, runs: int) -> str | None:
        """What to say after a run where no bar is seen; None where it was said a moment ago, or all is done."""
        if place == runs or self._now() - self._told < LEAST_BETWEEN_S:
            return None
        self._told = self._now()
        return f"{place} of {runs} runs done: {self.told()}"


def as_clock(seconds: float) -> str:
    """Seconds as `0:05`, `12:34` or `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
