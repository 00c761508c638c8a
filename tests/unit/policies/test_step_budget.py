"""Smaller steps where they are cheaper."""

from __future__ import annotations

from policies.online.step_budget import EVERY, FEWEST, OCTAVES, StepBudget

B = 8000


def run(budget: StepBudget, exclusive: bool, costs: dict[int, float], fills: int) -> list[int]:
    """Admissions of 20,000 tokens; the sizes of their first steps. `costs` in s/token by octave."""
    sizes = []
    for _ in range(fills):
        tokens = budget.trial(exclusive, 20_000, B)
        sizes.append(tokens)
        octave = next(one for one in (0, *OCTAVES) if tokens == B >> one)
        budget.see(exclusive, tokens, 0, costs[octave] * tokens, B)
    return sizes


def test_it_tries_every_size_and_keeps_the_cheapest() -> None:
    budget = StepBudget()
    sizes = run(budget, True, {0: 1e-5, 1: 9e-6, 2: 8e-6, 3: 2e-5}, 3 * EVERY * (FEWEST + 1))
    assert set(sizes) == {B, B // 2, B // 4, B // 8}
    assert budget.tokens(True, B) == B // 4
    assert budget.tokens(False, B) == B, "beside decodes nothing is known"


def test_less_than_two_percent_is_not_enough() -> None:
    budget = StepBudget()
    run(budget, True, {0: 1e-5, 1: 9.9e-6, 2: 2e-5, 3: 2e-5}, 200)
    assert budget.tokens(True, B) == B


def test_small_admissions_are_no_trials_and_other_sizes_do_not_count() -> None:
    budget = StepBudget()
    assert {budget.trial(False, B / 2, B) for _ in range(100)} == {B}
    budget.see(False, 300, 10, 1.0, B)
    assert {budget.trial(False, 20_000, B) for _ in range(100)} == {B}, "the whole budget is not known yet"
    budget.see(False, B - 10, 10, 1.0, B)
    assert B // 2 in {budget.trial(False, 20_000, B) for _ in range(100)}
