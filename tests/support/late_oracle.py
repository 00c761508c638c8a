"""The plain oracle with what asynchronous scheduling changes: a step's output is known one step later.

A request that has all its tokens keeps its slot and blocks, unscheduled, while the next step is scheduled; the
policy is told of its end only then. Everything else is as without. A step may then be empty.
"""

from __future__ import annotations

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

    def on_last_token(self, request: Request) -> None:
        self.ending = (*self.ending, request)

    def on_nothing_to_do(self) -> None:
        assert self.running, "a step without work: the engine would spin"
