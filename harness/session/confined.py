"""A stranger's code run in a process of its own: with limits on time, memory and files, and without our environment.

Limits keep it from filling the machine. They are no sandbox: it may read what the user may read.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from harness.core.errors import RunFailed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Argument = TypeVar("Argument")
Result = TypeVar("Result")

# What the process keeps of our environment: how to start, and nothing that is a secret.
KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "TMPDIR", "HOME", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class Confines:
    """Seconds of the clock, bytes of address space (a bare process of ours takes about 2 GiB), bytes of one file."""

    seconds: float = 600.0
    memory_bytes: int = 8 << 30
    file_bytes: int = 1 << 30


def confined(task: Callable[[Argument], Result], argument: Argument, confines: Confines) -> Result:
    """What a function of a module gives for an argument, in a process that is ended where it passes the limits.

    RunFailed, in one line, where the process gives nothing.
    """
    import multiprocessing

    # Not forked: pyarrow has threads.
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_inside, args=(sending, task, argument, confines), daemon=False)
    process.start()
    sending.close()
    try:
        if not receiving.poll(confines.seconds):
            raise RunFailed(f"has not ended after {confines.seconds:g} s")
        result: Result = receiving.recv()
        return result
    except EOFError:
        process.join()
        code = process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise RunFailed(f"ended its process ({how}): over the limits on time or memory, or by itself") from None
    finally:
        receiving.close()
        if process.is_alive():
            process.kill()
        process.join()


def _inside(sending: Connection, task: Callable[[Any], Any], argument: Any, confines: Confines) -> None:
    import resource
    import signal

    # Ctrl-C is the first process's to see.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in [name for name in os.environ if name not in KEPT]:
        del os.environ[name]
    seconds = int(confines.seconds) + 1
    for limit, most in (
        (resource.RLIMIT_AS, confines.memory_bytes),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, confines.file_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (allowed, allowed))
    with tempfile.TemporaryDirectory(prefix="bench-confined-") as place:
        os.chdir(place)
        sending.send(task(argument))
        sending.close()
        os.chdir("/")
