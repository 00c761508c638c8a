"""What holds of every offline schedule, whatever the lengths, slots and α."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from harness.reproduce.fair_optimum import fair_optimum
from policies.offline.baselines import fair_lower_bound, fcfs, ljf, lpt, makespan, sjf
from policies.offline.isjl import isjl, isjl_best, isjl_paper
from tests.support.token_oracle import gap_max, most_at_once, steps_of

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
CASES = 100_000 if SOAK else 3000

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=25)


def fair_schedules(lengths: Sequence[int], slots: int, alpha: int) -> dict[str, list[int]]:
    """Every schedule that promises a gap of at most α."""
    found = {f"isjl β={beta}": isjl(lengths, slots, alpha, beta) for beta in {0, alpha // 3, alpha}}
    found["isjl-best"] = isjl_best(lengths, slots, alpha)
    found["isjl-paper held"] = isjl_paper(lengths, slots, alpha, hold=True)
    found["ljf"] = ljf(lengths, slots)
    return found


def check(lengths: Sequence[int], slots: int, alpha: int) -> None:
    """Everything that is promised of the instance."""
    least = fair_lower_bound(lengths, slots, alpha)
    bound = makespan(lengths, ljf(lengths, slots))
    for name, starts in fair_schedules(lengths, slots, alpha).items():
        case = (name, lengths, slots, alpha, starts)
        assert gap_max(lengths, starts) <= alpha, case
        assert most_at_once(lengths, starts) <= slots, case
        assert min(starts) == 0, case
        assert makespan(lengths, starts) >= least, case
        if name == "isjl-best":
            assert makespan(lengths, starts) <= bound, case
    for refilled in (fcfs, sjf, lpt):
        assert most_at_once(lengths, refilled(lengths, slots)) <= slots


@given(lengths=LENGTHS, slots=st.integers(1, 8), alpha=st.integers(0, 45))
def test_a_fair_schedule_is_fair_and_holds_one_request_a_slot(lengths: list[int], slots: int, alpha: int) -> None:
    check(lengths, slots, alpha)


@given(lengths=LENGTHS, slots=st.integers(1, 8), alpha=st.integers(0, 45))
def test_externality_is_at_most_alpha_a_token(lengths: list[int], slots: int, alpha: int) -> None:
    for starts in fair_schedules(lengths, slots, alpha).values():
        steps = steps_of(lengths, starts)
        externality = sum(step.n * step.most - step.total for step in steps)
        assert externality <= alpha * sum(lengths)
        assert max(step.gap for step in steps) == gap_max(lengths, starts)


def random_instances(count: int, seed: int) -> Iterator[tuple[list[int], int, int]]:
    """Lengths of several laws, few and many, on few slots and many, for α from 0 to beyond the longest."""
    rng = random.Random(seed)
    for _ in range(count):
        longest = rng.choice((3, 9, 30, 200))
        n = rng.randint(1, 60)
        lengths = rng.choice(
            (
                [rng.randint(1, longest) for _ in range(n)],
                [max(1, min(longest, int(rng.lognormvariate(2, 1.5)))) for _ in range(n)],
                [rng.choice((1, 2, longest)) for _ in range(n)],
            )
        )
        yield lengths, rng.randint(1, 12), rng.randint(0, longest + 1)


def test_thousands_of_random_instances() -> None:
    for lengths, slots, alpha in random_instances(CASES, seed=5):
        check(lengths, slots, alpha)


def test_equal_lengths_start_in_their_order() -> None:
    for lengths, slots, _ in random_instances(300, seed=6):
        for starts in (fcfs(lengths, slots), sjf(lengths, slots), lpt(lengths, slots), ljf(lengths, slots)):
            last: dict[int, int] = {}
            for length, start in zip(lengths, starts, strict=True):
                assert last.get(length, 0) <= start
                last[length] = start


def tiny_instances(count: int, seed: int) -> Iterator[tuple[list[int], int, int]]:
    """n 2–6, lengths 1–9, B 2–3, α 1 … longest − 1, all uniform."""
    rng = random.Random(seed)
    while count:
        lengths = [rng.randint(1, 9) for _ in range(rng.randint(2, 6))]
        if max(lengths) > 1:
            count -= 1
            yield lengths, rng.randint(2, 3), rng.randint(1, max(lengths) - 1)


def test_near_the_fair_optimum() -> None:
    ratios: dict[str, list[float]] = {"isjl": [], "isjl-best": []}
    for lengths, slots, alpha in tiny_instances(20_000 if SOAK else 1000, seed=7):
        optimum = fair_optimum(lengths, slots, alpha)
        assert fair_lower_bound(lengths, slots, alpha) <= optimum
        for name, starts in (("isjl", isjl(lengths, slots, alpha)), ("isjl-best", isjl_best(lengths, slots, alpha))):
            steps = makespan(lengths, starts)
            assert optimum <= steps, (lengths, slots, alpha)
            assert 3 * optimum >= 2 * steps, (lengths, slots, alpha)
            ratios[name].append(optimum / steps)
    for found in ratios.values():
        assert sum(found) / len(found) >= 0.97


def test_the_fair_optimum_is_what_trying_every_start_gives() -> None:
    rng = random.Random(8)
    for _ in range(60):
        lengths = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        slots, alpha = rng.randint(1, 3), rng.randint(0, 4)
        latest = makespan(lengths, ljf(lengths, slots))
        best = min(
            makespan(lengths, starts)
            for starts in product(*(range(latest - length + 1) for length in lengths))
            if most_at_once(lengths, starts) <= slots and gap_max(lengths, starts) <= alpha
        )
        assert fair_optimum(lengths, slots, alpha) == best, (lengths, slots, alpha)
