"""An engine whose counts a test moves by hand, and exclusive batching with a target that the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from policies.core import PartialPrefill, Phase, StepCosts, StepPlan
from policies.online.controller import Target
from policies.online.exclusive import Exclusive
from policies.online.hazard import ExposureEstimator

# Step costs of an H200, as the published ones were.
H200 = StepCosts(
    0.0012785933415095027,
    2.4852551825304505e-05,
    0.008921181622454422,
    4.586467522217373e-05,
    0.0012785933415095027,
    2.493675e-05,
    5.192856e-05,
    1.477785e-05,
)


@dataclass(slots=True)
class Engine:
    """A View whose counts a test moves by hand; `step` does what a plan says, `finish` ends decoding requests."""

    slots: int = 10
    token_budget: int = 1000
    block_size: int = 16
    total_blocks: int = 10_000
    free_blocks: int = 10_000
    watermark_blocks: int = 0
    waiting: int = 0
    prefilling: int = 0
    decoding: int = 0
    queue: list[int] = field(default_factory=list)
    partial: int = 0  # tokens of the partly computed prompt still to compute
    partial_tokens: int = 0

    def waiting_tokens(self) -> Iterator[int]:
        return iter(self.queue)

    def num_output_tokens(self) -> list[int]:
        return list(range(self.decoding, 0, -1))

    def footprints(self) -> list[int]:
        return []

    def partial_prefills(self) -> list[PartialPrefill]:
        return []

    def arrive(self, *prompts: int) -> None:
        self.queue.extend(prompts)
        self.waiting = len(self.queue)

    def finish(self, count: int, blocks_each: int = 1) -> None:
        self.decoding -= count
        self.free_blocks += count * blocks_each

    def step(self, plan: StepPlan) -> int:
        """Takes a step; returns the prompt tokens in it."""
        assert plan.phase is not Phase.MIXED
        if plan.phase is Phase.DECODE:
            assert not plan.admit
            return 0
        budget = self.token_budget
        chunk = min(self.partial, budget)
        self.partial -= chunk
        budget -= chunk
        if chunk and not self.partial:
            self.prefilling, self.decoding = 0, self.decoding + 1
        for _ in range(plan.admit):
            if not budget or not self.queue or self.decoding + self.prefilling >= self.slots:
                break
            tokens = self.queue.pop(0)
            self.free_blocks -= -(-tokens // self.block_size)
            assert self.free_blocks >= 0
            if tokens > budget:
                self.partial, self.prefilling = tokens - budget, 1
                budget = 0
            else:
                budget -= tokens
                self.decoding += 1
        self.waiting = len(self.queue)
        return self.token_budget - budget


class Aim:
    """A controller with a target that the test sets."""

    def __init__(self, k: int, slots: int, growth_tokens: float = 0.0, floor_blocks: int = 0) -> None:
        self.estimator = ExposureEstimator(500)
        self.now = Target(k, slots, k / slots, growth_tokens, floor_blocks)

    def target(self, view: object) -> Target:
        return self.now


def machine(k: int, slots: int = 10, growth_tokens: float = 0.0, floor_blocks: int = 0) -> Exclusive:
    return Exclusive(Aim(k, slots, growth_tokens, floor_blocks))


def fill(policy: Exclusive, engine: Engine) -> list[int]:
    """Steps until the policy decodes; prompt tokens of each prefill step."""
    steps = []
    while (plan := policy.plan(engine)).phase is Phase.PREFILL:
        steps.append(engine.step(plan))
        assert len(steps) < 1000
    return steps
