"""vLLM's own scheduler in virtual time: its decisions are real, a step takes what the cost model says."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import __version__
from harness.core.errors import UserError
from harness.core.records import FINISHES
from harness.core.runspec import RunSpec
from harness.engines.base import Ended, Progress, Status, Stopped, cut_short
from harness.engines.off_grid import OffGrid
from harness.engines.outlived import Outlived
from harness.engines.serving.command import SCHEDULER, plugin_file
from harness.engines.serving.environments import Environment, untested
from harness.engines.serving.scheduler_process import ProcessDied, SchedulerProcess
from harness.engines.simulated import Simulated
from harness.runs.step_log import STEP_LOG
from harness.runs.writer import RunWriter
from harness.simulate.limits import notes_on_too_long
from harness.simulate.rows import REQUEST_FIELDS, Rows, request_batch
from policies.catalog import read_policy
from policies.core import STEP_COLUMNS
from policies.own.file import PolicyFile
from workloads.core.stream import Stream
from workloads.core.trace import Ints

# Ended requests are written together, so many or for so long: what `kill -9` may cost.
_ROWS = 256
_WRITTEN_EVERY_S = 0.2


class Emulated:
    """One run of vLLM's scheduler without a model, ready to go; raises UserError for what the user can mend."""

    kind = "emulated"

    def __init__(
        self,
        spec: RunSpec,
        stream: Stream,
        environment: Environment,
        process: SchedulerProcess,
        profile: str | None = None,
        policy_file: PolicyFile | None = None,
    ) -> None:
        # The same workload, costs and limits as in the virtual-time engine, refused for the same reasons.
        self.virtual = Simulated(spec, stream, profile, policy_file)
        self.policy_file = policy_file
        self.environment = environment
        self.process = process
        if len(stream.levels) > 1:
            raise UserError(
                f"--engine emulated: {spec.arrival} changes its concurrency, which this engine cannot do yet: "
                "replay it with --engine simulated"
            )

    @property
    def notes(self) -> list[str]:
        """Whose scheduler it is, and how the cost of a step is known."""
        pair, version, limits = self.virtual.pair, self.environment.version, self.virtual.limits
        how = pair.describe(self.virtual.spec.cost_model)
        notes = [
            f"emulated: vLLM {version}'s own scheduler in virtual time; {how}",
            *pair.policy_notes(self.virtual.spec.cost_model),
            *notes_on_too_long(self.virtual.stream.trace, limits.max_model_len, limits.cache_tokens),
        ]
        warning = untested(self.environment)
        return notes if warning is None else [*notes, warning]

    @property
    def degraded(self) -> list[str]:
        """What the pair's profile holds against it."""
        return self.virtual.degraded

    def provenance(self) -> dict[str, Any]:
        """vLLM's version and scheduler class, and the cost model, profile and constants as of a simulated run."""
        return self.virtual.provenance() | {
            "engine": "vLLM's scheduler in virtual time",
            "engine_version": f"vLLM {self.environment.version}",
            "engine_packages": self.environment.packages,
            "scheduler_class": SCHEDULER,
            "async_scheduling": False,
            "driver": f"schedbench {__version__}",
        }

    def replay(self, writer: RunWriter, progress: Progress, stopped: Stopped) -> Ended:
        """Replays the stream; ends as the virtual-time engine does, and `failed` where the scheduler failed.

        What it had recorded until then is kept.
        """

        def waits(seconds: float) -> None:
            progress(Status(0, 0.0, 0, doing=f"importing vLLM, {seconds:.0f} s"))

        try:
            if not self.process.ready(stopped, waits):
                return Ended("interrupted", "interrupted by the user while vLLM was imported")
        except ProcessDied as error:
            return Ended("failed", f"vLLM's scheduler did not start: {error}")
        # The step log counts from the run's start; `recover` finds it by this.
        writer.learn({"engine_version": f"vLLM {self.process.version}"}, clock={"origin_ns": 0})
        requests = _EndedRequests(self.virtual, writer, progress)
        try:
            result = self._converse(writer.partial.absolute(), requests, stopped)
        except ProcessDied as error:
            requests.flush()
            return Ended("failed", str(error))
        except BaseException:
            # It is in the middle of a job and would take the next one's answers for this one's.
            self.process.close()
            raise
        requests.flush()
        outlived = (*requests.outlived.notes, *requests.off_grid.notes)
        observed = requests.outlived.observed | requests.off_grid.observed
        if "error" in result:
            answer = str(result["error"])
            # A policy's own mistake says already whose it is, and when.
            told = answer.removeprefix("PolicyFault: ")
            why = (
                told
                if told.startswith("policy ")
                else f"policy {self.virtual.spec.policy}, step {result['step']}: {answer}"
            )
            return Ended("failed", why, outlived, observed)
        if result.get("stopped"):
            return Ended("interrupted", "interrupted by the user", outlived, observed)
        sent = int(result["sent"])
        notes = (*cut_short(self.virtual.spec.max_duration_s, sent, len(self.virtual.stream.trace)), *outlived)
        return Ended(notes=notes, observed=observed | {"planned": {"requests": sent}})

    def _job(self, directory: Path) -> dict[str, Any]:
        """What the process is asked to replay."""
        virtual, stream = self.virtual, self.virtual.stream
        spec, trace = virtual.spec, stream.trace
        name, options = read_policy(spec.policy)
        job: dict[str, Any] = {
            "prompt": trace.prompt_tokens.tolist(),
            "output": trace.output_tokens.tolist(),
            "limits": dataclasses.asdict(virtual.limits),
            "policy": {
                "name": name,
                "options": options,
                "costs": dataclasses.asdict(virtual.costs),
                **plugin_file(directory, spec.policy_sha256),
                **({} if "ttft_s" not in spec.slo else {"ttft_s": spec.slo["ttft_s"]}),
            },
            "cost": "ask",
            "step_log": str(directory / STEP_LOG),
        }
        if virtual.hints is not None:
            job["hints"] = np.stack((virtual.hints.low, virtual.hints.high), axis=1).tolist()
        if stream.due_ns is None:
            job["concurrency"] = stream.concurrency
        else:
            job["due_ns"] = stream.due_ns.tolist()
        if spec.max_duration_s is not None:
            job["last_send_ns"] = round(spec.max_duration_s * 1e9)
        return job

    def _converse(self, directory: Path, requests: _EndedRequests, stopped: Stopped) -> dict[str, Any]:
        """Answers what each step costs until the job is over; its last message, `stopped` where it was cut short."""
        process, cost = self.process, self.virtual.cost
        process.send(self._job(directory))
        halted = False
        steps = 0
        while True:
            message = process.receive()
            if "step" in message:
                steps += 1
                halted = stopped()
                prefill_tokens, work, decodes, context, longest = message["step"]
                seconds = cost.seconds(prefill_tokens, work, decodes, context, longest)
                requests.off_grid.see_asked(prefill_tokens, decodes, context, seconds)
                process.send(-1 if halted else round(seconds * 1e9))
            elif "end" in message:
                requests.add(message["end"])
            elif "done" in message:
                return {**message["done"], "stopped": halted}
            elif "error" in message:
                return {"error": message["error"], "step": steps}
            else:
                raise ProcessDied(f"vLLM's scheduler says {str(message)[:80]}, which is none of its messages")


class _EndedRequests:
    """Requests as they end, written in batches, and what is shown of them."""

    def __init__(self, virtual: Simulated, writer: RunWriter, progress: Progress) -> None:
        self._virtual = virtual
        self._writer = writer
        self._progress = progress
        self.outlived, self.off_grid = Outlived(virtual.hints), OffGrid(virtual.cost)
        self._rows: list[list[int]] = []
        self._gaps: dict[int, Ints] = {}
        self._ended = self._output_tokens = self._now = 0
        self._written = time.monotonic()

    def add(self, end: list[Any]) -> None:
        """One request: row, due, first, last, done (ns), output tokens, preemptions, finish, and its tokens' times."""
        row, due, first, last, done, output, preemptions, finish, times = end
        self._rows.append([row, due, due, first, last, done, output, preemptions, FINISHES.index(finish)])
        if times is not None:
            stamps = np.array(times, dtype=np.int64)
            self._gaps[row] = stamps[1:] - stamps[:-1]
        self._ended += 1
        self._output_tokens += output
        self._now = done
        if len(self._rows) >= _ROWS or time.monotonic() - self._written > _WRITTEN_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Writes what has ended since the last time, and shows how far the run has come."""
        if self._rows:
            rows = Rows(
                requests=np.array(self._rows, dtype=np.int64).reshape(-1, len(REQUEST_FIELDS)),
                steps=np.empty((0, len(STEP_COLUMNS)), dtype=np.int64),
                gaps=self._gaps,
                states=[],
                now_ns=self._now,
                finished=self._ended,
            )
            self.outlived.see(rows.request_column("row"), rows.request_column("output_tokens"))
            self._writer.add_requests(request_batch(rows, self._virtual.stream.trace, self._virtual.limits))
            self._rows, self._gaps = [], {}
        self._written = time.monotonic()
        self._progress(Status(self._ended, self._now / 1e9, self._output_tokens))
