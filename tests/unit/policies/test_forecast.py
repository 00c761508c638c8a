"""The forecast of KV: the share that lives on, and how many it lets in."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.core import PartialPrefill, View
from policies.online.forecast import FEWEST, TIMES, WINDOW, ForecastGate, survival


@dataclass(slots=True)
class Batch:
    """A View of requests by prompt and output tokens so far."""

    prompts: list[int]
    ages: list[int]
    queue: list[int]
    partials: list[PartialPrefill] = field(default_factory=list)
    total_blocks: int = 1000
    slots: int = 1000
    token_budget: int = 100_000
    block_size: int = 16
    watermark_blocks: int = 0

    @property
    def waiting(self) -> int:
        return len(self.queue)

    @property
    def decoding(self) -> int:
        return len(self.ages)

    @property
    def prefilling(self) -> int:
        return len(self.partials)

    @property
    def free_blocks(self) -> int:
        return self.total_blocks - sum(-(-tokens // self.block_size) for tokens in self.footprints())

    def waiting_tokens(self) -> Iterator[int]:
        return iter(self.queue)

    def num_output_tokens(self) -> list[int]:
        return sorted(self.ages, reverse=True)

    def footprints(self) -> list[int]:
        return sorted((p + a for p, a in zip(self.prompts, self.ages, strict=True)), reverse=True)

    def partial_prefills(self) -> Sequence[PartialPrefill]:
        return self.partials


def admissible(gate: ForecastGate, view: Batch, most: int, floor_blocks: int = 0) -> int:
    return gate.admissible(cast(View, view), most, floor_blocks)  # its counts are computed


def is_closed(gate: ForecastGate) -> bool:
    return gate.closed


def test_the_curve_of_two_that_ended_and_one_that_runs() -> None:
    # At 2 tokens one of three ends; at 4 the one that ran no further than 3 is no longer looked at.
    assert survival([2, 4], [3]) == pytest.approx([1, 1, 2 / 3, 2 / 3, 0])
    assert survival([3, 3]) == [1, 1, 1, 0]
    assert survival([2], [5, 6, 7]) == pytest.approx([1, 1, 3 / 4])


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60))
def test_without_any_that_runs_the_curve_is_the_share_of_longer_ones(lengths: list[int]) -> None:
    curve = survival(lengths)
    assert len(curve) == max(lengths) + 1
    for age, share in enumerate(curve):
        assert share == pytest.approx(sum(length > age for length in lengths) / len(lengths), abs=1e-12)


def plain(view: Batch, lengths: list[int], z: float) -> int:
    """The gate a second time, request by request; every one runs with the mean prompt."""
    curve = survival(lengths)
    stride = -int(-max(32.0, 0.1 * sum(lengths) / len(lengths)) // (TIMES - 1))
    spare = (view.block_size - 1) / 2
    n = len(view.ages)
    prompt = sum(view.prompts) / n if n else 0.0

    def alive(age: int) -> float:
        return curve[min(age, len(curve) - 1)]

    for count in range(len(view.queue), 0, -1):
        fits = sum(-(-tokens // view.block_size) for tokens in view.queue[:count]) <= view.free_blocks
        last = 1 + (TIMES - 1) * stride + spare
        at_most = sum(view.footprints()) + sum(view.queue) + (n + len(view.queue)) * last
        for t in range(1, 1 + TIMES * stride, stride):
            shares = [alive(age + t - 1) / alive(age) if alive(age) else 1.0 for age in view.ages]
            use = sum(s * (prompt + spare + age + t) for s, age in zip(shares, view.ages, strict=True))
            variance = sum(s * (1 - s) for s in shares)
            footprint = sum(view.footprints()) / n + spare if n else 0.0
            use += z * sqrt(variance) * (footprint + t)
            use += sum(alive(t - 1) * (tokens + t + spare) for tokens in view.queue[:count])
            fits = fits and min(use, at_most) <= view.total_blocks * view.block_size + 1e-6
        if fits:
            return count
    return 0


@pytest.mark.parametrize("seed", range(40))
def test_the_gate_is_the_forecast_of_every_request_by_itself(seed: int) -> None:
    rng = random.Random(seed)
    gate = ForecastGate()
    law = rng.choice(["equal", "geometric", "two kinds"])
    mean = rng.choice([5, 60, 700])
    laws: dict[str, Callable[[], int]] = {
        "equal": lambda: mean,
        "geometric": lambda: 1 + int(rng.expovariate(1 / mean)),
        "two kinds": lambda: rng.choice([3, mean]),
    }
    draw = laws[law]
    lengths = [draw() for _ in range(WINDOW)]
    for length in lengths:
        gate.on_finish(length)
    n = rng.randint(0, 32)  # each its own group
    ages = [rng.randint(1, 2 * mean) for _ in range(n)]
    queue = [rng.randint(1, 80) for _ in range(60)]
    view = Batch([rng.randint(1, 50) for _ in range(n)], ages, queue, total_blocks=rng.randint(n * 10 + 200, 2000))
    if view.free_blocks < 0:
        view.total_blocks -= view.free_blocks
    z = rng.choice([0.0, 0.5, 3.0])
    gate.on_preempted(round(z / 0.25))
    assert gate.z == z
    assert admissible(gate, view, 60) == plain(view, lengths, z)


def test_until_lengths_are_known_each_may_grow_as_old_as_the_oldest_and_by_64_at_least() -> None:
    gate = ForecastGate()
    for length in range(1, FEWEST):
        gate.on_finish(length)
    view = Batch([16] * 10, [1] * 10, [16] * 60, total_blocks=100)
    # 1,600 tokens; ten hold 17, and each of all takes 64 and half a block besides.
    assert admissible(gate, view, 60) == int((1600 - 10 * (17 + 71.5)) // (16 + 71.5))
    view.ages[0] = 200
    assert admissible(gate, view, 60) == 0
    gate.on_finish(1)
    assert admissible(gate, view, 60) > 0


def test_equal_lengths_about_to_end_make_room_that_a_memoryless_law_would_not_see() -> None:
    gate = ForecastGate()
    for _ in range(100):
        gate.on_finish(1000)
    old = Batch([100] * 10, [999] * 10, [100] * 60, total_blocks=800)
    young = Batch([100] * 10, [500] * 10, [100] * 60, total_blocks=800)
    assert admissible(gate, young, 60) < 60
    # They hold 11,000 of 12,800 tokens, and all end with the next step.
    assert old.free_blocks == 800 - 10 * 69
    assert admissible(gate, old, 60) == (old.free_blocks // 7)
    assert is_closed(gate)


def test_slots_tokens_and_the_floor_limit_it_too() -> None:
    gate = ForecastGate()
    view = Batch([], [], [10] * 20)
    assert admissible(gate, view, 3) == 3
    assert not is_closed(gate)
    view.token_budget = 25
    assert admissible(gate, view, 20) == 3, "the last of them is computed in part"
    assert not is_closed(gate)
    assert admissible(gate, view, 20, floor_blocks=1000) == 0
    assert is_closed(gate)
    assert admissible(gate, view, 0) == 0


def test_a_prompt_that_is_partly_computed_counts_whole() -> None:
    gate = ForecastGate()
    free = admissible(gate, Batch([], [], [100] * 100, total_blocks=600), 100)
    partly = Batch([], [], [100] * 100, [PartialPrefill(900, 3000, 0)], total_blocks=600)
    assert 0 < admissible(gate, partly, 100) < free - 10


def test_z_rises_with_preemptions_and_falls_with_admissions() -> None:
    gate = ForecastGate()
    gate.on_preempted(2)
    gate.on_admit(7)
    assert gate.z == pytest.approx(0.495)
    gate.on_timed_step(1, 0, 0.0, 3, 60.0, 0.01, 100)
    assert gate.z == 3.0
    for _ in range(1000):
        gate.on_admit(7)
    assert gate.z == 0.0
