"""Step costs and policies that no engine has, to tell apart what a real one would hide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from harness.profiles.cost import CostModel
from harness.profiles.linear import Linear
from harness.profiles.roofline import Roofline
from policies.core import Policy, PolicyState, StepCosts, StepPlan, View
from policies.timed import HearsTime, hearer_of


@dataclass(frozen=True, slots=True)
class Flat:
    """Every step costs the same."""

    name: ClassVar[str] = "flat"
    step_s: float = 0.001

    def seconds(
        self, prefill_tokens: int, prefill_work: float, decodes: int, decode_context: int, longest: int
    ) -> float:
        return self.step_s

    def decode_seconds(self, decodes: int, decode_context: int, longest: int, steps: int) -> npt.NDArray[np.float64]:
        return np.full(steps, self.step_s)

    def parameters(self) -> dict[str, float]:
        return {"step_s": self.step_s}


@dataclass(frozen=True, slots=True)
class Telltale:
    """A cost that is another with every other count that a step hands over, up to 0.1 ms."""

    name: ClassVar[str] = "telltale"

    def seconds(
        self, prefill_tokens: int, prefill_work: float, decodes: int, decode_context: int, longest: int
    ) -> float:
        told = (prefill_tokens, round(2 * prefill_work), decodes, decode_context, longest)
        primes = (1009, 10007, 7919, 100003, 31337)
        return (1 + sum(count * prime for count, prime in zip(told, primes, strict=True)) % 99991) / 1e9

    def decode_seconds(self, decodes: int, decode_context: int, longest: int, steps: int) -> npt.NDArray[np.float64]:
        told = [self.seconds(0, 0.0, decodes, decode_context + j * decodes, longest + j) for j in range(steps)]
        return np.array(told, dtype=np.float64)

    def parameters(self) -> dict[str, float]:
        return {}


Seen = tuple[tuple[int, ...], list[int], list[int]]


class Watching:
    """A policy and what it saw and was told: by the number of steps before each ask, and in order."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.order = policy.order
        self.steps = 0
        self.views: dict[int, Seen] = {}
        self.told: list[tuple[str, int]] = []
        self.producing: list[tuple[int, int, int]] = []

    def plan(self, view: View) -> StepPlan:
        counts = (
            view.slots,
            view.token_budget,
            view.block_size,
            view.total_blocks,
            view.free_blocks,
            view.watermark_blocks,
            view.waiting,
            view.prefilling,
            view.decoding,
        )
        self.views[self.steps] = (counts, list(view.waiting_tokens()), list(view.num_output_tokens()))
        return self.policy.plan(view)

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        self.steps += steps
        self.producing += [(decodes, running, first_tokens)] * steps
        self.policy.on_steps(steps, decodes, running, first_tokens)

    @property
    def on_timed_step(self) -> HearsTime | None:
        return hearer_of(self.policy)

    def on_admit(self, prompt_tokens: int) -> None:
        self.told.append(("admit", prompt_tokens))
        self.policy.on_admit(prompt_tokens)

    def on_finish(self, output_tokens: int) -> None:
        self.told.append(("finish", output_tokens))
        self.policy.on_finish(output_tokens)

    def state(self) -> PolicyState | None:
        return self.policy.state()


CHEAP_PREFILL = StepCosts(0.005, 2e-5, 0.012, 2e-4, 0.012, 6e-5, -5e-5, 4e-5)


DEAR_MIXED = StepCosts(0.02, 5e-5, 0.008, 1e-4, 0.03, 2e-4, 3e-4, 1e-4)


CHEAP_MIXED = StepCosts(0.03, 9e-5, 0.006, 1e-4, 0.007, 9e-5, -6e-5, 9e-5)


COSTS = (CHEAP_PREFILL, DEAR_MIXED, CHEAP_MIXED)


MODELS: tuple[CostModel, ...] = (
    *(Linear.of(costs, "published") for costs in COSTS),
    Roofline(weight_read_s=0.018, beta_s=7e-5, kappa_s=1.7e-7, xi_s=2.3e-7, q_s=3e-9),
    Flat(),
    Telltale(),
)
