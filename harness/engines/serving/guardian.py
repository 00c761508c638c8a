"""Stands between bench and an engine, so that nothing of the engine outlives bench, whatever ends it.

Standard library only; run as `python guardian.py GRACE_S COMMAND…`. Standard input is a pipe that bench holds open:
its end, however bench died, stops the engine. Standard output gets the engine's process id, standard error what the
engine says. The exit code is the engine's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05
# Below the client's; on a machine with processors to spare it changes nothing.
_NICE = 10


def main() -> int:
    """Run the engine until it ends or bench does; gives its exit code (128 + N after signal N)."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    # A process of the engine whose parent has died comes to us and not to init, so that it is found.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Of Ctrl-C and a hang-up bench decides what they mean.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    me = os.getpid()
    engine = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
        preexec_fn=lambda: _before(me),  # noqa: PLW1509 - there are no threads here
    )
    try:
        os.write(1, b"%d\n" % engine.pid)
        while engine.poll() is None and not _closed():
            pass
        if engine.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                engine.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                engine.wait(grace_s)
    finally:
        _end_all(engine)
    code = engine.returncode
    return 128 - code if code < 0 else code


def _before(guardian: int) -> None:
    """In the engine's process, before it becomes the engine: die with the guardian, take signals as usual."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _yield_to_client()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if os.getppid() != guardian:
        os._exit(1)


def _yield_to_client() -> None:
    """Let whoever else runs here have a processor at once: an engine that spins kept the client from reading.

    The engine has a session of its own, which Linux may weigh as one (autogroup) whatever its processes' niceness.
    """
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as file:
        file.write(str(_NICE))


def _closed() -> bool:
    """Whether the pipe from bench has ended, looked at for a moment."""
    readable, _, _ = select.select([0], [], [], _POLL_S)
    return bool(readable) and not os.read(0, 4096)


def _end_all(engine: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the engine: its process group, then whoever has come to us as an orphan."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(engine.pid, signal.SIGKILL)
    engine.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        for child in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(_POLL_S)
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Processes whose parent we are; the kernel's own list of them is not in every kernel."""
    me, children = str(os.getpid()), []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        # A process may end while it is looked at. Its name, in brackets, may hold anything.
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat") as file:
            if file.read().rpartition(")")[2].split()[1] == me:
                children.append(int(name))
    return children


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
