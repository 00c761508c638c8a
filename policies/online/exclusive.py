"""Exclusive batching: prefill phases and decode phases take turns (arXiv 2606.00516, EB(k) and EB(k*))."""

from __future__ import annotations

from policies.core import DECODE, Order, Phase, PolicyState, StepPlan, View
from policies.online.controller import Controller, Target
from policies.online.forecast import ForecastGate, both
from policies.timed import HearsTime


class Exclusive:
    """The phase machine of EB with a fixed or an online threshold.

    A decode phase ends when at least k slots are free and at least k requests wait, or when nothing is left
    to decode. A prefill phase goes on until the free slots are filled, the queue is empty or the KV gate
    closes. Where the gate, not N, ended the last fill, N_eff is the batch that it reached: slots count as
    free from there and the threshold shrinks with it, or "k slots are free" would always be true.
    The gate is the controller's reserve, or `gate` where it is given.
    """

    __slots__ = (
        "_filling",
        "_logged",
        "_n_eff",
        "_state",
        "_target",
        "controller",
        "gate",
        "on_admit",
        "on_finish",
        "on_timed_step",
        "order",
    )

    def __init__(self, controller: Controller, gate: ForecastGate | None = None) -> None:
        self.order: Order | None = None
        self.controller = controller
        self.gate = gate
        self.on_admit = controller.estimator.on_admit
        self.on_finish = controller.estimator.on_finish
        if gate is not None:
            self.on_admit = both(gate.on_admit, self.on_admit)
            self.on_finish = both(gate.on_finish, self.on_finish)
            self.on_timed_step: HearsTime = gate.on_timed_step
        self._filling = False
        self._n_eff: int | None = None
        self._target: Target | None = None
        self._logged: tuple[Target | None, int | None] = (None, None)
        self._state = PolicyState(mode="EB")

    def plan(self, view: View) -> StepPlan:
        """The next step: more prefill, or decode."""
        target = self._target = self.controller.target(view)
        if self._filling or view.prefilling:
            admit = self._admissible(view, target)
            if admit or view.prefilling:
                self._filling = True
                return StepPlan(Phase.PREFILL, admit)
            self._end_fill(view, target)
        if not view.waiting:
            return DECODE
        if not view.decoding:
            # Liveness: whatever the gate says, one request that fits the cache alone goes ahead.
            self._filling = True
            return StepPlan(Phase.PREFILL, max(1, self._admissible(view, target)))
        if self._triggered(view, target):
            admit = self._admissible(view, target)
            if admit:
                self._filling = True
                return StepPlan(Phase.PREFILL, admit)
        return DECODE

    def reset(self) -> None:
        """Forgets the last fill: the phases start afresh after a spell of mixed batching."""
        self._filling = False
        self._n_eff = None

    def _end_fill(self, view: View, target: Target) -> None:
        """The prefill phase is over: notes the batch that it reached where the gate, not N, ended it."""
        self._filling = False
        closed_by_gate = view.waiting > 0 and target.slots > view.decoding > 0
        self._n_eff = view.decoding if closed_by_gate else None

    def _triggered(self, view: View, target: Target) -> bool:
        """At least k slots are free and at least k requests wait."""
        batch = target.slots if self._n_eff is None else min(self._n_eff, target.slots)
        threshold = _threshold(target, self._n_eff)
        return view.waiting >= threshold and batch - view.decoding >= threshold

    def _admissible(self, view: View, target: Target) -> int:
        """How many waiting requests the next step can take: slots, token budget and the KV gate."""
        running = view.decoding + view.prefilling
        free_slots = target.slots - running
        if free_slots <= 0 or not view.waiting:
            return 0
        if self.gate is not None:
            return self.gate.admissible(view, free_slots, target.floor_blocks)
        block_size = view.block_size
        growth = target.growth_tokens / block_size
        room = view.free_blocks - view.watermark_blocks - target.floor_blocks - running * growth
        budget = view.token_budget
        admitted = 0
        for tokens in view.waiting_tokens():
            room -= -(-tokens // block_size) + growth
            if room < 0 or budget <= 0:
                break
            budget -= tokens
            admitted += 1
            if admitted == free_slots:
                break
        return admitted

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """Counts the tokens produced, for the estimates."""
        self.controller.estimator.on_steps(steps, decodes, first_tokens)

    def state(self) -> PolicyState:
        """The threshold, the slots or the batch that stands in for them, and the figures behind them."""
        if self._logged[0] is not self._target or self._logged[1] != self._n_eff:
            self._logged = (self._target, self._n_eff)
            self._state = state_of(self._target, self._n_eff)
        return self._state


def _threshold(target: Target, n_eff: int | None) -> int:
    """Free slots that trigger a prefill phase: k of N, or its share of the batch that stands in for N."""
    if n_eff is None:
        return target.k
    whole = target.slots if target.n_star is None else target.n_star
    return max(1, target.k * min(n_eff, whole) // whole)


def state_of(target: Target | None, n_eff: int | None = None) -> PolicyState:
    """The step log's row for a target in exclusive mode."""
    if target is None:
        return PolicyState(mode="EB")
    return PolicyState(
        k=_threshold(target, n_eff),
        n=target.slots if n_eff is None else n_eff,
        mode="EB",
        theta=target.theta,
        p0=target.p_bar,
        eta=target.eta,
        mu_l=target.mu_l,
        correction_capped=target.capped,
    )
