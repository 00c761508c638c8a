"""The plain oracle with what asynchronous scheduling changes: a step's output is known one step later.

A request that has all its tokens keeps its slot and blocks, unscheduled, while the next step is scheduled; the
policy is told of its end only then. Everything else is as without. A step may then be empty.
"""

from __future__ import annotations

from policies.core import UNLIMITED, Phase
from tests.support.oracle import Oracle
from tests.support.oracle_rows import Request


class LateOracle(Oracle):
    """`ending` have all their tokens, the last of them on its way; `on_the_way` steps have not given theirs."""

    ending: tuple[Request, ...] = ()
    on_the_way = 0

    def step(self) -> None:
        before, self.ending = self.ending, ()
        scheduled = len(self.steps)
        super().step()
        self.on_the_way = len(self.steps) - scheduled
        for request in before:
            self.end(request)

    def tell_of_time(self) -> None:
        late = self.times[len(self.times) - self.on_the_way :]
        del self.times[len(self.times) - len(late) :]
        super().tell_of_time()
        self.times += late

    def continues(self, request: Request) -> bool:
        return request.output < request.asked

    def left_to_prompts(self) -> int:
        """Tokens that a mixed step gives prompts beyond the plan's: of each that has all its tokens on the way."""
        return 0 if self.plan.phase is not Phase.MIXED else sum(not self.continues(request) for request in self.running)

    def continue_running(
        self, candidates: list[Request], prompt_tokens: int = UNLIMITED
    ) -> tuple[list[tuple[Request, int]], int]:
        return super().continue_running(candidates, prompt_tokens + self.left_to_prompts())

    def admit(
        self, at_most: int, scheduled: list[tuple[Request, int]], prompt_tokens: int
    ) -> list[tuple[Request, int]]:
        return super().admit(at_most, scheduled, prompt_tokens + self.left_to_prompts())

    def on_last_token(self, request: Request) -> None:
        self.ending = (*self.ending, request)

    def on_nothing_to_do(self) -> None:
        assert self.running, "a step without work: the engine would spin"
