"""How long a request may take: one timer of the loop for all that are under way."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from harness.drive.flight import Flight


class Deadlines:
    """Calls `late`, with its own name and length, of each flight that was added and has not ended after `seconds`.

    All may take equally long, so that the first one added is the first that is late.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, seconds: float, late: Callable[[Flight, str, float], None]
    ) -> None:
        self._loop = loop
        self._name = name
        self._seconds = seconds
        self._late = late
        self._at: OrderedDict[Flight, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, flight: Flight) -> None:
        """It begins now."""
        self._at[flight] = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._ring)

    def end(self, flight: Flight) -> None:
        """It has ended, or what it was waited for has come."""
        self._at.pop(flight, None)

    def close(self) -> None:
        """Call nobody any more."""
        self._at.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        while self._at:
            flight, at_s = next(iter(self._at.items()))
            if at_s > now_s:
                self._timer = self._loop.call_at(at_s, self._ring)
                return
            del self._at[flight]
            self._late(flight, self._name, self._seconds)
