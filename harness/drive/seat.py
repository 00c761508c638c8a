"""A driving process on another host, as whoever stands there for us holds it: an actor of Ray's."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from harness.drive.host_clock import clock_name
from harness.drive.process import PIPE_BYTES, Process


class Seat:
    """Starts driving processes here, one after the other, and passes on what they are told and what they say."""

    def __init__(self) -> None:
        self._process: Process | None = None

    def clock_name(self) -> str:
        """What tells whether this clock is another's."""
        return clock_name()

    def now_ns(self) -> int:
        """The monotonic clock that the driving process stamps with, ns."""
        return time.monotonic_ns()

    def start(self, contents: Any, config: dict[str, Any]) -> str:
        """Starts a driving process on the bytes of a plan file; why it cannot, where it cannot."""
        try:
            with tempfile.TemporaryFile(prefix="bench-plan-") as file:
                file.write(memoryview(contents))
                file.flush()
                self._process = Process(config | {"plan_fd": file.fileno()}, file.fileno())
        except OSError as error:
            return f"{tempfile.gettempdir()}: no room for the plan ({error.strerror}): set TMPDIR there"
        return ""

    def say(self, line: str) -> None:
        """Tell the process something."""
        if self._process is not None:
            self._process.say(line)

    def read(self) -> bytes:
        """What it wrote, waiting until there is some; empty once it has ended."""
        return b"" if self._process is None else os.read(self._process.read, PIPE_BYTES)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End it, and let go of its pipes."""
        if self._process is not None:
            self._process.kill()
            self._process.close()
            self._process = None
