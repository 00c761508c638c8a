"""A policy as an engine asks it: where it fails, the engine ends with a line that names the policy and the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from policies.core import (
    LONGEST_HOLD_S,
    MIXED,
    UNLIMITED,
    Phase,
    Policy,
    PolicyFault,
    PolicyState,
    StepPlan,
    View,
    due_ns,
)
from policies.timed import HearsTime, hearer_of

Answer = TypeVar("Answer")


class AskedPolicy:
    """A policy and what the run calls it.

    `steps` counts those scheduled so far, empty ones left out; `finished` holds the output tokens of what has
    completed since the last plan. `changed` says that something has happened since then for which a policy is asked
    before its plan has run out; `state` is what it held to be true when it made that.
    """

    __slots__ = (
        "_again_at",
        "_again_ns",
        "_hear",
        "_held_since_ns",
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
        self._again_ns = UNLIMITED
        self._held_since_ns = -1  # while an order to hold all back stands, else -1
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

    def plan(self, view: View, now_ns: int = 0) -> StepPlan:
        """What the next step may hold; where the policy is asked it first hears of what has completed."""
        if self.finished:
            self.tell_of_ends()
        if not (self.changed or self.steps >= self._again_at or now_ns >= self._again_ns or self._draws(view)):
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
        self._again_ns = due_ns(plan.again_at_s)
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
        self._held_since_ns = -1

    def hold(self, plan: StepPlan, waiting: int, held_back: bool, now_ns: int) -> float:
        """How long to wait after an empty step, s; `held_back`: the policy's order lets nobody start.

        PolicyFault where the step is empty by the policy's doing and it names no time to be asked again.
        """
        if plan.phase is not Phase.DECODE and plan.admit > 0 and not held_back:
            return 0.0
        if self._held_since_ns < 0:
            self._held_since_ns = now_ns
        if self._again_ns == UNLIMITED or self._again_ns <= now_ns:
            raise PolicyFault(
                f"policy {self.name} holds {waiting} requests back at step {self.steps} "
                "while nothing can decode: the engine would spin"
            )
        if now_ns - self._held_since_ns > LONGEST_HOLD_S * 1e9:
            raise PolicyFault(
                f"policy {self.name} holds {waiting} requests back at step {self.steps} "
                f"for more than {LONGEST_HOLD_S:g} s while nothing runs"
            )
        return (self._again_ns - now_ns) / 1e9

    def _fault(self, where: str, error: Exception) -> PolicyFault:
        if isinstance(error, PolicyFault):
            return error
        return PolicyFault(f"policy {self.name} failed at step {self.steps} {where}: {type(error).__name__}: {error}")
