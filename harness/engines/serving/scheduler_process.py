"""The process that holds vLLM's scheduler: started once, given one job after another over pipes, ended with us."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import orjson

from harness.core.text import spelled
from harness.engines.serving.command import environment
from harness.engines.serving.failures import end_of, last_lines
from harness.engines.serving.server import plugin_path

MODULE = "policies.vllm_emulated"
# Importing vLLM takes 12 s on an idle machine.
START_S = 300.0
_GRACE_S = 10.0
_POLL_S = 0.2


class ProcessDied(Exception):
    """The process is gone, or says what it never should; the line says how it ended and what it said last."""


class SchedulerProcess:
    """vLLM's scheduler in the engine's own Python (protocol: policies/vllm_emulated.py).

    It reads jobs until its standard input ends, so it goes when this process does, however that ends. Ctrl-C on the
    terminal does not reach it.
    """

    def __init__(self, python: Path, module: str = MODULE, what: str = "scheduler") -> None:
        self.python, self.module, self.what = python, module, what
        self.version = ""  # of vLLM, once it is ready
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None  # what vLLM says

    def ready(self, stopped: Callable[[], bool], waits: Callable[[float], None]) -> bool:
        """Starts it unless it runs; False where `stopped` said so before it was ready. `waits` gets the seconds waited.

        Raises ProcessDied where it does not start.
        """
        if self._process is not None and self._process.poll() is None:
            return True
        self.close()
        path = plugin_path()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            self._process = subprocess.Popen(
                [str(self.python), "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment(path, os.environ),
                # `python -m` puts its directory on the path: there must be nothing else to import in it.
                cwd=path,
                start_new_session=True,
            )
        except OSError as error:
            raise ProcessDied(f"{self.python}: cannot be started ({error.strerror})") from None
        assert self._process.stdout is not None
        start = time.monotonic()
        while not select.select([self._process.stdout], [], [], _POLL_S)[0]:
            waited = time.monotonic() - start
            if stopped():
                self.close()
                return False
            if waited > START_S:
                self.close()
                raise ProcessDied(f"vLLM's {self.what} is not ready after {START_S:g} s")
            waits(waited)
        self.version = str(self.receive().get("ready", {}).get("vllm", ""))
        return True

    def send(self, value: Any) -> None:
        """A job, or the answer to a step; ProcessDied where nobody reads it."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
            process.stdin.flush()
        except OSError:
            raise self._died() from None

    def receive(self) -> dict[str, Any]:
        """The next message; ProcessDied where there is none."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._died()
        try:
            return dict(orjson.loads(line))
        except (ValueError, TypeError):
            raise ProcessDied(f"vLLM's {self.what} answers {line[:80]!a}, which is none of its messages") from None

    def close(self) -> None:
        """Ends it: asked first, killed where it does not go."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            try:
                # Not yet ready it has not come to read, and would go only when it has.
                process.wait(_GRACE_S if self.version else 0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _died(self) -> ProcessDied:
        """How the process ended, and the last that it said."""
        process, log = self._process, self._log
        assert process is not None
        assert log is not None
        try:
            code = process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        lines = last_lines(end_of(log))
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        said = spelled(lines[-1].strip()) if lines else "it says nothing"
        return ProcessDied(f"vLLM's {self.what} process ended ({how}): {said}")
