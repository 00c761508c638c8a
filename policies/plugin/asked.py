"""A policy as an engine asks it: where it fails, the engine ends with a line that names the policy and the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from policies.core import MIXED, Phase, Policy, PolicyState, StepPlan, View
from policies.timed import HearsTime, hearer_of

Answer = TypeVar("Answer")


class PolicyFault(RuntimeError):
    """A policy failed or would stall the engine: the line names the policy and the step."""


class AskedPolicy:
    """A policy and what the run calls it.

    `steps` counts those scheduled so far, empty ones left out; `finished` holds the output tokens of what has
    completed since the last plan. `changed` says that something has happened since then for which a policy is asked
    before its plan has run out; `state` is what it held to be true when it made that.
    """

    __slots__ = (
        "_again_at",
        "_hear",
        "_plan",
        "changed",
        "finished",
        "name",
        "policy",
        "state",
        "steps",
        "tell_of_time",
    )

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self.steps = 0
        self.finished: list[int] = []
        self.changed = True
        self.state: PolicyState | None = None
        self._plan = MIXED
        self._again_at = 0
        self._hear = hearer_of(policy)
        # What tells it of the time that its steps took, where it wants to hear of that and somebody can say.
        self.tell_of_time: Callable[[HearsTime], None] | None = None

    @property
    def hears_time(self) -> bool:
        """The policy wants to be told what its steps took."""
        return self._hear is not None

    def ask(self, what: str, question: Callable[..., Answer], *args: Any) -> Answer:
        """The answer to any question; `what` says which it was."""
        try:
            return question(*args)
        except Exception as error:
            raise self._fault(f"in {what}", error) from error

    def plan(self, view: View) -> StepPlan:
        """What the next step may hold; where the policy is asked it first hears of what has completed."""
        if self.finished:
            self.tell_of_ends()
        if not (self.changed or self.steps >= self._again_at or self._draws(view)):
            return self._plan
        if self._hear is not None and self.tell_of_time is not None:
            self.ask("on_timed_step", self.tell_of_time, self._hear)
        try:
            plan = self._plan = self.policy.plan(view)
            self.state = self.policy.state()
        except Exception as error:
            raise self._fault("in plan", error) from error
        self.changed = False
        self._again_at = self.steps + plan.steps
        return plan

    def tell_of_ends(self) -> None:
        """Tells it of what has completed."""
        try:
            for output_tokens in self.finished:
                self.policy.on_finish(output_tokens)
        except Exception as error:
            raise self._fault("in on_finish", error) from error
        self.finished.clear()
        self.changed = True

    def _draws(self, view: View) -> bool:
        """Whether its own order may let someone start."""
        return view.waiting > 0 and self.policy.order is not None

    def tell_of_step(self, prompts: list[int], decodes: int, running: int, first_tokens: int) -> None:
        """Tells it of a step, and of the prompts that it admitted for the first time."""
        policy = self.policy
        try:
            for prompt in prompts:
                policy.on_admit(prompt)
            policy.on_steps(1, decodes, running, first_tokens)
        except Exception as error:
            raise self._fault("when told of it", error) from error
        self.steps += 1

    def refuse_to_stall(self, plan: StepPlan, waiting: int, held_back: bool) -> None:
        """PolicyFault where an empty step is the policy's doing; `held_back`: its order lets nobody start."""
        if plan.phase is Phase.DECODE or plan.admit <= 0 or held_back:
            raise PolicyFault(
                f"policy {self.name} holds {waiting} requests back at step {self.steps} "
                "while nothing can decode: the engine would spin"
            )

    def _fault(self, where: str, error: Exception) -> PolicyFault:
        return PolicyFault(f"policy {self.name} failed at step {self.steps} {where}: {type(error).__name__}: {error}")
