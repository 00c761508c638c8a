"""Ctrl-C, a kill and a terminal that closes, while runs are under way."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from harness.core.console import leave_terminal


class Stopping:
    """Whether the user wants the runs to end: the run under way ends readably, a second Ctrl-C ends it at once."""

    def __init__(self) -> None:
        self.wanted = False

    def __call__(self) -> bool:
        """Whether the run under way is to end."""
        return self.wanted

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals ask for the end as long as this is open; then they do what they did before."""
        handlers = {signal.SIGINT: self._stop, signal.SIGTERM: self._stop}
        # Under nohup a run is meant to go on.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            handlers[signal.SIGHUP] = self._hang_up
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True

    def _hang_up(self, _signal: int, _frame: FrameType | None) -> None:
        # The shell and the kernel both tell of a terminal that closes: the second is no wish to end at once.
        self.wanted = True
        leave_terminal()
