"""A policy as an engine asks it: where it fails, the engine ends with a line that names the policy and the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from policies.core import Phase, Policy, PolicyState, StepPlan, View

Answer = TypeVar("Answer")


class PolicyFault(RuntimeError):
    """A policy failed or would stall the engine: the line names the policy and the step."""


class AskedPolicy:
    """A policy and what the run calls it.

    `steps` counts those scheduled so far, empty ones left out; `finished` holds the output tokens of what has
    completed since the last plan.
    """

    __slots__ = ("finished", "name", "policy", "steps")

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self.steps = 0
        self.finished: list[int] = []

    def ask(self, what: str, question: Callable[..., Answer], *args: Any) -> Answer:
        """The answer to any question; `what` says which it was."""
        try:
            return question(*args)
        except Exception as error:
            raise self._fault(f"in {what}", error) from error

    def plan(self, view: View) -> StepPlan:
        """What the next step may hold; before it is asked it hears of what has completed."""
        question = "on_finish"
        try:
            if self.finished:
                for output_tokens in self.finished:
                    self.policy.on_finish(output_tokens)
                self.finished.clear()
            question = "plan"
            return self.policy.plan(view)
        except Exception as error:
            raise self._fault(f"in {question}", error) from error

    def tell_of_step(self, prompts: list[int], decodes: int, running: int, first_tokens: int) -> PolicyState | None:
        """Tells it of a step, and of the prompts that it admitted for the first time; what it then holds to be true."""
        policy = self.policy
        try:
            for prompt in prompts:
                policy.on_admit(prompt)
            policy.on_steps(1, decodes, running, first_tokens)
            state = policy.state()
        except Exception as error:
            raise self._fault("when told of it", error) from error
        self.steps += 1
        return state

    def refuse_to_stall(self, plan: StepPlan, waiting: int, held_back: bool) -> None:
        """PolicyFault where an empty step is the policy's doing; `held_back`: its order lets nobody start."""
        if plan.phase is Phase.DECODE or plan.admit <= 0 or held_back:
            raise PolicyFault(
                f"policy {self.name} holds {waiting} requests back at step {self.steps} "
                "while nothing can decode: the engine would spin"
            )

    def _fault(self, where: str, error: Exception) -> PolicyFault:
        return PolicyFault(f"policy {self.name} failed at step {self.steps} {where}: {type(error).__name__}: {error}")
