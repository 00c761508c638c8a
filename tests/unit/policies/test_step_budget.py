"""Smaller steps where they are cheaper."""

from __future__ import annotations

import itertools

from policies.online.step_budget import EVERY, FEWEST, OCTAVES, SETTLED_EVERY, StepBudget

B = 8000


def run(budget: StepBudget, exclusive: bool, fills: int) -> list[int]:
    """Admissions of 20,000 tokens; the sizes of their first steps."""
    sizes = []
    for _ in range(fills):
        tokens = budget.trial(exclusive, 20_000, B)
        sizes.append(tokens)
        budget.see(exclusive, tokens, 0, B)
    return sizes


def chosen(costs: dict[int, float]) -> int:
    """What is kept after trials, by s/token of each size."""
    budget = StepBudget()
    run(budget, True, 4 * EVERY * FEWEST)
    budget.choose(True, B, costs.__getitem__)
    return budget.tokens(True, B)


def test_it_tries_every_size_and_less_often_once_all_are_known() -> None:
    budget = StepBudget()
    sizes = run(budget, True, 1000)
    assert set(sizes[: 3 * EVERY]) == {B, B // 2, B // 4, B // 8}
    trials = [i for i, size in enumerate(sizes) if size != B]
    assert {b - a for a, b in itertools.pairwise(trials)} == {EVERY, SETTLED_EVERY}
    assert budget.tokens(False, B) == B, "beside decodes nothing is known"


def test_the_cheapest_size_is_kept() -> None:
    assert chosen({B: 1e-5, B // 2: 9e-6, B // 4: 8e-6, B // 8: 2e-5}) == B // 4


def test_less_than_two_percent_is_not_enough() -> None:
    assert chosen({B: 1e-5, B // 2: 9.9e-6, B // 4: 2e-5, B // 8: 2e-5}) == B


def test_a_size_that_was_not_tried_is_not_chosen() -> None:
    budget = StepBudget()
    budget.choose(True, B, {B: 1e-5, B // 2: 1e-6, B // 4: 1e-6, B // 8: 1e-6}.__getitem__)
    assert budget.tokens(True, B) == B
    for _ in range(FEWEST):
        budget.see(True, B, 0, B)
        budget.see(True, B // 8, 0, B)
    budget.choose(True, B, {B: 1e-5, B // 8: 2e-6}.__getitem__)
    assert budget.tokens(True, B) == B // 8
    assert budget.tokens(False, B) == B


def test_small_admissions_are_no_trials_and_other_sizes_do_not_count() -> None:
    budget = StepBudget()
    assert {budget.trial(False, B / 2, B) for _ in range(100)} == {B}
    budget.see(False, 300, 10, B)
    assert {budget.trial(False, 20_000, B) for _ in range(100)} == {B}, "the whole budget is not known yet"
    budget.see(False, B - 10, 10, B)
    assert B // OCTAVES[1] in {budget.trial(False, 20_000, B) for _ in range(100)}
