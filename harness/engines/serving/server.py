"""One vLLM server: started, waited for, watched, asked what it is, and stopped without leaving anything behind."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.drive.endpoint import Endpoint
from harness.engines.serving.failures import Cause, cause_of, tail
from harness.engines.serving.fetch import fetch
from workloads.core.cache import cache_dir

# After SIGTERM; then SIGKILL. vLLM ends in two or three seconds.
GRACE_S = 15.0
_POLL_S = 0.1
_HEALTH_EVERY_S = 2.0
_GUARDIAN = Path(__file__).with_name("guardian.py")
_POLICIES = Path(__file__).parents[3] / "policies"


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def plugin_path() -> Path:
    """A directory that holds our `policies` package and nothing else: all of ours that the engine can import."""
    folder = cache_dir() / "plugin" / hashlib.sha256(str(_POLICIES).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "policies"
    with contextlib.suppress(FileExistsError):
        link.symlink_to(_POLICIES, target_is_directory=True)
    return folder.resolve()


class Server:
    """A server under way; a context manager that ends it, its children and their children.

    `log` gets all that it says. A guardian process stands between: where bench dies, by `kill -9` too, it ends
    the server.
    """

    def __init__(self, words: Sequence[str], env: Mapping[str, str], log: Path, port: int) -> None:
        self.endpoint = Endpoint(url=f"http://127.0.0.1:{port}")
        self.log = log
        self._unhealthy: str | None = None
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._watch_health, name="health", daemon=True)
        with log.open("ab") as file:
            # Held by every process of the engine: while one lives, `bench recover` knows that the run goes on.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARDIAN), str(GRACE_S), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=dict(env),
                # `python -m` puts its directory on the path: there must be nothing to import in it.
                cwd=env["PYTHONPATH"],
                start_new_session=True,
            )
        assert self._guardian.stdout is not None
        self.pid = int(self._guardian.stdout.readline() or b"0")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_until_ready(self, timeout_s: float, stopped: Callable[[], bool], waits: Callable[[float], None]) -> bool:
        """Whether it answers; False where it ended, `stopped` said so, or `timeout_s` has passed (see `fault`).

        `waits` is called with the seconds waited so far.
        """
        start = time.monotonic()
        while not stopped() and self._guardian.poll() is None:
            waited = time.monotonic() - start
            if waited > timeout_s:
                self._unhealthy = f"not ready after {timeout_s:g} s: give --ready-timeout, or see its log"
                return False
            waits(waited)
            with contextlib.suppress(OSError):
                if fetch(self.endpoint, "/health", 2.0)[0] == 200:
                    self._watch.start()
                    return True
            time.sleep(_POLL_S)
        return False

    def fault(self) -> Cause | None:
        """Why it does not serve any more; None while it does."""
        code = self._guardian.poll()
        if code is not None:
            return cause_of(tail(self.log), 128 - code if code < 0 else code)
        return Cause(self._unhealthy, mend=False) if self._unhealthy else None

    @property
    def broken(self) -> bool:
        """Whether it does not serve any more; cheap, to be asked often."""
        return self._unhealthy is not None or self._guardian.poll() is not None

    def stop(self) -> None:
        """End it and all that it started: asked first, killed where that takes longer than the grace."""
        self._ended.set()
        guardian = self._guardian
        if guardian.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                guardian.stdin.close()
        try:
            guardian.wait(GRACE_S + 10)
        except subprocess.TimeoutExpired:
            guardian.kill()
            guardian.wait()
        if guardian.returncode < 0 and self.pid:
            # It was killed itself and could not end the others.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        if guardian.stdout is not None:
            guardian.stdout.close()
        if self._watch.ident is not None:
            self._watch.join()

    def _watch_health(self) -> None:
        """Asks after its health; an engine that has died under a server that answers says 503."""
        while not self._ended.wait(_HEALTH_EVERY_S):
            with contextlib.suppress(OSError):
                status, _ = fetch(self.endpoint, "/health")
                if status >= 500:
                    self._unhealthy = f"/health says {status}: {cause_of(tail(self.log), None).line}"
