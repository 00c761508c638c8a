"""ISJL online: no request starts where it would differ by more than α from one that runs (arXiv 2608.02244)."""

from __future__ import annotations

from policies.core import DECODE, MIXED, UNLIMITED, Phase, PolicyState, StepPlan, View
from policies.online.guard import GuardOptions
from policies.online.guarded_queue import GuardedQueue

PREFILL = StepPlan(Phase.PREFILL, UNLIMITED)


class Isjl:
    """Mixed batching, or prefill and decode in turn, with the guarded queue."""

    __slots__ = ("_state", "order")

    def __init__(self, options: GuardOptions) -> None:
        self.order = GuardedQueue(options)
        self._state = PolicyState(mode="EB" if options.exclusive else "MB")

    def plan(self, view: View) -> StepPlan:
        """Admission as the guard allows; in exclusive mode decode when nobody may start."""
        self.order.look(view)
        if not self.order.options.exclusive:
            return MIXED
        return PREFILL if view.prefilling or self.order.peek(view) is not None else DECODE

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """Counts the steps by which those that run advance: where prefill stops them, decode steps alone."""
        if decodes or (first_tokens and not self.order.options.exclusive):
            self.order.clock += steps

    def on_admit(self, prompt_tokens: int, /) -> None:
        """Nothing to learn."""

    def on_finish(self, output_tokens: int, /) -> None:
        """Nothing to learn."""

    def state(self) -> PolicyState:
        """The mode; nothing else is estimated."""
        return self._state
