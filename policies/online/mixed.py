"""v1: mixed batching, where prefill chunks and decodes share each step."""

from __future__ import annotations

from policies.core import MIXED, Order, PolicyState, StepPlan, View

_STATE = PolicyState(mode="MB")


class Mixed:
    """The engine's own rule with chunked prefill, first come first served or in the order given."""

    __slots__ = ("order",)

    def __init__(self, order: Order | None = None) -> None:
        self.order = order

    def plan(self, view: View) -> StepPlan:
        """Always mixed, admission up to the engine's own limits."""
        return MIXED

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """Not looked at: nothing is estimated."""

    def on_admit(self, prompt_tokens: int, /) -> None:
        """Not looked at: nothing is estimated."""

    def on_finish(self, output_tokens: int, /) -> None:
        """Not looked at: nothing is estimated."""

    def state(self) -> PolicyState:
        """Mode MB; nothing else is held to be true."""
        return _STATE
