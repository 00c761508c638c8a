"""`drive`: a plan over one or several driving processes, its rows to a sink, its state to whoever watches."""

from __future__ import annotations

import dataclasses
import os
import selectors
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from harness.core.errors import RunFailed, UserError
from harness.drive import frames
from harness.drive.endpoint import Endpoint
from harness.drive.host_clock import Reading
from harness.drive.hosts import Away, Hosts
from harness.drive.plan import Plan, Planned
from harness.drive.process import PIPE_BYTES, Process
from harness.drive.recorder import Recorder
from harness.drive.settings import Settings

# From the last process being ready to the run's start.
_HEADSTART_NS = 20_000_000
# The same where other hosts have to hear of it first.
_HEADSTART_AWAY_NS = 500_000_000
_POLL_S = 0.1
# What a stopped process may take to end before it is killed.
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How a run stands; `max_lag_s` is the longest wait of a due request for its send so far."""

    elapsed_s: float
    sent: int
    in_flight: int
    completed: int
    failed: int
    output_tokens: int
    max_lag_s: float
    cpu_share: float


@dataclass(slots=True)
class Outcome:
    """How a run went.

    `status` is complete, interrupted or failed, `reason` says why it is not complete. `sent` counts requests
    that left; `recorded` those with a row. `errors` counts failures by name. `client` goes into run.json as
    it is: `cpu_share` is of the busiest process, of one core.
    """

    status: str = "complete"
    reason: str | None = None
    sent: int = 0
    recorded: int = 0
    completed: int = 0
    prompt_tokens_off: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    client: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def drive(
    requests: Iterable[Planned],
    endpoint: Endpoint,
    settings: Settings,
    sink: Callable[[pa.RecordBatch], None],
    *,
    processes: int = 1,
    hosts: Hosts | None = None,
    progress: Callable[[Snapshot], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    started: Callable[[int], None] | None = None,
) -> Outcome:
    """Send a plan and hand the rows (columns of REQUESTS) to `sink` as requests end; how it went.

    `sink` is called in a thread of its own. `stopped` is asked ten times a second: True sends nothing more
    and records what is in flight as `cancelled`. The shares of several processes are by session or row, so a
    closed loop's slots are divided among them. With `hosts` their processes drive, and none here. `started` is
    told the run's start, ns of the monotonic clock.
    UserError where the server cannot be reached; what `sink` raises ends the run.
    """
    plan = Plan.write(requests)
    processes = processes if hosts is None else hosts.count
    processes = max(1, min(processes, len(plan), settings.concurrency or len(plan)))
    crew = _Crew(plan, endpoint, settings, processes, sink, hosts)
    try:
        crew.start()
        crew.watch(progress, stopped, started)
        crew.recorder.close()
        crew.recorder.check()
        return crew.outcome()
    finally:
        crew.close()
        plan.close()


class _Crew:
    """The driving processes of one run, from their start to their end; `recorder` keeps their rows."""

    def __init__(
        self,
        plan: Plan,
        endpoint: Endpoint,
        settings: Settings,
        processes: int,
        sink: Callable[[pa.RecordBatch], None],
        hosts: Hosts | None = None,
    ) -> None:
        self._plan = plan
        self._endpoint = endpoint
        self._settings = settings
        self._count = processes
        self.recorder = Recorder(plan, sink)
        self._crew: list[Process | Away] = []
        self._hosts = hosts
        self._clocks: list[Reading] = []
        self._selector = selectors.DefaultSelector()
        self._t0_ns = 0
        self._outcome = Outcome(notes=endpoint.notes())
        self._interrupted = False
        self._stop_at: float | None = None

    def start(self) -> None:
        """Start the processes and, when all have their connections, the run."""
        shares = _divide(self._settings.concurrency, self._count)
        configs = [
            {
                "plan_fd": self._plan.fileno(),
                "plan_shape": self._plan.shape,
                "worker": worker,
                "workers": self._count,
                "endpoint": dataclasses.asdict(self._endpoint),
                "settings": dataclasses.asdict(self._settings) | {"concurrency": share},
            }
            for worker, share in enumerate(shares)
        ]
        if self._hosts is not None:
            self._clocks = self._hosts.read_clocks()
            self._crew += self._hosts.seats(self._plan, configs, self._clocks)
        else:
            for config in configs:
                self._crew.append(Process(config, self._plan.fileno()))
        for process in self._crew:
            self._selector.register(process.read, selectors.EVENT_READ, process)

    def watch(
        self,
        progress: Callable[[Snapshot], None] | None,
        stopped: Callable[[], bool],
        started: Callable[[int], None] | None,
    ) -> None:
        """Record and tell until every process has ended."""
        while not all(process.ended for process in self._crew):
            for key, _ in self._selector.select(_POLL_S):
                self._read(key.data)
            if not self._t0_ns and all(process.ready for process in self._crew):
                headstart_ns = _HEADSTART_NS if self._hosts is None else _HEADSTART_AWAY_NS
                self._t0_ns = time.monotonic_ns() + headstart_ns
                self.recorder.start(self._t0_ns)
                for process in self._crew:
                    process.say(f"go {self._t0_ns + process.offset_ns}")
                if started is not None:
                    started(self._t0_ns)
            self.recorder.check()
            if stopped() and not self._interrupted:
                self._interrupted = True
                self._stop()
            if self._stop_at is not None and time.monotonic() > self._stop_at:
                for process in self._crew:
                    process.kill()
            if progress is not None and self._t0_ns:
                progress(self._snapshot())

    def outcome(self) -> Outcome:
        """What came of it."""
        outcome, recorder = self._outcome, self.recorder
        outcome.recorded, outcome.completed, outcome.errors = recorder.recorded, recorder.completed, recorder.errors
        outcome.prompt_tokens_off = recorder.prompt_tokens_off
        states = self._states()
        outcome.sent = sum(state.get("sent", 0) for state in states)
        outcome.client = self._client(states)
        outcome.status, outcome.reason = self._status(states)
        outcome.notes += _notes_on(outcome)
        return outcome

    def _states(self) -> list[dict[str, Any]]:
        """What each process said last of itself."""
        return [process.final or process.status for process in self._crew]

    def _client(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """What driving took, of all processes together or of the busiest, and how answers were counted."""
        recorder = self.recorder
        waits: list[float] = [state["wait_share"] for state in states if state.get("wait_share") is not None]
        return {
            "processes": self._count,
            "cpu_share": max(state.get("cpu_share", 0.0) for state in states),
            "cpu_share_peak": max(state.get("cpu_share_peak", 0.0) for state in states),
            "wait_share": max(waits, default=None),
            "cpu_s": sum(state.get("cpu_s", 0.0) for state in states),
            "cpu_with_start_s": sum(state.get("cpu_with_start_s", 0.0) for state in states),
            "peak_memory_mb": sum(state.get("peak_memory_mb", 0.0) for state in states),
            "connections": sum(state.get("connections", 0) for state in states),
            "resent": sum(state.get("resent", 0) for state in states),
            "retried": sum(state.get("retried", 0) for state in states),
            "counted": dict(recorder.counted),
            "beyond_usage": recorder.beyond,
            "tokens_per_event": recorder.tokens / recorder.events if recorder.events else None,
            "echoed": recorder.echoed,
            "foreign": recorder.foreign,
            "max_lag_s": max(state.get("max_lag_s", 0.0) for state in states),
            **({} if self._hosts is None else self._hosts.told(self._clocks, self._clocks_after(), states)),
        }

    def _clocks_after(self) -> list[Reading]:
        """The hosts' clocks again; of hosts of which one was lost as they were."""
        assert self._hosts is not None
        lost = any(process.final is None for process in self._crew)
        return self._clocks if lost else self._hosts.read_clocks()

    def _status(self, states: list[dict[str, Any]]) -> tuple[str, str | None]:
        """How the run ended, and why where it is not complete."""
        died = any(process.final is None for process in self._crew)
        if died and not (self._interrupted and not self._t0_ns):
            return "failed", "a driving process died; what it had recorded is kept"
        if self._interrupted:
            return "interrupted", "interrupted by the user"
        reasons = [state["reason"] for state in states if state.get("reason")]
        return ("failed", reasons[0]) if reasons else ("complete", None)

    def close(self) -> None:
        """End every process that is still there, and let go of the pipes."""
        self.recorder.close()
        self._selector.close()
        for process in self._crew:
            process.close()

    def _read(self, process: Process | Away) -> None:
        data = os.read(process.read, PIPE_BYTES)
        for kind, payload in process.frames.feed(data):
            if kind == frames.RESULTS:
                self.recorder.put(payload, process.offset_ns)
            elif kind == frames.READY:
                process.ready = True
            elif kind == frames.STATUS:
                process.status = orjson.loads(payload)
            elif kind == frames.FINAL:
                process.final = final = orjson.loads(payload)
                if final["stopped"] and not self._interrupted:
                    # Something ended it (SIGTERM to all of a group): the others end too.
                    self._interrupted = True
                    self._stop()
            elif kind == frames.REFUSED:
                error = str(orjson.loads(payload)["error"])
                remedy = "" if "ulimit" in error else ": start the server, or correct --url"
                raise UserError(f"{process.where}{error}{remedy}")
        if not data:
            process.ended = True
            self._selector.unregister(process.read)
            if process.final is None and not self._interrupted:
                if not self._t0_ns:
                    where = process.where or "standard error says why"
                    raise RunFailed(f"a driving process ended before the run began; {where}".removesuffix(": "))
                # The others drive less than the plan: what they measure from here on is another run.
                self._stop()

    def _stop(self) -> None:
        self._stop_at = time.monotonic() + _STOP_S
        for process in self._crew:
            process.say("stop")

    def _snapshot(self) -> Snapshot:
        states = self._states()
        return Snapshot(
            elapsed_s=max(time.monotonic_ns() - self._t0_ns, 0) / 1e9,
            sent=sum(state.get("sent", 0) for state in states),
            in_flight=sum(state.get("in_flight", 0) for state in states),
            completed=self.recorder.completed,
            failed=self.recorder.recorded - self.recorder.completed,
            output_tokens=sum(state.get("output_tokens", 0) for state in states),
            max_lag_s=max(state.get("max_lag_s", 0.0) for state in states),
            cpu_share=max(state.get("cpu_share", 0.0) for state in states),
        )


def _notes_on(outcome: Outcome) -> list[str]:
    """What to say of a run beside its status."""
    notes, resent, retried = [], outcome.client["resent"], outcome.client["retried"]
    if resent:
        notes.append(
            f"{resent} requests went out again on a new connection, since the server closed the idle one that they "
            "were on; their times count from the first send"
        )
    if retried:
        notes.append(
            f"{retried} answers were 429 and their requests went out again, as asked; their times count from the "
            "first send"
        )
    if outcome.prompt_tokens_off:
        notes.append(f"{outcome.prompt_tokens_off} prompts have another length by the server's count than planned")
    return notes


def _divide(concurrency: int | None, parts: int) -> list[int | None]:
    """Slots of a closed loop over processes; None for each of an open one."""
    if concurrency is None:
        return [None] * parts
    return [concurrency // parts + (i < concurrency % parts) for i in range(parts)]
