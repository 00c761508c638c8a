"""How far the clock of another host is from this one's, read by asking it the time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Of so many questions the one answered fastest tells the most.
QUESTIONS = 40


@dataclass(frozen=True, slots=True)
class Reading:
    """The other clock less this one, ns, and by how much that may be off at most; `same` where both are one clock."""

    offset_ns: int
    error_ns: int
    same: bool = False


def clock_name() -> str:
    """What two processes of one monotonic clock have in common; empty where the system does not tell.

    A kernel has one since it was started, and each of its time namespaces has its own.
    """
    name = ""
    with contextlib.suppress(OSError):
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        name += f" {os.readlink('/proc/self/ns/time')}"
    return name


def read_clock(ask_ns: Callable[[], int], name: str = "", questions: int = QUESTIONS) -> Reading:
    """The offset of the clock that `ask_ns` reads: the answer was given between the question and its coming back.

    `name` is the other's `clock_name`: of one clock nothing is asked. Error: half of the fastest way there and back
    (Cristian, 1989).
    """
    if name and name == clock_name():
        return Reading(0, 0, same=True)
    readings = []
    for _ in range(questions):
        asked_ns = time.monotonic_ns()
        there_ns = ask_ns()
        back_ns = time.monotonic_ns()
        readings.append(Reading(there_ns - (asked_ns + back_ns) // 2, (back_ns - asked_ns + 1) // 2))
    return min(readings, key=lambda reading: reading.error_ns)
