"""Sees that a policy comes back from what it is asked, and that it does not fill the machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator

from policies.core import PolicyFault

# Seconds that one answer may take; a policy that no exception can reach is ended with its process at thrice that.
SLOWEST_S = 10.0
# What a policy's process may grow by: half of the machine's memory, and this at least.
LEAST_BYTES = 4 << 30
LOOKS_EVERY_S = 0.25
EXIT_FAILED = 3


class Watch:
    """Looks at one policy from a thread of its own, while `inside` says that it is asked.

    `question` is what the policy is asked now, empty where nothing is: engines set it themselves around each question,
    since a context manager costs as much as a plan. `fault` is why the policy must not be asked any more.
    """

    def __init__(self, name: str, slowest_s: float | None = None, most_bytes: int | None = None) -> None:
        self.name = name
        self.question = ""
        self.count = 0  # of questions
        self.fault: str | None = None
        self.slowest_s = SLOWEST_S if slowest_s is None else slowest_s
        self.most_bytes = max(LEAST_BYTES, _memory_bytes() // 2) if most_bytes is None else most_bytes
        self.thread_id = threading.get_ident()
        self._started = False

    def start(self) -> None:
        """Begins to look, for as long as this object lives."""
        if not self._started:
            self._started = True
            arguments = (weakref.ref(self), _resident_bytes())
            threading.Thread(target=_look, args=arguments, name="policy-watch", daemon=True).start()

    def here(self) -> None:
        """It is this thread that asks."""
        self.thread_id = threading.get_ident()

    @contextlib.contextmanager
    def inside(self, question: str) -> Iterator[None]:
        """The policy is asked something for as long as this is open."""
        self.start()
        self.here()
        self.count += 1
        self.question = question
        try:
            yield
        finally:
            self.question = ""


class Overrun(PolicyFault):
    """A policy took too long or too much, told in the middle of what it did."""


def _look(watched: weakref.ref[Watch], at_start: int) -> None:
    """Looks every LOOKS_EVERY_S; a question that is the same as at the last look has been open since then."""
    seen, since, told = -1, 0.0, False
    while True:
        time.sleep(LOOKS_EVERY_S)
        watch = watched()
        if watch is None:
            return
        now = time.monotonic()
        if not watch.question or watch.count != seen:
            seen, since, told = watch.count, now, False
        grown = _resident_bytes() - at_start
        why = None
        if watch.question and now - since > watch.slowest_s:
            why = f"has not come back for {watch.slowest_s:g} s"
        elif grown > watch.most_bytes:
            why = f"has taken {grown / 2**30:.1f} GiB of memory"
        if why is not None:
            watch.fault = why
            if watch.question and not told:
                told = True
                # It reaches Python code at its next line; what sleeps or computes in C hears of it afterwards.
                error = ctypes.py_object(Overrun)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(watch.thread_id), error)
            elif watch.question and now - since > 3 * watch.slowest_s:
                sys.stderr.write(f"PolicyFault: policy {watch.name} {why} in {watch.question}\n")
                sys.stderr.flush()
                os._exit(EXIT_FAILED)
        del watch


def _memory_bytes() -> int:
    """What the machine has; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _resident_bytes() -> int:
    """What this process holds in memory; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
