"""Rows on their way to the run directory, made by a thread that gives way to everything else."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable

import pyarrow as pa

from harness.core.records import COMPLETED
from harness.drive import frames
from harness.drive.plan import Plan
from harness.drive.rows import request_batch
from harness.drive.settings import Result

# What a kill of this process loses, at most, on top of what the driving process still holds.
_LATE_S = 0.5


class Recorder:
    """Takes packed rows from any thread and hands batches (columns of REQUESTS) to a sink in its own.

    `recorded`, `completed`, `errors` (failures by name) and `prompt_tokens_off` count the rows so far. Of completed
    ones `counted` says how their tokens were counted, `events` and `tokens` how many there were, `beyond` how many had
    more than their usage, `echoed` and `foreign` how many bear their own id and another.
    """

    def __init__(self, plan: Plan, sink: Callable[[pa.RecordBatch], None]) -> None:
        self.recorded = 0
        self.completed = 0
        self.prompt_tokens_off = 0
        self.errors: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        self.beyond = self.echoed = self.foreign = self.events = self.tokens = 0
        self._plan = plan
        self._sink = sink
        self._t0_ns = 0
        self._error: BaseException | None = None
        self._recording = threading.Lock()
        self._moved_s = 0.0  # when a row was recorded last, or the first of those that wait was put
        self._payloads: queue.SimpleQueue[tuple[bytes, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="recorder")

    def start(self, t0_ns: int) -> None:
        """Times count from `t0_ns`."""
        self._t0_ns = t0_ns
        self._thread.start()

    def put(self, payload: bytes, offset_ns: int = 0) -> None:
        """Record a RESULTS frame stamped by a clock that is `offset_ns` ahead; raises what the sink raised before."""
        self.check()
        if self._payloads.empty():
            self._moved_s = time.monotonic()
        self._payloads.put((payload, offset_ns))

    def check(self) -> None:
        """Raise what the sink has raised, and record what has waited too long."""
        if self._error is not None:
            raise self._error
        if not self._payloads.empty() and time.monotonic() - self._moved_s > _LATE_S:
            self._catch_up()

    def close(self) -> None:
        """Wait for all that was put."""
        if not self._thread.is_alive():
            return
        self._catch_up()
        self._payloads.put(None)
        self._thread.join()

    def _catch_up(self) -> None:
        # On a busy machine an idle thread hardly comes to run: where it may, it is raised again, for good.
        with contextlib.suppress(AttributeError, OSError):
            os.sched_setscheduler(self._thread.native_id or 0, os.SCHED_OTHER, os.sched_param(0))
        with contextlib.suppress(queue.Empty):
            while (put := self._payloads.get_nowait()) is not None:
                self._record(*put)

    def _run(self) -> None:
        # On a machine of few cores a batch would take one from a driving process for milliseconds, just when
        # tokens arrive. An idle thread is put off its core at once; its rows wait in the queue meanwhile.
        with contextlib.suppress(AttributeError, OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while (put := self._payloads.get()) is not None:
            self._record(*put)

    def _record(self, payload: bytes, offset_ns: int) -> None:
        try:
            with self._recording:
                if self._error is None:
                    self._take(list(frames.unpack(payload)), offset_ns)
        except BaseException as error:  # raised again where the run is watched
            self._error = error
        self._moved_s = time.monotonic()

    def _take(self, results: list[Result], offset_ns: int) -> None:
        planned = self._plan.columns["prompt_tokens"]
        for result in results:
            self.recorded += 1
            if result.finish in COMPLETED:
                self.completed += 1
                self.counted[result.counted] += 1
                self.beyond += result.beyond
                self.events += len(result.stamps)
                self.tokens += result.output_tokens
                self.echoed += result.echoed is True
                self.foreign += result.echoed is False
            if result.error:
                self.errors[result.error.partition(":")[0].partition(" ")[0]] += 1
            if result.prompt_tokens is not None and result.prompt_tokens != planned[result.place]:
                self.prompt_tokens_off += 1
        self._sink(request_batch(results, self._plan, self._t0_ns + offset_ns))
