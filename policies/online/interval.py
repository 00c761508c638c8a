"""v1-interval: mixed batching whose prompts wait until n steps have run since the last that held any."""

from __future__ import annotations

from policies.core import MIXED, Order, Phase, PolicyState, StepPlan, View

_STATE = PolicyState(mode="MB")


class Interval:
    """The rule of vLLM 0.33's `prefill_schedule_interval` for an engine that has no such setting.

    Nothing is held back while nobody decodes, nor once a step that held nothing back has left somebody waiting.
    """

    __slots__ = ("_every", "_held", "_holds", "_left", "_since", "_waiting", "order")

    def __init__(self, every: int) -> None:
        self.order: Order | None = None
        self._every = every
        self._since = every  # steps since the last that held a prompt
        self._holds = False  # the step that is planned holds prompts back
        self._left = False  # the last step that held none back left somebody waiting
        self._waiting = self._held = 0  # who waits and who has a slot, before the step that is planned

    def plan(self, view: View) -> StepPlan:
        """Mixed, or decode until the n-th step."""
        self._waiting, self._held = view.waiting, view.prefilling + view.decoding
        wait = self._every - 1 - self._since
        self._holds = wait > 0 and view.decoding > 0 and not self._left
        return StepPlan(Phase.DECODE, 0, wait) if self._holds else MIXED

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """Counts them, and sees who is left waiting."""
        self._waiting += self._held - running
        self._held = running
        if self._holds:
            self._since += steps
        else:
            self._left = self._waiting > 0
            self._since = 0 if running > decodes else self._since + steps

    def on_admit(self, prompt_tokens: int, /) -> None:
        """Not looked at."""

    def on_finish(self, output_tokens: int, /) -> None:
        """Not looked at."""

    def state(self) -> PolicyState:
        """Mode MB; nothing else is held to be true."""
        return _STATE
