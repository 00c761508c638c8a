"""Admission in batches: wait for k free slots and k waiting requests, then let in what the forecast gate allows.

With exclusive steps a fill goes on, prompts alone, until slots, queue or gate end it. With mixed ones decoding goes on
beside the prompts, and every step decides anew.
"""

from __future__ import annotations

from policies.core import DECODE, UNLIMITED, Phase, StepPlan, View
from policies.online.forecast import ForecastGate

MANY_STEPS = 4


class Turns:
    """The phase machine of `mb` and `adaptive`; `k`, `exclusive` and `tokens` may change at any time.

    Where the gate, not the slots, ended the last fill, slots count as free from the batch that it reached, `n_eff`.
    `filling`: an exclusive fill is under way. For the `probing` next steps of a fill the other kind of step is taken.
    """

    __slots__ = ("_gate", "exclusive", "filling", "k", "kept_out", "n_eff", "probing", "reached", "tokens")

    def __init__(self, gate: ForecastGate, k: int, exclusive: bool = False) -> None:
        self._gate = gate
        self.filling = False
        self.k = k
        self.exclusive = exclusive
        self.tokens = UNLIMITED  # the most prompt tokens of a step
        self.n_eff: int | None = None
        self.reached = 0  # requests running at the end of the last fill
        self.probing = 0
        self.kept_out = False  # slots or KV keep someone waiting

    def due(self, view: View) -> bool:
        """Whether a fill is to begin: k slots are free and k requests wait, or nothing else is left to do."""
        if not view.waiting:
            self.kept_out = False
            return False
        batch = view.slots if self.n_eff is None else min(self.n_eff, view.slots)
        free = batch - view.decoding - view.prefilling
        self.kept_out = view.waiting > free
        return not view.decoding or (free >= self.k and view.waiting >= self.k)

    def plan(self, view: View, due: bool) -> StepPlan:
        """The next step; `due` says that a fill begins where none is under way."""
        if not (self.filling or view.prefilling):
            if not due:
                return DECODE
            self.filling = True
        running = view.decoding + view.prefilling
        admit = 0
        if due or self.exclusive_now:
            admit = self._gate.admissible(view, view.slots - running)
        if not admit and not view.decoding and not view.prefilling:
            # Liveness: whatever the gate says, one request that fits the cache alone goes ahead.
            admit = 1
        if not admit and not view.prefilling:
            self._end(view)
            return DECODE
        exclusive = self.exclusive_now
        if self.probing:
            self.probing -= 1
        if not exclusive:
            # The batch that this reaches is known only with the next view.
            self.filling = False
            if view.waiting - admit >= max(self.k, MANY_STEPS * admit):
                self.kept_out = True  # by the tokens of many steps to come
            self._note(running + admit, self._gate.closed)
        return StepPlan(Phase.PREFILL if exclusive else Phase.MIXED, admit, 1, self.tokens)

    @property
    def exclusive_now(self) -> bool:
        """Whether the next step of a fill holds prompts alone."""
        return self.exclusive != (self.probing > 0)

    def _end(self, view: View) -> None:
        self.filling = False
        self.probing = 0
        self._note(view.decoding, self._gate.closed)

    def _note(self, running: int, closed: bool) -> None:
        """A fill, or a step of one, has let in as many as it could; `closed`: the gate kept others out."""
        self.reached = running
        self.n_eff = max(1, running) if closed else None
