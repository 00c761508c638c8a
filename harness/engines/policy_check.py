"""A user's policy tried on random traces: does it go on, decide alike each time, and starve nobody?

Here it is asked by the virtual engine, and by vLLM's own scheduler where a Python with vLLM is at hand: the steps must
be the same.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.engines.policy_cases import COSTS, CaseCost, PolicyCase, policy_case, speed_case, step_ns
from harness.engines.serving.scheduler_process import ProcessDied, SchedulerProcess
from harness.runs.step_log import STEP_LOG, read_step_log
from harness.simulate.batch import BatchLoop
from harness.simulate.rows import Rows, joined
from policies.core import STEP_COLUMNS, Order, PolicyError, PolicyFault, View, WaitingRequest
from policies.own.checked import Checked
from policies.own.file import PolicyFile
from policies.own.load import make_own
from workloads.core.trace import Ints

WITHOUT_STATE = slice(0, STEP_COLUMNS.index("state"))
# Plans that are timed.
MOST_TIMED = 1500


@dataclass(frozen=True, slots=True)
class Tried:
    """What the virtual engine made of a policy.

    `problems` are lines; `steps` and `own` have of each case its step rows and the policy's own columns, for as many
    cases as there were; `overtakes` is the most requests that started before one that came earlier; `plan_us` the
    median and the 99th percentile of a plan at 1,024 slots.
    """

    problems: tuple[str, ...]
    cases: int = 0
    step_count: int = 0
    preemptions: int = 0
    overtakes: int = 0
    plan_us: tuple[float, float] | None = None
    steps: tuple[Ints, ...] = ()
    own: tuple[tuple[tuple[float, ...] | None, ...], ...] = ()


def try_policy(asked: tuple[PolicyFile, Mapping[str, str], int]) -> Tried:
    """Tries a policy of a file with its options on so many cases; the first problem ends the trial."""
    file, given, cases = asked
    steps: list[Ints] = []
    own: list[tuple[tuple[float, ...] | None, ...]] = []
    count = preemptions = overtakes = 0
    for number in range(cases):
        case = policy_case(number)
        try:
            first, most = _replay(case, make_own(file, given, case.limits.slots, COSTS))
            again, _ = _replay(case, make_own(file, given, case.limits.slots, COSTS), leap=False)
        except (PolicyFault, PolicyError) as fault:
            line = str(fault).replace("the policy", f"policy {file.name}", 1)
            return Tried((f"{line}, in {case}",), number)
        if why := _difference(first.steps, again.steps):
            return Tried((f"decides otherwise when run again, {why}, in {case}: does it draw at random?",), number)
        steps.append(first.steps[:, WITHOUT_STATE])
        own.append(_own_of(first.steps, first.states))
        count += len(first.steps)
        preemptions += int(first.step_column("preempted").sum())
        overtakes = max(overtakes, most)
    problems = []
    declared = getattr(make_own(file, given, 1, COSTS).policy, "MAX_OVERTAKES", 0)
    if declared is not None and overtakes > declared:
        problems.append(
            f"{overtakes} requests started before one that came earlier, MAX_OVERTAKES allows {declared}: "
            "declare more, or None where a request may wait without end"
        )
    try:
        timed = _plan_us(make_own(file, given, 1024, COSTS))
    except PolicyFault as fault:
        return Tried((*problems, f"{fault}, with 1,024 slots"), cases)
    return Tried(tuple(problems), cases, count, preemptions, overtakes, timed, tuple(steps), tuple(own))


def _replay(case: PolicyCase, policy: Checked, leap: bool = True) -> tuple[Rows, int]:
    """The rows of a case, and the most requests that started before one that came earlier."""
    parts: list[Rows] = []
    counting = None
    if policy.order is not None:
        counting = policy.order = CountingOrder(policy.order)
    loop = BatchLoop(case.stream, policy, CaseCost(), case.limits, leap=leap, ttft_s=1.0)
    loop.run(lambda rows: _keep(parts, rows))
    return joined(parts), 0 if counting is None else counting.most


def _keep(parts: list[Rows], rows: Rows) -> bool:
    parts.append(rows)
    return True


def _own_of(steps: Ints, states: Sequence[Any]) -> tuple[tuple[float, ...] | None, ...]:
    return tuple(None if at < 0 else states[at].own for at in steps[:, -1].tolist())


def _difference(ours: Ints, theirs: Ints) -> str | None:
    """The first step in which two replays differ, in words."""
    for step, (left, right) in enumerate(zip(ours.tolist(), theirs.tolist(), strict=False)):
        for name, one, other in zip(STEP_COLUMNS, left, right, strict=False):
            if one != other and name != "state":
                return f"step {step}: {name} is {one:,} and {other:,}"
    return None if len(ours) == len(theirs) else f"{len(ours):,} steps and {len(theirs):,}"


def _plan_us(policy: Checked) -> tuple[float, float]:
    """Median and 99th percentile of what a plan takes at 1,024 slots, µs."""
    taken: list[float] = []
    plan = policy.plan

    def timed(view: View) -> Any:
        begun = time.perf_counter()
        answer = plan(view)
        taken.append(time.perf_counter() - begun)
        return answer

    policy.plan = timed  # type: ignore[method-assign] # this one object's
    case = speed_case()
    loop = BatchLoop(case.stream, policy, CaseCost(), case.limits, ttft_s=1.0)
    loop.run(lambda _: len(taken) < MOST_TIMED, every=256)
    median, high = np.percentile(taken, (50, 99))
    return float(median) * 1e6, float(high) * 1e6


class CountingOrder:
    """A policy's order that counts how many requests start before one that came earlier."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._waiting: dict[Hashable, int] = {}  # those that never ran, by their number in order of arrival
        self._passed: dict[Hashable, int] = {}
        self._arrivals = 0
        self.most = 0

    def push(self, request: WaitingRequest) -> None:
        """A request has arrived."""
        self._arrivals += 1
        self._waiting[request.request_id] = self._arrivals
        self._order.push(request)

    def push_front(self, request: WaitingRequest) -> None:
        """A request was preempted."""
        self._order.push_front(request)

    def peek(self, view: View) -> WaitingRequest | None:
        """The request that is to start now."""
        return self._order.peek(view)

    def pop(self, view: View) -> WaitingRequest:
        """Takes it out, and counts those that it passes."""
        request = self._order.pop(view)
        number = self._waiting.pop(request.request_id, None)
        if number is not None:
            for other, before in self._waiting.items():
                if before < number:
                    self._passed[other] = self._passed.get(other, 0) + 1
                    self.most = max(self.most, self._passed[other])
        return request

    def remove(self, request_id: Hashable) -> None:
        """A waiting request was aborted."""
        self._order.remove(request_id)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[WaitingRequest]:
        return iter(self._order)


def hold_against_vllm(
    file: PolicyFile, given: Mapping[str, str], tried: Tried, cases: int, process: SchedulerProcess
) -> list[str]:
    """A line on the first case in which vLLM's scheduler makes other steps; none where it makes the same.

    The process starts where it does not run yet.
    """
    try:
        process.ready(lambda: False, lambda _: None)
        for number in range(min(cases, len(tried.steps))):
            case = policy_case(number)
            with tempfile.TemporaryDirectory(prefix="bench-policy-") as place:
                why = _against(process, file, given, case, tried, Path(place) / STEP_LOG)
            if why is not None:
                return [f"{why}, in {case}"]
        return []
    except ProcessDied as error:
        return [str(error)]


def _against(
    process: SchedulerProcess, file: PolicyFile, given: Mapping[str, str], case: PolicyCase, tried: Tried, log: Path
) -> str | None:
    """How vLLM's scheduler differs in a case; None where it does not."""
    process.send(_job(file, given, case, log))
    while "done" not in (message := process.receive()):
        if "step" in message:
            process.send(step_ns(*message["step"]))
        elif "error" in message:
            return f"on vLLM's scheduler: {message['error']}"
    made = read_step_log(log, 0)
    if why := _difference(tried.steps[case.number], made.rows[:, WITHOUT_STATE]):
        return f"the virtual engine and vLLM's scheduler part ways, {why}"
    own = tuple(None if at < 0 else made.states[at].own for at in made.rows[:, -1].tolist())
    if own != tried.own[case.number]:
        return "the policy's own columns differ between the virtual engine and vLLM's scheduler"
    return None


def _job(file: PolicyFile, given: Mapping[str, str], case: PolicyCase, log: Path) -> dict[str, Any]:
    stream = case.stream
    job: dict[str, Any] = {
        "prompt": stream.trace.prompt_tokens.tolist(),
        "output": stream.trace.output_tokens.tolist(),
        "limits": dataclasses.asdict(case.limits),
        "policy": {
            "name": file.name,
            "options": dict(given),
            "costs": dataclasses.asdict(COSTS),
            "file": str(Path(file.path).expanduser().absolute()),
            "sha256": file.sha256,
            "ttft_s": 1.0,
        },
        "cost": "ask",
        "step_log": str(log),
    }
    if stream.due_ns is None:
        return {**job, "concurrency": stream.concurrency}
    return {**job, "due_ns": stream.due_ns.tolist()}
