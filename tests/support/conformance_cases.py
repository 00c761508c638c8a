"""Random cases for vLLM's own scheduler, and the comparison of what it made of them with ours."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from harness.profiles.cost import CostModel
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import FINISH_TOO_LONG, Rows
from policies.catalog import make_policy
from policies.core import STEP_COLUMNS, Policy, PolicyState, StepCosts
from tests.support.emulated_engine import Replayed
from tests.support.oracle import Oracle
from tests.support.oracle_rows import Counts
from workloads.core.arrivals import Closed, Constant
from workloads.core.stream import Stream
from workloads.core.trace import Trace

Ints = npt.NDArray[np.int64]

TRACES = int(os.environ.get("BENCH_CONFORMANCE_TRACES", "30"))
FROZEN = 10**9  # completions between updates: the estimates of the first one stay
WITHOUT_STATE = slice(0, STEP_COLUMNS.index("state"))
COUNTED = ("steps", "chunked prompts", "preemptions", "rejected prompts")


@dataclass(frozen=True, slots=True)
class Nanosecond:
    """Every step takes 1 ns, so that due times count steps."""

    name: ClassVar[str] = "nanosecond"

    def seconds(
        self, prefill_tokens: int, prefill_work: float, decodes: int, decode_context: int, longest: int
    ) -> float:
        return 1e-9

    def decode_seconds(self, decodes: int, decode_context: int, longest: int, steps: int) -> npt.NDArray[np.float64]:
        return np.full(steps, 1e-9)

    def parameters(self) -> dict[str, float]:
        return {}


def told_ns(prefill_tokens: int, prefill_work: float, decodes: int, decode_context: int, longest: int) -> int:
    """A duration, ns, that is another with every other content of a step."""
    counts = (prefill_tokens, round(2 * prefill_work), decodes, decode_context, longest)
    return 1 + sum(n * prime for n, prime in zip(counts, (1009, 10007, 7919, 100003, 31337), strict=True)) % 997


@dataclass(frozen=True, slots=True)
class Told:
    """The same as a cost model."""

    name: ClassVar[str] = "told"

    def seconds(
        self, prefill_tokens: int, prefill_work: float, decodes: int, decode_context: int, longest: int
    ) -> float:
        return told_ns(prefill_tokens, prefill_work, decodes, decode_context, longest) / 1e9

    def decode_seconds(self, decodes: int, decode_context: int, longest: int, steps: int) -> npt.NDArray[np.float64]:
        return np.array(
            [self.seconds(0, 0.0, decodes, decode_context + j * decodes, longest + j) for j in range(steps)]
        )

    def parameters(self) -> dict[str, float]:
        return {}


@dataclass(frozen=True, slots=True)
class Case:
    """A random trace, engine and policy."""

    seed: int
    stream: Stream
    limits: EngineLimits
    name: str
    options: dict[str, str]
    costs: StepCosts | None

    def job(self, arrivals: str, late: bool, cost: int | str) -> dict[str, Any]:
        job: dict[str, Any] = {
            "prompt": self.stream.trace.prompt_tokens.tolist(),
            "output": self.stream.trace.output_tokens.tolist(),
            "limits": asdict(self.limits),
            "policy": {
                "name": self.name,
                "options": self.options,
                "costs": None if self.costs is None else asdict(self.costs),
            },
            "async": late,
            "cost": cost,
        }
        if self.stream.due_ns is None:
            return {**job, "concurrency": self.stream.concurrency}
        return {**job, arrivals: self.stream.due_ns.tolist()}

    def policy(self) -> Policy:
        return make_policy(self.name, self.options, self.limits.slots, self.costs)

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.name} {self.options} on {self.limits}"


def random_policy(rng: random.Random, slots: int) -> tuple[str, dict[str, str]]:
    k = str(rng.randint(1, slots))
    return rng.choice(
        [
            ("v1", {}),
            ("v1", {}),
            ("v1", {}),
            ("v0", {}),
            ("v0", {}),
            ("eb", {"k": k}),
            ("eb", {"k": k, "update_every": "10", "window": "20"}),
            ("eb", {"update_every": str(FROZEN)}),
            ("eb", {"update_every": "15", "window": "40"}),
            ("eb", {"update_every": "15", "window": "40", "gate": "forecast"}),
            ("eb", {"k": k, "gate": "forecast"}),
            ("mb", {"k": k}),
            ("adaptive", {}),
            ("adaptive", {"ttft": "1e-07"}),
            (
                "ebplus",
                {"update_every": "7", "window": "40", "cooldown": "1", "delta": str(rng.choice([-1e-4, 0, 1e-4]))},
            ),
        ]
    )


def random_case(seed: int, spread: int = 1) -> Case:
    """`spread` stretches the due times, ns a step."""
    rng = random.Random(seed)
    n = rng.randint(30, 100)
    longest_prompt, longest_output = rng.choice([(20, 60), (120, 40), (300, 100), (60, 150)])
    prompts = [rng.randint(1, longest_prompt) for _ in range(n)]
    outputs = [rng.randint(1, longest_output) for _ in range(n)]
    for row in rng.sample(range(n), n // 8):
        prompts[row] += 10_000  # these fit nowhere
    slots = rng.choice([2, 5, 16, 40])
    block_size = rng.choice([4, 16])
    one = -(-(longest_prompt + longest_output) // block_size)
    blocks = 1 + max(one, round(one * slots * rng.choice([0.1, 0.2, 0.4, 1.0])))
    limits = EngineLimits(
        slots=slots,
        token_budget=max(slots, rng.choice([slots, 48, 128, 1024])),
        kv_blocks=blocks,
        block_size=block_size,
        max_model_len=rng.choice([longest_prompt + longest_output, 4096]),
        watermark=rng.choice([0.0, 0.0, 0.05]),
    )
    trace = Trace("random", np.array(prompts), np.array(outputs))
    if rng.random() < 0.3:
        stream = Stream(trace, Closed(rng.randint(1, 2 * slots)), None)
    else:
        gap = rng.choice([0.0, 0.5, 3.0, 12.0]) * spread
        due = np.cumsum([round(rng.expovariate(1) * gap) for _ in range(n)])
        stream = Stream(trace, Constant(1.0), due.astype(np.int64))
    name, options = random_policy(rng, slots)
    ratio = rng.choice([1e-2, 1e-3])
    costs = StepCosts(ratio, 1e-4, ratio, 1e-4, ratio, rng.choice([1e-4, 1e-3]), 1e-4, 0.0)
    return Case(seed, stream, limits, name, options, costs)


def simulated(case: Case, cost: CostModel) -> tuple[Ints, Ints, list[PolicyState]]:
    """Steps, requests and states of the virtual-time engine."""
    chunks: list[Rows] = []

    def keep(chunk: Rows) -> bool:
        chunks.append(chunk)
        return True

    assert BatchLoop(case.stream, case.policy(), cost, case.limits).run(keep)
    steps = np.concatenate([chunk.steps for chunk in chunks])
    return steps, np.concatenate([chunk.requests for chunk in chunks]), chunks[-1].states


def plain(case: Case, cost: CostModel) -> Oracle:
    """The plain oracle's run, which counts what happened."""
    return Oracle(case.stream, case.policy(), cost, case.limits).run()


def check_steps(case: Case, ours: Ints, theirs: Ints, first: int = 0) -> None:
    """Equal from column `first` on; the message shows the first step that is not."""
    for i, (our, their) in enumerate(zip(ours.tolist(), theirs.tolist(), strict=False)):
        wrong = {
            name: (a, b) for name, a, b in zip(STEP_COLUMNS[first:], our[first:], their[first:], strict=False) if a != b
        }
        assert not wrong, f"{case}: step {i}: (ours, vLLM's) {wrong}; ours {our}; vLLM's {their}"
    assert len(ours) == len(theirs), str(case)


def check_requests(case: Case, ours: Ints, theirs: Replayed) -> None:
    rows = [[*end[:7], FINISH_TOO_LONG if end[7] == "too_long" else 0] for end in theirs.ends]
    # row, due, first, last, done, output_tokens, preemptions, finish: ours has `sent` after `due`
    expected = np.delete(ours, 2, axis=1)
    assert sorted(rows) == sorted(expected.tolist()), str(case)


def check_ends(case: Case, ours: list[list[int]], theirs: Replayed) -> None:
    """Row, output tokens and preemptions of each request."""
    assert sorted(ours) == sorted([end[0], end[5], end[6]] for end in theirs.ends), str(case)


def check_states(case: Case, steps: Ints, states: list[PolicyState], theirs: Replayed) -> None:
    ours = [states[i] for i in steps[:, -1].tolist()]
    assert ours == [theirs.log.states[i] for i in theirs.log.rows[:, -1].tolist()], str(case)


def count(case: Case, replayed: Replayed, seen: Counts, counts: Counter[str]) -> None:
    events = Counter(replayed.log.events["event"].to_pylist())
    assert events["arrival"] == events["finish"], str(case)
    # With asynchronous scheduling a request may lose its slot while its last token is on the way.
    assert events["admission"] <= events["arrival"] + events["preemption"], str(case)
    counts["traces"] += 1
    counts[f"traces of {case.name}"] += 1
    for what, n in (
        ("steps", len(replayed.log.rows)),
        ("chunked prompts", seen.chunked),
        ("preemptions", events["preemption"]),
        ("rejected prompts", seen.rejected),
        ("prefill steps that decoded instead", seen.empty_prefills),
        ("admissions held by the watermark", seen.watermark_held),
    ):
        counts[what] += n


def check_counts(form: str, counts: Counter[str]) -> None:
    print(f"\n{form}:", ", ".join(f"{n:,} {what}" for what, n in sorted(counts.items())))
    for what in COUNTED:
        assert counts[what] > 100, f"{what}: {counts[what]}: too few to show anything"
