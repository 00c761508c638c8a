"""What ends a process that reads strangers' files is one line that names the file, and nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from harness.core import apart
from harness.core.sizes import READER_BYTES, READER_CPU_S

ENDS = {
    "segv": "os.kill(os.getpid(), signal.SIGSEGV)",
    "abort": "os.abort()",
    "cpu": "os.kill(os.getpid(), signal.SIGXCPU)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "well": "sys.exit(7)",
    "limits": (
        "print(resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_CPU)[0], "
        "resource.getrlimit(resource.RLIMIT_CORE)[0])"
    ),
    "memory": (
        "\ntry:\n  bytearray(apart.memory_limit())\nexcept MemoryError:\n  print(apart.too_much_memory()); sys.exit(2)"
    ),
}


def run(end: str) -> subprocess.CompletedProcess[str]:
    """A process that goes apart, is about to read a file and ends."""
    script = (
        "import os, resource, signal, sys\nfrom harness.core import apart\n"
        f"apart.go_apart()\napart.reading('runs/a\\x1b[2J')\n{end}"
    )
    env = os.environ | {"PYTHONPATH": os.getcwd()}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=env, check=False
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("segv", "it ended the process that read it (SIGSEGV)"),
        ("abort", "it ended the process that read it (SIGABRT)"),
        ("cpu", f"takes more than {READER_CPU_S // 60} minutes of processor time to read"),
        ("killed", "ended from outside (SIGKILL): is there memory enough?"),
    ],
)
def test_what_ends_the_reader_is_one_line_that_names_the_file(name: str, why: str) -> None:
    done = run(ENDS[name])
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("bench: runs/a\\x1b[2J: ")
    assert why in line
    assert line.endswith("take it from a copy, or leave it out")


def test_its_code_is_the_childs_and_its_limits_are_set() -> None:
    assert run(ENDS["well"]).returncode == 7
    memory, cpu, core = map(int, run(ENDS["limits"]).stdout.split())
    assert READER_BYTES < memory <= apart.memory_limit()
    assert (cpu, core) == (READER_CPU_S, 0)


def test_memory_that_is_spent_names_the_file() -> None:
    done = run(ENDS["memory"])
    assert done.returncode == 2
    assert "GiB of memory to read: take it from a copy" in done.stdout
    assert "runs/a\\x1b[2J" in done.stdout


def test_where_nothing_reads_apart_memory_is_the_machines() -> None:
    assert "no memory left" in str(apart.too_much_memory())


def test_what_the_waiting_process_is_asked_its_child_is_asked() -> None:
    script = (
        "import sys, time\nfrom harness.core import apart\napart.go_apart()\nprint('on', flush=True)\n"
        "try:\n  time.sleep(60)\nexcept KeyboardInterrupt:\n  sys.exit(130)"
    )
    env = os.environ | {"PYTHONPATH": os.getcwd()}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
