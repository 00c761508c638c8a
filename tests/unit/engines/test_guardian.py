"""The guardian of an engine, with real processes: whatever ends bench or the engine, nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.engines.serving import guardian

linux = pytest.mark.skipif(sys.platform != "linux", reason="orphans come to the guardian on Linux alone")

# An engine with a child in its group and one that has left it; each says its number and waits for ever.
ENGINE = """
import os, signal, sys, time
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
heard, said = os.pipe()
for leaves in (False, True):
    if os.fork() == 0:
        if leaves:
            os.setsid()
        os.write(2, b"%d\\n" % os.getpid())
        os.write(said, b"x")
        time.sleep(600)
for _ in range(2):
    os.read(heard, 1)  # an engine that ends takes its children along: not before they are counted
os.write(2, b"%d\\n" % os.getpid())
if sys.argv[1] == "ends":
    sys.exit(7)
time.sleep(600)
"""


@contextmanager
def guarded(manner: str, grace_s: float) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    command = [sys.executable, "-I", "-S", guardian.__file__, str(grace_s), sys.executable, "-S", "-c", ENGINE, manner]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        engine = int(process.stdout.readline())
        pids = [int(process.stderr.readline()) for _ in range(3)]
        # The engine first.
        pids.sort(key=lambda pid: pid != engine)
        assert pids[0] == engine
        try:
            yield process, pids
        finally:
            for pid in pids:
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
            process.kill()


@linux
def test_an_engine_yields_to_the_client() -> None:
    asks = "import os; from pathlib import Path; g = Path('/proc/self/autogroup'); "
    asks += "os.write(2, b'%d %s' % (os.nice(0), g.read_bytes() if g.exists() else b'nice 10'))"
    command = [sys.executable, "-I", "-S", guardian.__file__, "5", sys.executable, "-S", "-c", asks]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stderr is not None
        niceness, autogroup = process.stderr.read().decode().split(maxsplit=1)
    assert int(niceness) == min(os.nice(0) + 10, 19)
    # Whole sessions are weighed against each other where the kernel groups them.
    assert autogroup.strip().endswith("nice 10")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids: list[int]) -> bool:
    """Whether all have ended within ten seconds."""
    deadline = time.monotonic() + 10
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True


@linux
@pytest.mark.parametrize(("manner", "grace_s", "code"), [("waits", 30, 128 + 15), ("deaf", 0.1, 128 + 9)])
def test_the_end_of_the_pipe_ends_the_engine(manner: str, grace_s: float, code: int) -> None:
    with guarded(manner, grace_s) as (process, pids):
        assert all(map(alive, pids))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == code
        assert gone(pids)


@linux
def test_an_engine_that_ends_takes_its_children_along() -> None:
    with guarded("ends", 30) as (process, pids):
        assert process.wait(20) == 7
        assert gone(pids)


@linux
def test_signals_to_the_group_of_bench_are_not_its_business() -> None:
    with guarded("waits", 30) as (process, pids):
        for one in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.kill(process.pid, one)
        assert process.poll() is None
        assert all(map(alive, pids))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 128 + 15


@linux
def test_an_engine_does_not_outlive_a_killed_guardian() -> None:
    with guarded("waits", 30) as (process, pids):
        process.kill()
        process.wait(20)
        assert gone(pids[:1]), "the engine itself; bench ends its group"
