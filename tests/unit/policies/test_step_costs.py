"""What steps cost, learned from them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.online.least_squares import RIDGE, non_negative, solve
from policies.online.step_costs import LearnedCosts


def test_a_system_is_solved() -> None:
    assert solve([[4.0, 2.0], [2.0, 3.0]], [2.0, 5.0]) == pytest.approx([-0.5, 2.0])
    assert solve([[9.0]], [3.0]) == pytest.approx([1 / 3])


def test_a_coefficient_that_would_be_negative_is_0() -> None:
    # Without the bound x = (−0.5, 2).
    assert non_negative([[4.0, 2.0], [2.0, 3.0]], [2.0, 5.0]) == pytest.approx([0.0, 5 / 3], rel=2 * RIDGE)
    assert non_negative([[4.0, 0.0], [0.0, 0.0]], [2.0, 0.0]) == pytest.approx([0.5, 0.0], rel=2 * RIDGE)


@given(st.integers(1, 5), st.integers(0, 10**6))
def test_no_other_point_that_is_not_negative_is_better(n: int, seed: int) -> None:
    rng = random.Random(seed)
    rows = [[rng.uniform(-1, 1) * 10 ** rng.randint(-3, 3) for _ in range(n)] for _ in range(n + 3)]
    gram = [[sum(row[i] * row[j] for row in rows) for j in range(n)] for i in range(n)]
    right = [sum(row[i] * rng.uniform(-1, 1) for row in rows) for i in range(n)]
    x = non_negative(gram, right)
    for i in range(n):
        scale = gram[i][i] ** 0.5
        slope = (right[i] - sum(gram[i][j] * x[j] for j in range(n))) / scale - RIDGE * scale * x[i]
        assert x[i] >= 0
        assert slope <= 1e-6
        assert x[i] == 0 or abs(slope) <= 1e-6


def true_s(p: float, w: float, d: float, s: float) -> float:
    return 0.004 + 2e-5 * p + 1e-9 * w + 3e-5 * d + 1e-8 * s


def taught(noise: float = 0.0, seed: int = 0) -> LearnedCosts:
    rng = random.Random(seed)
    costs = LearnedCosts((0, 1, 2, 3))
    for now in range(400):
        p, d = float(rng.randint(1, 8000)), float(rng.randint(1, 800))
        content = (p, p * rng.uniform(100, 2000), d, d * rng.uniform(100, 2000))
        costs.add(content, 1, true_s(*content) * (1 + noise * rng.uniform(-1, 1)), now)
    costs.refit(400)
    return costs


@pytest.mark.parametrize(
    "content",
    [(4000.0, 2e6, 300.0, 3e5), (100.0, 1e5, 10.0, 9e3), (8000.0, 1e7, 800.0, 1e6), (16000.0, 2e7, 400.0, 4e5)],
)
def test_what_is_linear_is_learned(content: tuple[float, float, float, float]) -> None:
    assert taught().seconds(content) == pytest.approx(true_s(*content), rel=0.03)
    assert taught(noise=0.1).seconds(content) == pytest.approx(true_s(*content), rel=0.06)


def test_where_something_was_seen_the_cells_correct_the_line() -> None:
    costs = LearnedCosts((2, 3))
    for now in range(300):
        d = float(2 ** (now % 10))
        costs.add((0.0, 0.0, d, 100 * d), 5, 0.01 + (0.01 if d > 40 else 0.0), now)
    costs.refit(300)
    assert costs.seconds((0.0, 0.0, 8.0, 800.0)) == pytest.approx(0.01, rel=0.12)
    assert costs.seconds((0.0, 0.0, 256.0, 25600.0)) == pytest.approx(0.02, rel=0.12)
    assert costs.intercept > 0


def test_steps_told_as_one_weigh_as_many() -> None:
    one_by_one, at_once = LearnedCosts((2, 3)), LearnedCosts((2, 3))
    for now in range(20):
        one_by_one.add((0.0, 0.0, 50.0, 5000.0), 1, 0.01, now)
    at_once.add((0.0, 0.0, 50.0, 5000.0), 20, 0.01, 19)
    for costs in (one_by_one, at_once):
        costs.add((0.0, 0.0, 50.0, 5000.0), 1, 0.02, 20)
        costs.refit(21)
    content = (0.0, 0.0, 50.0, 5000.0)
    assert one_by_one.seconds(content) == pytest.approx(at_once.seconds(content), rel=1e-9)


def test_a_strange_step_is_dropped_and_the_fifth_in_a_row_is_not() -> None:
    costs = LearnedCosts((2, 3))
    content = (0.0, 0.0, 50.0, 5000.0)
    for now in range(100):
        costs.add(content, 1, 0.01, now)
    for now in range(100, 104):
        costs.add(content, 1, 0.1, now)
    assert costs.samples == 100
    costs.refit(104)
    assert costs.seconds(content) == pytest.approx(0.01, rel=0.01)
    for now in range(104, 300):
        costs.add(content, 1, 0.1, now)
    assert costs.samples == 100 + 196
    costs.refit(300)
    assert costs.seconds(content) == pytest.approx(0.1, rel=0.05)
