"""`bench grid`: what is finished stays, the rest runs, what fails is told at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.core.console import plain_console
from harness.session.grid_index import FinishedIndex
from harness.session.grid_local import Tick
from harness.session.grid_plan import Cell, Plan
from harness.session.grid_state import (
    FOLDER,
    Found,
    StatusFile,
    alone_in,
    clear,
    find_cells,
    place_below,
    read_failures,
    remember_cells,
    remember_failure,
)
from harness.session.stopping import Stopping

# Reasons named one by one at the end.
MOST_TOLD = 20
# So many characters of a reason stand in a file that is written often.
_LONGEST_REASON = 500


class Executor(Protocol):
    """Runs cells somewhere and tells of each that ended."""

    jobs: int

    def run(self, units: Sequence[Sequence[Cell]], stopped: Callable[[], bool]) -> Iterator[Tick]:
        """Runs all units; `stopped` is asked often, and True ends the runs under way readably."""


@dataclass(slots=True)
class Tally:
    """How a grid stands: cells in all, finished before and now, why cells failed (by key), and what it took."""

    cells: int
    before: int = 0
    done: int = 0
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    refused: int = 0
    interrupted: bool = False
    elapsed_s: float = 0.0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    jobs: int = 1

    @property
    def left(self) -> int:
        """Cells that have neither ended nor failed."""
        return self.cells - self.before - self.done - len(self.failed)

    def to_dict(self) -> dict[str, Any]:
        """The tally as JSON values."""
        rate = self.done / self.elapsed_s if self.elapsed_s else 0.0
        return {
            "cells": self.cells,
            "finished": self.before + self.done,
            "before": self.before,
            "done": self.done,
            "failed": len(self.failed),
            "cannot_be_had": self.refused,
            "left": self.left,
            "elapsed_s": round(self.elapsed_s, 3),
            "cells_per_s": round(rate, 4),
            "remaining_s": round(self.left / rate, 1) if rate else None,
            "jobs": self.jobs,
            "busy_share": round(self.busy_s / (self.elapsed_s * self.jobs), 4) if self.elapsed_s else None,
            "cpu_s": round(self.cpu_s, 2),
            "process_memory_bytes": self.memory_bytes,
        }


@dataclass(frozen=True, slots=True)
class Resumed:
    """Cells of a grid by what is to be done with them: `units` run, `found` says what is there already.

    `index` knows it, and is not written yet.
    """

    units: list[list[Cell]]
    found: Found
    failed: dict[str, str]
    index: FinishedIndex


def resume(plan: Plan, out: Path, retry_failed: bool, again: bool = False) -> Resumed:
    """What of a plan has to run, by the runs that lie in `out`; where `again` all of it."""
    cells, index = plan.cells, FinishedIndex(out / FOLDER)
    found = find_cells(out, {cell.digest for cell in cells if not cell.second}, index)
    if any(cell.second for cell in cells):
        second = find_cells(out, {cell.digest for cell in cells if cell.second}, index, second=True)
        found = Found(found.finished | second.finished, found.left | second.left, found.failed | second.failed)
    if again:
        found.finished.clear()
        retry_failed = True
    keys = {cell.key for cell in cells}
    reasons = read_failures(out / FOLDER) | found.failed
    failed = {key: why for key, why in reasons.items() if key in keys and key not in found.finished}
    passed = found.finished.keys() | (set() if retry_failed else failed.keys())
    units = [[cell for cell in unit if cell.key not in passed] for unit in plan.units]
    return Resumed([unit for unit in units if unit], found, {} if retry_failed else failed, index)


class GridSession:
    """Runs what a plan has left to do in `out`; Ctrl-C ends the runs under way, and the same command goes on later.

    `sent` is told of each run's directory as it is finished.
    """

    def __init__(self, plan: Plan, out: Path, quiet: bool, sent: Callable[[Path], None] | None = None) -> None:
        self._plan, self._out, self._quiet, self._sent = plan, out, quiet, sent
        self._labels = {cell.key: cell.label for cell in plan.cells}
        self._console = plain_console(stderr=True)
        self._stopping = Stopping()

    def go(self, make: Callable[[], Executor], retry_failed: bool, again: bool = False) -> Tally:
        """Runs what is left, or all of it `again`; the tally at the end. UserError where another grid works there."""
        with alone_in(self._out) as folder:
            todo = resume(self._plan, self._out, retry_failed, again)
            todo.index.write()
            remember_cells(folder, self._plan.cells)
            tally = Tally(len(self._labels), before=len(self._labels.keys() & todo.found.finished.keys()))
            tally.refused = sum(one.cells for one in self._plan.refused)
            tally.failed = {key: (self._labels[key], why) for key, why in todo.failed.items()}
            running = [cell for unit in todo.units for cell in unit]
            left = [path for cell in running for path in todo.found.left.get(cell.key, ())]
            self._say_before(tally, len(running), clear(left))
            if running:
                executor = make()
                tally.jobs = min(executor.jobs, len(running))
                self._run(executor, todo, tally, folder)
            StatusFile(folder).write(self._status(tally, [], done=True), now=True)
        return tally

    def _run(self, executor: Executor, todo: Resumed, tally: Tally, folder: Path) -> None:
        began_s, status = time.monotonic(), StatusFile(folder)
        bar = self._bar()
        task = bar.add_task("cells", total=tally.cells, completed=tally.before, told="")
        with self._stopping.listening(), bar:
            for tick in executor.run(todo.units, self._stopping):
                tally.elapsed_s = time.monotonic() - began_s
                if tick.outcome is not None and tick.cell is not None:
                    self._count(tick, tally, folder)
                    if tick.outcome.status == "complete":
                        place = place_below(self._out, tick.outcome.path, tick.cell.second)
                        todo.index.add(place, f"{tick.outcome.path}/run.json", tick.cell.digest)
                        todo.index.write()
                        if self._sent is not None:
                            self._sent(Path(tick.outcome.path))
                bar.update(
                    task,
                    completed=tally.before + tally.done,
                    told=f"{len(tally.failed)} failed" if tally.failed else "",
                )
                status.write(self._status(tally, tick.running))
        tally.interrupted = self._stopping.wanted
        tally.elapsed_s = time.monotonic() - began_s

    def _count(self, tick: Tick, tally: Tally, folder: Path) -> None:
        outcome, cell = tick.outcome, tick.cell
        assert outcome is not None
        assert cell is not None
        tally.busy_s += outcome.wall_s
        tally.cpu_s += outcome.cpu_s
        tally.memory_bytes = max(tally.memory_bytes, outcome.memory_bytes)
        if outcome.status == "complete":
            tally.done += 1
        elif outcome.status == "failed":
            tally.failed[cell.key] = (cell.label, outcome.reason)
            remember_failure(folder, cell, outcome.reason)
            self._console.print(f"failed: {cell.label}: {outcome.reason}", soft_wrap=True)

    def _status(self, tally: Tally, running: Sequence[Cell], done: bool = False) -> dict[str, Any]:
        return tally.to_dict() | {
            "updated_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "ended": done,
            "running": [cell.label for cell in running][:MOST_TOLD],
            "failures": [
                {"cell": label, "reason": why[:_LONGEST_REASON]}
                for label, why in list(tally.failed.values())[:MOST_TOLD]
            ],
        }

    def _say_before(self, tally: Tally, running: int, cleared: int) -> None:
        for line in told_refused(self._plan):
            self._console.print(line, soft_wrap=True)
        line = f"{tally.cells:,} cells: {tally.before:,} finished before, {running:,} to run"
        if tally.failed:
            line += f", {len(tally.failed):,} failed before (--retry-failed runs them again)"
        elif tally.before == tally.cells:
            line += " (--again runs them all again, beside those that are there)"
        self._console.print(line, soft_wrap=True)
        if cleared:
            what = "cell was" if cleared == 1 else "cells were"
            self._console.print(f"{cleared} {what} cut off or failed: what they left is taken away, and they run again")

    def _bar(self) -> Progress:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[told]}", markup=False),
        )
        hidden = self._quiet or not self._console.is_terminal
        return Progress(*columns, console=self._console, transient=True, disable=hidden)


def told_refused(plan: Plan) -> list[str]:
    """A line for each kind of cell that cannot be had."""
    lines = [f"cannot be had: {one.label} ({one.cells} cells): {one.why}" for one in plan.refused[:MOST_TOLD]]
    if len(plan.refused) > MOST_TOLD:
        lines.append(f"and {len(plan.refused) - MOST_TOLD} more that cannot be had")
    return [*lines, "[[skip]] leaves such cells out"] if lines else []


def told_tally(tally: Tally, out: Path | str) -> list[str]:
    """What is said at the end: how many cells, what failed and why, and what to do with the rest."""
    rate = f" in {seconds_in_words(tally.elapsed_s)}" if tally.done else ""
    busy = ""
    if tally.done and tally.elapsed_s and tally.jobs > 1:
        busy = f", {tally.jobs} processes {100 * tally.busy_s / (tally.elapsed_s * tally.jobs):.0f} % busy"
    lines = [f"{tally.before + tally.done:,} of {tally.cells:,} cells finished: {tally.done:,} now{rate}{busy}"]
    for reason, count in Counter(why for _, why in tally.failed.values()).most_common(MOST_TOLD):
        first = next(label for label, why in tally.failed.values() if why == reason)
        lines.append(f"failed ({count}): {reason}; {first}{' and others' if count > 1 else ''}")
    if tally.interrupted:
        lines.append("ended by the user: the same command goes on where it ended")
    elif tally.failed:
        lines.append("--retry-failed runs them again")
    lines.append(f"bench site build --results {out}, bench compare and bench list read what is there")
    return lines


def seconds_in_words(seconds: float) -> str:
    """A duration as people say it: `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
