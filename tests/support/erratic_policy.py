"""A policy that no real one is: it keeps count of all that it is asked and told, and answers by that.

Two engines that ask it at other steps, or tell it otherwise, part ways with the next answer. It uses the standard
library alone, and goes into vLLM's process as it is: `python -m tests.support.erratic_policy` is
`python -m policies.vllm_emulated` with it in the catalog, as `erratic:salt=N` and `erratic:salt=N,ordered=1`. With
`timed=1` it also hears what its steps took, and limits the prompt tokens of a step.
"""

from __future__ import annotations

import random

from policies.catalog import POLICIES
from policies.core import UNLIMITED, Order, Phase, PolicyState, StepPlan, View, WaitingRequest
from policies.entry import PolicyEntry
from policies.online.orders import Ranked
from policies.options import Option


class Erratic:
    """Changes its mind with every ask, but always goes on."""

    def __init__(self, salt: int, order: Order | None) -> None:
        self.salt = salt
        self.order = order
        self.asked = self.steps = self.decoded = self.told = 0
        self._state = PolicyState()

    def plan(self, view: View) -> StepPlan:
        self.asked += 1
        counts = (self.asked, self.steps, self.decoded, self.told, view.waiting, view.prefilling, view.decoding)
        rng = random.Random(repr((self.salt, counts, view.free_blocks)))
        self._state = PolicyState(k=self.asked % 1000, n=self.steps % 1000, mode=rng.choice(("MB", "EB", None)))
        admit = rng.choice((0, 1, 2, UNLIMITED))
        steps = rng.choice((1, 1, 2, 3, 7, 9, 25, UNLIMITED))
        if not view.prefilling and view.decoding and rng.random() < 0.3:
            return StepPlan(Phase.DECODE, 0, steps)
        if not view.prefilling and not view.decoding:
            admit = max(1, admit)
        return StepPlan(rng.choice((Phase.MIXED, Phase.MIXED, Phase.PREFILL)), admit, steps, self.limit(rng))

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        self.steps += steps
        self.decoded += steps * decodes + first_tokens
        self.told += steps * running

    def limit(self, rng: random.Random) -> int:
        """The most prompt tokens of a step."""
        return UNLIMITED

    def on_admit(self, prompt_tokens: int) -> None:
        self.told += 3 * prompt_tokens

    def on_finish(self, output_tokens: int) -> None:
        self.told += 5 * output_tokens

    def state(self) -> PolicyState:
        return self._state


class Timed(Erratic):
    """What it hears of time decides as well."""

    def limit(self, rng: random.Random) -> int:
        return rng.choice((1, 3, 17, 100, UNLIMITED))

    def on_timed_step(
        self,
        steps: int,
        prefill_tokens: int,
        prefill_work: float,
        decodes: int,
        context: float,
        seconds: float,
        preempted: int,
        /,
    ) -> None:
        heard = (steps, prefill_tokens, prefill_work, decodes, context, round(seconds * 1e12), preempted)
        self.told += sum(round(2 * n) * prime for n, prime in zip(heard, (3, 7, 11, 13, 17, 19, 23), strict=True))


def by_prompt(request: WaitingRequest) -> int:
    return request.num_prompt_tokens


def make_erratic(salt: int, ordered: bool, timed: bool = False) -> Erratic:
    order = Ranked(by_prompt) if ordered else None
    return Timed(salt, order) if timed else Erratic(salt, order)


def add_to_catalog() -> None:
    """Makes it a policy by name."""
    options = (
        Option("salt", int, 0, "a seed"),
        Option("ordered", int, 0, "1: with an order of its own"),
        Option("timed", int, 0, "1: hears what its steps took"),
    )
    POLICIES["erratic"] = PolicyEntry(
        "erratic",
        "for tests",
        "tests",
        options,
        lambda values, _: make_erratic(values["salt"], bool(values["ordered"]), bool(values["timed"])),
    )


if __name__ == "__main__":
    from policies.vllm_emulated import main

    add_to_catalog()
    main()
