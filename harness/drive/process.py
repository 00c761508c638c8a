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
    """A driving process as its parent sees it; `offset_ns` is how far its clock is ahead of the parent's."""

    where = ""

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
        self.offset_ns = 0
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

    def kill(self) -> None:
        """End it at once."""
        if self.popen.poll() is None:
            self.popen.kill()

    def close(self) -> None:
        """Let go of its pipes and see it end; one that still drives is killed."""
        os.close(self.read)
        if not self.ended:
            self.kill()
        with contextlib.suppress(BrokenPipeError):
            if self.popen.stdin is not None:
                self.popen.stdin.close()
        self.popen.wait()
