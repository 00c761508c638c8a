"""Random traces and engines to try a policy on: bursts, closed loops, tight KV caches, prompts of several steps."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from harness.simulate.limits import EngineLimits
from policies.core import StepCosts
from workloads.core.arrivals import Closed, Constant
from workloads.core.stream import Stream
from workloads.core.trace import Trace

COSTS = StepCosts(0.01, 1e-4, 0.01, 1e-4, 0.01, 1e-4, 1e-4, 0.0)


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """A random trace and engine; `number` makes it again."""

    number: int
    stream: Stream
    limits: EngineLimits

    def __str__(self) -> str:
        limits, stream = self.limits, self.stream
        load = f"{stream.concurrency} in flight" if stream.due_ns is None else "by the clock"
        return (
            f"case {self.number} ({len(stream.trace)} requests {load}, {limits.slots} slots, "
            f"{limits.token_budget} tokens a step, {limits.kv_blocks} KV blocks of {limits.block_size})"
        )


def policy_case(number: int) -> PolicyCase:
    """The case of this number."""
    rng = random.Random(number)  # noqa: S311 - a case, no secret
    n = rng.randint(30, 90)
    longest_prompt, longest_output = rng.choice([(20, 60), (120, 40), (300, 100), (60, 150)])
    prompts = [rng.randint(1, longest_prompt) for _ in range(n)]
    outputs = [rng.randint(1, longest_output) for _ in range(n)]
    slots = rng.choice([1, 2, 5, 16, 40])
    block_size = rng.choice([4, 16])
    one = -(-(longest_prompt + longest_output) // block_size)
    limits = EngineLimits(
        slots=slots,
        token_budget=max(slots, rng.choice([slots, 48, 128, 1024])),
        kv_blocks=1 + max(one, round(one * slots * rng.choice([0.1, 0.2, 0.4, 1.0]))),
        block_size=block_size,
        max_model_len=4096,
        watermark=rng.choice([0.0, 0.0, 0.05]),
    )
    trace = Trace("random", np.array(prompts), np.array(outputs))
    if rng.random() < 0.4:
        return PolicyCase(number, Stream(trace, Closed(rng.randint(1, 2 * slots)), None), limits)
    gap_ns = rng.choice([0.0, 2e6, 1e7, 6e7, 1e9])
    due = np.cumsum([round(rng.expovariate(1) * gap_ns) for _ in range(n)]).astype(np.int64)
    return PolicyCase(number, Stream(trace, Constant(1.0), due), limits)


def speed_case() -> PolicyCase:
    """Enough requests for 1,024 slots, all at once."""
    rng = random.Random(0)  # noqa: S311 - a case, no secret
    lengths = [(rng.randint(16, 400), rng.randint(32, 400)) for _ in range(2500)]
    trace = Trace("random", np.array([p for p, _ in lengths]), np.array([o for _, o in lengths]))
    limits = EngineLimits(slots=1024, token_budget=8192, kv_blocks=60_000, block_size=16, max_model_len=4096)
    return PolicyCase(-1, Stream(trace, Closed(2048), None), limits)


def step_ns(prefill_tokens: int, prefill_work: float, decodes: int, context: int, longest: int) -> int:
    """What a step takes, ns: about as on a GPU, and another with every other content."""
    counts = (prefill_tokens, round(2 * prefill_work), decodes, context, longest)
    odd = sum(n * prime for n, prime in zip(counts, (1009, 10007, 7919, 100003, 31337), strict=True)) % 997
    return 8_000_000 + 90_000 * prefill_tokens + 20_000 * decodes + odd


@dataclass(frozen=True, slots=True)
class CaseCost:
    """`step_ns` as a cost model."""

    name: ClassVar[str] = "case"

    def seconds(
        self, prefill_tokens: int, prefill_work: float, decodes: int, decode_context: int, longest: int
    ) -> float:
        """Seconds of a step."""
        return step_ns(prefill_tokens, prefill_work, decodes, decode_context, longest) / 1e9

    def decode_seconds(self, decodes: int, decode_context: int, longest: int, steps: int) -> npt.NDArray[np.float64]:
        """Seconds of each of so many decode steps."""
        ahead = range(steps)
        return np.array([self.seconds(0, 0.0, decodes, decode_context + j * decodes, longest + j) for j in ahead])

    def parameters(self) -> dict[str, float]:
        """None: it is no model of anything."""
        return {}
