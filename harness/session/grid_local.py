"""The cells of a grid on this machine: virtual ones on all cores, real engines one at a time on each set of GPUs."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from harness.core.machine import cores
from harness.session.grid_plan import Cell
from harness.session.grid_worker import STOP, Outcome, serve

# How often the loop looks up where no cell ends.
LOOK_UP_S = 0.25


@dataclass(slots=True)
class _Worker:
    """A process, the cell it runs, and what is left of the pair that it works on."""

    process: Any
    pipe: Connection
    lifeline: Connection
    slot: int
    cell: Cell | None = None
    rest: deque[Cell] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Tick:
    """What a grid tells as it goes: cells that run now, and an outcome where one ended."""

    running: Sequence[Cell]
    outcome: Outcome | None = None
    cell: Cell | None = None


class LocalExecutor:
    """Runs units of cells in processes of this machine; after `stop` no other cell begins.

    `jobs` processes for cells in virtual time (None: one a core); for real engines one process for each of `devices`,
    texts as CUDA_VISIBLE_DEVICES has them, or one.
    """

    def __init__(self, out: Path, jobs: int | None, devices: Sequence[str]) -> None:
        self._out, self._devices = out, list(devices)
        self.jobs = jobs or cores()
        self._stopping = False
        self._workers: list[_Worker] = []
        # Not forked from this process, which has threads; the server that forks them has imported all they need.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["harness.session.grid_worker"])

    def stop(self) -> None:
        """Ends the runs under way readably."""
        self._stopping = True
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.lifeline.send_bytes(STOP)

    def run(self, units: Sequence[Sequence[Cell]], stopped: Callable[[], bool]) -> Iterator[Tick]:
        """Runs all units, real engines before virtual time, and tells of each cell that ended."""
        real = [unit for unit in units if not unit[0].is_virtual]
        # In virtual time the arms of a pair need not share a process.
        virtual = [[cell] for unit in units if unit[0].is_virtual for cell in unit]
        environments = [{"CUDA_VISIBLE_DEVICES": device} for device in self._devices] or [{}]
        yield from self._phase(deque(map(deque, real)), environments, stopped)
        yield from self._phase(deque(map(deque, virtual)), [{}] * self.jobs, stopped)

    def _phase(
        self, waiting: deque[deque[Cell]], environments: Sequence[dict[str, str]], stopped: Callable[[], bool]
    ) -> Iterator[Tick]:
        self._workers = [
            self._started(slot, environment) for slot, environment in enumerate(environments[: len(waiting)])
        ]
        try:
            while True:
                if stopped() and not self._stopping:
                    self.stop()
                for worker in self._workers:
                    self._hand_out(worker, waiting)
                busy = {worker.pipe: worker for worker in self._workers if worker.cell is not None}
                if not busy:
                    return
                running = [worker.cell for worker in busy.values() if worker.cell is not None]
                ready = wait(list(busy), LOOK_UP_S)
                if not ready:
                    yield Tick(running)
                for pipe in ready:
                    worker = busy[pipe]  # type: ignore[index] # `wait` gives back what it was given
                    cell, outcome = worker.cell, self._outcome(worker)
                    worker.cell = None
                    if outcome is None:
                        outcome = self._died(worker, environments)
                    yield Tick([one for one in running if one is not cell], outcome, cell)
        finally:
            self._end()

    def _hand_out(self, worker: _Worker, waiting: deque[deque[Cell]]) -> None:
        """Gives an idle process its next cell."""
        if worker.cell is not None or self._stopping:
            return
        if not worker.rest and waiting:
            worker.rest = waiting.popleft()
        if worker.rest:
            worker.cell = worker.rest.popleft()
            with contextlib.suppress(OSError):
                worker.pipe.send(worker.cell)

    def _outcome(self, worker: _Worker) -> Outcome | None:
        """What a process answered; None where it has died."""
        try:
            answer: Outcome = worker.pipe.recv()
            return answer
        except (EOFError, OSError):
            return None

    def _died(self, worker: _Worker, environments: Sequence[dict[str, str]]) -> Outcome:
        """What became of the cell of a process that has died; another process takes its place."""
        worker.process.join()
        assert worker.cell is None
        code = worker.process.exitcode
        why = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        memory = " (out of memory?)" if code == -signal.SIGKILL else ""
        fresh = self._started(worker.slot, environments[worker.slot])
        fresh.rest = worker.rest
        self._workers[self._workers.index(worker)] = fresh
        return Outcome("", "failed", reason=f"its process ended with {why}{memory}")

    def _started(self, slot: int, environment: dict[str, str]) -> _Worker:
        ours, theirs = self._context.Pipe()
        listening, lifeline = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=serve, args=(theirs, listening, self._out, environment), name=f"bench-grid-{slot}"
        )
        process.start()
        theirs.close()
        listening.close()
        return _Worker(process, ours, lifeline, slot)

    def _end(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.pipe.send(None)
            if worker.cell is not None:
                # Left by an error or a second Ctrl-C: its end of the lifeline closes with ours.
                worker.lifeline.close()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
            worker.lifeline.close()
        self._workers = []
