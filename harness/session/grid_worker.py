"""One process of a grid: it has imported everything before its first cell, and runs cells until it is told to end."""

from __future__ import annotations

import functools
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.core.errors import USER_ERRORS, Interrupted, RunFailed
from harness.engines.base import Status
from harness.measure import delivery, measured, summary, verdict
from harness.session.grid_command import command_of
from harness.session.grid_plan import Cell
from harness.session.grid_state import place_of, working
from harness.session.one_run import MakeEngine, prepare, run
from harness.session.options import RunOptions
from harness.session.start import START

# Imported late elsewhere; here each would cost the first cell its time.
PRELOADED = (delivery, measured, summary, verdict)
# What the first process says to this one, and what it means when its end of the pipe closes.
STOP = b"s"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cell ended: complete, failed or interrupted, its run's directory, why, and what it took (s, bytes)."""

    key: str
    status: str
    path: str = ""
    reason: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0


def serve(inbox: Any, lifeline: Any, out: Path, environment: Mapping[str, str]) -> None:
    """Runs the cells that come through `inbox` and answers each with its outcome; None ends it.

    The process ends at once when the other end of `lifeline` closes, so that none outlives the grid; STOP there ends
    the run under way readably.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        # Ctrl-C and a closed terminal are the first process's to see.
        signal.signal(number, signal.SIG_IGN)
    os.environ.update(environment)
    stopping = threading.Event()
    threading.Thread(target=_watch, args=(lifeline, stopping), daemon=True).start()
    with working(out):
        while (cell := inbox.recv()) is not None:
            inbox.send(run_cell(cell, out, stopping.is_set))


def _watch(lifeline: Any, stopping: threading.Event) -> None:
    try:
        while lifeline.recv_bytes() == STOP:
            stopping.set()
    except (EOFError, OSError):
        pass
    os._exit(1)


def run_cell(cell: Cell, out: Path, stopped: Callable[[], bool]) -> Outcome:
    """Runs one cell; whatever goes wrong is its outcome, and stops no other."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    status, path, reason = _run(cell, out, stopped)
    return Outcome(
        cell.key,
        status,
        path,
        reason,
        wall_s=time.perf_counter() - began_s,
        cpu_s=time.process_time() - began_cpu_s,
        memory_bytes=_most_memory(),
    )


def _run(cell: Cell, out: Path, stopped: Callable[[], bool]) -> tuple[str, str, str]:
    try:
        prepared = prepare(cell.spec, _maker(cell.options))
        place = place_of(out, cell.second)
        # What repeats this run is no grid.
        argv = command_of(cell.options, place)
        finished = run(prepared, place, argv, _nothing, stopped, cell.options.alone)
    except Interrupted:
        return "interrupted", "", ""
    except (RunFailed, *USER_ERRORS) as error:
        return "failed", "", _of_any_cell(str(error), place_of(out, cell.second))
    except Exception as error:
        return "failed", "", f"{type(error).__name__}: {error}"
    return finished.status, str(finished.path), str(finished.manifest.get("reason") or "")


def _of_any_cell(reason: str, out: Path) -> str:
    """A reason without the run's own directory, so that cells that fail alike are told as one; a grid recovers none."""
    reason = re.sub(r", then `bench recover [^`]*`", "", reason)
    return re.sub(rf"{re.escape(str(out))}/\S+?-r\d+(\.partial)?", "its directory", reason)


@functools.lru_cache(maxsize=4)
def _maker(options: RunOptions) -> MakeEngine:
    """What makes the engine of a cell; arms of a pair share it."""
    return START[options.engine](replace(options)).make


def _nothing(_: Status) -> None:
    pass


def _most_memory() -> int:
    """The most memory that this process has held."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
