"""v1: mixed batching, where prefill chunks and decodes share each step."""

from __future__ import annotations

from policies.core import MIXED, UNLIMITED, Order, Phase, PolicyState, StepPlan, View

_STATE = PolicyState(mode="MB")


class Mixed:
    """The engine's own rule with chunked prefill, first come first served or in the order given.

    `budget` is the most tokens of a step, prompts and decodes, where the engine's own is larger.
    """

    __slots__ = ("_budget", "order")

    def __init__(self, order: Order | None = None, budget: int | None = None) -> None:
        self.order = order
        self._budget = budget

    def plan(self, view: View) -> StepPlan:
        """Always mixed, admission up to the engine's own limits."""
        if self._budget is None or self._budget >= view.token_budget:
            return MIXED
        return StepPlan(Phase.MIXED, UNLIMITED, UNLIMITED, max(1, self._budget - view.decoding))

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """Not looked at: nothing is estimated."""

    def on_admit(self, prompt_tokens: int, /) -> None:
        """Not looked at: nothing is estimated."""

    def on_finish(self, output_tokens: int, /) -> None:
        """Not looked at: nothing is estimated."""

    def state(self) -> PolicyState:
        """Mode MB; nothing else is held to be true."""
        return _STATE
