"""What an admission costs with 100,000 requests waiting: SJF and ISJL as the policies online plan it.

Run by hand: python tests/bench/orders.py [--waiting 100000] [--admissions 10000]
Slots free and fill step by step as they would in an engine; a request that starts is replaced by a new one, so
that as many always wait. Times are CPU time of the policy's own calls (look, peek, pop, push), a start.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import time
from bisect import insort
from collections.abc import Iterator

from policies.catalog import make_policy, read_policy
from policies.core import PartialPrefill, Policy, WaitingRequest

SLOTS = 256
POLICIES = (
    "sjf",
    "ljf",
    "isjl:alpha=100",
    "isjl:alpha=100,plan=1.0",
    "isjl:alpha=100,prefill=exclusive",
    "isjl:alpha=100,footprint=kv",
    "isjl:alpha=10,footprint=kv",
)


class Running:
    """A batch in which all advance together: the View that the policies ask for."""

    slots = SLOTS
    token_budget = 14336
    block_size = 16
    total_blocks = free_blocks = 1 << 30
    watermark_blocks = 0
    waiting = prefilling = decoding = 0

    def __init__(self) -> None:
        self.clock = 0
        self.ends: dict[int, list[tuple[int, int]]] = {}  # clock -> births and shifts of those that end then
        self.births: list[int] = []  # sorted, as the virtual-time engine keeps them
        self.shifts: list[int] = []

    def start(self, prompt: int, output: int) -> None:
        birth, shift = self.clock, self.clock - prompt
        self.decoding += 1
        insort(self.births, birth)
        insort(self.shifts, shift)
        self.ends.setdefault(self.clock + output, []).append((birth, shift))

    def tick(self) -> None:
        self.clock += 1
        for birth, shift in self.ends.pop(self.clock, ()):
            self.decoding -= 1
            self.births.remove(birth)
            self.shifts.remove(shift)

    def waiting_tokens(self) -> Iterator[int]:
        return iter(())

    def num_output_tokens(self) -> list[int]:
        return [self.clock - birth for birth in self.births]

    def footprints(self) -> list[int]:
        return [self.clock - shift for shift in self.shifts]

    def partial_prefills(self) -> list[PartialPrefill]:
        return []


def requests(rng: random.Random, known: bool) -> Iterator[tuple[WaitingRequest, int]]:
    for number in itertools.count():
        output = min(300, 1 + int(rng.lognormvariate(3.5, 1.2)))
        prompt = min(4000, 1 + int(rng.lognormvariate(4.5, 1.2)))
        hint = max(1, round(output * rng.lognormvariate(0, 0.3)))
        yield WaitingRequest(number, prompt, 0, hint if known else None, 2 * hint if known else None), output


def measure(text: str, known: bool, waiting: int, admissions: int) -> None:
    policy: Policy = make_policy(*read_policy(text), SLOTS, None)
    order = policy.order
    assert order is not None
    view, outputs = Running(), dict[object, int]()
    source = requests(random.Random(1), known)
    for one, output in itertools.islice(source, waiting):
        order.push(one)
        outputs[one.request_id] = output
    steps, started, spent, idle, worst = 0, 0, 0.0, 0.0, 0.0
    fresh: list[tuple[WaitingRequest, int]] = []
    while started < admissions:
        fresh += itertools.islice(source, SLOTS - len(fresh))
        before = time.process_time()
        policy.plan(view)
        taken: list[WaitingRequest] = []
        budget = view.token_budget - view.decoding
        while budget > 0 and view.decoding + len(taken) < SLOTS and order.peek(view) is not None:
            one = order.pop(view)
            budget -= one.num_prompt_tokens
            order.push(fresh[len(taken)][0])
            taken.append(one)
        took = time.process_time() - before
        for one, (new, output) in zip(taken, fresh, strict=False):
            view.start(one.num_prompt_tokens, outputs.pop(one.request_id))
            outputs[new.request_id] = output
        del fresh[: len(taken)]
        if taken:
            spent, started = spent + took, started + len(taken)
        else:
            idle, steps = idle + took, steps + 1
        worst = max(worst, took)
        view.tick()
        policy.on_steps(1, view.decoding, view.decoding, len(taken))
    assert len(order) == waiting
    print(
        f"{text + ('' if known else ' [no lengths]'):<40}{waiting:>8,} waiting {started:>7,} starts "
        f"{1e6 * spent / started:6.2f} µs a start  {1e6 * idle / max(1, steps):6.2f} µs a step without one "
        f"({steps:,})  {1e3 * worst:5.2f} ms the worst step",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--admissions", type=int, default=10_000)
    given = parser.parse_args()
    gc.disable()  # as the engine has it
    for text in POLICIES:
        measure(text, True, given.waiting, given.admissions)
    measure("isjl:alpha=100", False, given.waiting, given.admissions)


if __name__ == "__main__":
    main()
