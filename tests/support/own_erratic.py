"""A user's policy that no real one is: it keeps count of all that it is asked and told, and answers by that.

Two engines that ask it at other steps, or tell it otherwise, part ways with the next answer.
"""

from __future__ import annotations

import random
from typing import Any

from policies.own import UNLIMITED, OwnPolicy, Phase, Ranked, StepPlan, View, WaitingRequest


def by_prompt(request: WaitingRequest) -> int:
    return request.num_prompt_tokens


class Erratic(OwnPolicy):
    """Changes its mind with every ask, but always goes on; `timed` lets the time decide as well."""

    salt: int = 0
    ordered: bool = False
    timed: bool = False
    MAX_OVERTAKES = None
    COLUMNS = ("asked", "steps", "told")

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.asked = self.steps = self.told = 0
        if self.ordered:
            self.order = Ranked(by_prompt)

    def plan(self, view: View) -> StepPlan:
        self.asked += 1
        counts = (self.asked, self.steps, self.told, view.waiting, view.prefilling, view.decoding, view.free_blocks)
        times: tuple[object, ...] = ()
        if self.timed:
            waiting = [(one.arrival_s, one.deadline_s, one.num_prompt_tokens) for one in view.waiting_requests()]
            times = (view.now_s, waiting)
        rng = random.Random(repr((self.salt, counts, times)))
        admit, tokens = rng.choice((0, 1, 2, UNLIMITED)), rng.choice((UNLIMITED, UNLIMITED, 3, 40))
        steps = rng.choice((1, 1, 2, 3, 7, 9, 25, UNLIMITED))
        again = view.now_s + rng.choice((0.003, 0.02, 0.2)) if self.timed and rng.random() < 0.5 else None
        running = view.prefilling or view.decoding
        if not view.prefilling and (view.decoding or again is not None) and rng.random() < 0.3:
            return StepPlan(Phase.DECODE, 0, steps, again_at_s=again)
        if not running:
            admit = max(1, admit)
        return StepPlan(rng.choice((Phase.MIXED, Phase.MIXED, Phase.PREFILL)), admit, steps, tokens, again)

    def columns(self) -> tuple[float, ...]:
        return self.asked, self.steps, self.told

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        self.steps += steps
        self.told += steps * (decodes + running) + first_tokens

    def on_admit(self, prompt_tokens: int, /) -> None:
        self.told += 3 * prompt_tokens

    def on_finish(self, output_tokens: int, /) -> None:
        self.told += 5 * output_tokens
