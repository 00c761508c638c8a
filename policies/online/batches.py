"""mb: mixed batching that admits in batches of k, within the forecast of KV."""

from __future__ import annotations

from policies.core import Order, PolicyState, StepPlan, View
from policies.online.forecast import ForecastGate
from policies.online.turns import Turns


class Batches:
    """v1 with a fixed k: decode steps alone until k slots are free and k requests wait, then mixed steps."""

    __slots__ = ("_gate", "_state", "_turns", "on_admit", "on_finish", "on_timed_step", "order")

    def __init__(self, k: int) -> None:
        self.order: Order | None = None
        self._gate = gate = ForecastGate()
        self._turns = Turns(gate, k)
        self.on_admit = gate.on_admit
        self.on_finish = gate.on_finish
        self.on_timed_step = gate.on_timed_step
        self._state = PolicyState(k=k, mode="MB", z=0.0)

    def plan(self, view: View) -> StepPlan:
        """Decode, or admit beside decoding."""
        return self._turns.plan(view, self._turns.due(view))

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """Not looked at."""

    def state(self) -> PolicyState:
        """k, and the standard deviations that the gate keeps free."""
        if self._state.z != self._gate.z:
            self._state = PolicyState(k=self._turns.k, mode="MB", z=self._gate.z)
        return self._state
