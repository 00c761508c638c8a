"""A driving process as its parent sees it: started, told, read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import orjson

from harness.drive import frames

PIPE_BYTES = 1 << 20


class Process:
    """A driving process as its parent sees it."""

    def __init__(self, config: dict[str, Any], plan_fd: int) -> None:
        read, write = os.pipe()
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):
                fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        root = str(Path(__file__).parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "harness.drive.worker", str(write)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(write, plan_fd),
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self.read = read
        self.frames = frames.Frames()
        self.ready = False
        self.ended = False
        self.status: dict[str, Any] = {}
        self.final: dict[str, Any] | None = None
        self.say(orjson.dumps(config).decode())

    def say(self, line: str) -> None:
        """Tell it something, if it still listens."""
        stdin: IO[bytes] | None = self.popen.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(f"{line}\n".encode())
            stdin.flush()
