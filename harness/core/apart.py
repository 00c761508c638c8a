"""Strangers' files are read by a process of their own with limits: one that ends it is a line that names the file."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import sys
from typing import NoReturn

from harness.core.errors import UserError
from harness.core.machine import cores
from harness.core.sizes import READER_BYTES, READER_BYTES_A_CORE, READER_CPU_S
from harness.core.text import spelled

_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What a parser gets that follows what a file says beyond its memory.
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
_REMEDY = "take it from a copy, or leave it out"

# What is read now, where both processes see it; empty in a process that reads by itself.
_notes: list[mmap.mmap] = []


def reading(what: object) -> None:
    """Writes down what is about to be read, for the line that is said if it ends the process."""
    for note in _notes:
        name = os.fsencode(str(what)).replace(b"\0", b"")[1 - len(note) :]
        note[: len(name) + 1] = name + b"\0"


def now_read() -> str:
    """What was written down last."""
    name = bytes(_notes[0][:]).partition(b"\0")[0] if _notes else b""
    return spelled(os.fsdecode(name)) if name else "what this command reads"


def go_apart() -> None:
    """Goes on in a child with limits of memory and processor time; this process waits, and ends as the child does."""
    _notes.append(mmap.mmap(-1, 4096))
    signals = {*_ASKED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        _wait(child, signals)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _die_with_parent()
    _limit(resource.RLIMIT_AS, memory_limit())
    _limit(resource.RLIMIT_CPU, READER_CPU_S)
    _limit(resource.RLIMIT_CORE, 0)


def memory_limit() -> int:
    """Bytes of address space that a reader may take; a thread for each core sets some aside."""
    return READER_BYTES + READER_BYTES_A_CORE * cores()


def too_much_memory() -> UserError:
    """What to say where memory is spent: that which reading may take, or all that there is."""
    if not _notes:
        return UserError("there is no memory left for this: run fewer requests, or end other programs")
    return UserError(f"{now_read()}: takes more than {memory_limit() / 2**30:.1f} GiB of memory to read: {_REMEDY}")


def _wait(child: int, signals: set[signal.Signals]) -> NoReturn:
    """Hands on to a child what this process is asked, and ends with its code."""
    while True:
        told = signal.sigwaitinfo(signals)
        # What the terminal sends it sends to both.
        if told.si_signo in _ASKED and told.si_code <= 0:
            os.kill(child, told.si_signo)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        code = _ended_by(signal.Signals(-code))
    sys.stdout.flush()
    os._exit(code)


def _ended_by(signum: signal.Signals) -> int:
    """Says what ended a child that did not end by itself; this process's exit code."""
    if signum in _ASKED:
        return 128 + signum
    if signum in _FAULTS:
        why = f"damaged, or made to do harm: it ended the process that read it ({signum.name})"
    elif signum == signal.SIGXCPU:
        why = f"takes more than {READER_CPU_S / 60:.0f} minutes of processor time to read"
    else:
        why = f"the process that read it was ended from outside ({signum.name}): is there memory enough?"
    sys.stderr.write(f"bench: {now_read()}: {why}: {_REMEDY}\n")
    sys.stderr.flush()
    return 2


def _limit(what: int, most: int) -> None:
    """Sets a limit that may not be raised again; one that is narrower already stays."""
    soft, hard = resource.getrlimit(what)
    allowed = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(what, (min([most, *allowed]), hard))


def _die_with_parent() -> None:
    """Ends this process with the one that waits for it, however that one ends (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
