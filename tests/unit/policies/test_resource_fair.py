"""Offline schedules: hand-worked and golden instances, the counter-examples, what is refused."""

from __future__ import annotations

import json

import pytest

from harness.reproduce.fair_optimum import fair_optimum
from policies.core import PolicyError
from policies.offline.baselines import Planner, fair_lower_bound, fcfs, ljf, lpt, makespan, sjf
from policies.offline.isjl import isjl, isjl_best, isjl_paper
from tests.support.places import SHARED
from tests.support.token_oracle import gap_max, steps_of

GOLDEN = SHARED / "reference/isjl_golden.json"


def planner(name: str, alpha: int) -> Planner:
    """The planner of a name in the golden file."""
    return {
        "fcfs": fcfs,
        "sjf": sjf,
        "lpt": lpt,
        "ljf": ljf,
        "isjl_paper_naive": lambda o, b: isjl_paper(o, b, alpha),
        "isjl_paper_fixed": lambda o, b: isjl_paper(o, b, alpha, hold=True),
        "isjl_b0": lambda o, b: isjl(o, b, alpha),
        "isjl_best": lambda o, b: isjl_best(o, b, alpha),
    }[name]


@pytest.mark.skipif(not GOLDEN.is_file(), reason=f"{GOLDEN}: the golden vectors are not there")
def test_golden_vectors() -> None:
    vectors = json.loads(GOLDEN.read_text())
    assert vectors
    for one in vectors:
        lengths, slots, alpha = one["o"], one["B"], one["alpha"]
        starts = planner(one["policy"], alpha)(lengths, slots)
        assert starts == one["start"], one
        steps = steps_of(lengths, starts)
        assert len(steps) == makespan(lengths, starts) == one["T"]
        assert max(step.gap for step in steps) == one["gap_max"]
        assert sum(step.gap for step in steps) / len(steps) == pytest.approx(one["gap_mean"], abs=1e-6)
        assert sum(step.gap > alpha for step in steps) / len(steps) == pytest.approx(one["viol_frac"], abs=1e-6)
        assert sum(step.n * step.most - step.total for step in steps) == one["E"]
        assert sum(step.total for step in steps) == one["Q"] == sum(o * (o + 1) // 2 for o in lengths)


def test_the_baselines_by_hand() -> None:
    lengths = [3, 1, 2, 1]
    assert fcfs(lengths, 2) == [0, 0, 1, 3]
    assert sjf(lengths, 2) == [1, 0, 1, 0]
    assert lpt(lengths, 2) == [0, 2, 0, 3]
    assert ljf(lengths, 2) == [0, 3, 0, 3]
    assert ljf([5, 9, 7], 1) == [16, 0, 9]


def test_isjl_by_hand() -> None:
    # Leaders 20 and 15 of a batch; slot 2 may start its leader up to 5 late: 4 goes before it, 3 does not fit.
    # Then 3 is left for the end, where the slot of 15 is free only when 20 is done.
    assert isjl([20, 15, 4, 3], 2, 10) == [0, 4, 0, 20]
    # β = 3 widens both slots by 3, to 3 and 4 that are left: the 3 goes where there is more.
    assert isjl([20, 15, 4, 3], 2, 10, beta=3) == [0, 7, 0, 4]
    # A slot without a leader takes shorts that start by α.
    assert isjl([9, 3, 3, 3], 2, 3) == [0, 0, 3, 9]


def test_without_a_leader_isjl_is_lpt_and_with_alpha_0_ljf() -> None:
    lengths = [4, 9, 2, 7, 7, 1, 3]
    assert isjl(lengths, 3, 9) == lpt(lengths, 3)
    assert isjl_paper(lengths, 3, 9) == lpt(lengths, 3)
    assert isjl(lengths, 3, 0) == isjl_paper(lengths, 3, 0) == isjl_best(lengths, 3, 0) == ljf(lengths, 3)


def test_the_papers_form_exceeds_alpha_where_shorts_run_out_and_the_hold_mends_it() -> None:
    lengths, slots, alpha = [17, 9, 7, 6], 2, 8
    as_printed = isjl_paper(lengths, slots, alpha)
    assert as_printed == [0, 13, 0, 7]
    assert gap_max(lengths, as_printed) == 13
    held = isjl_paper(lengths, slots, alpha, hold=True)
    assert held == [5, 13, 0, 7]
    assert gap_max(lengths, held) == alpha


def test_the_papers_form_may_take_longer_than_ljf() -> None:
    lengths, slots, alpha = [11, 10, 9, 2], 2, 5
    assert makespan(lengths, isjl_paper(lengths, slots, alpha, hold=True)) == 21
    assert makespan(lengths, ljf(lengths, slots)) == 20
    assert makespan(lengths, isjl(lengths, slots, alpha)) <= 20
    assert makespan(lengths, isjl_best(lengths, slots, alpha)) <= 20


def test_the_papers_form_may_be_two_thirds_of_the_fair_optimum() -> None:
    lengths, slots, alpha = [2, 1, 1], 2, 1
    assert makespan(lengths, isjl_paper(lengths, slots, alpha)) == 3
    assert makespan(lengths, isjl_best(lengths, slots, alpha)) == fair_optimum(lengths, slots, alpha) == 2


def test_a_slot_that_is_done_early_waits_for_the_last_leaders() -> None:
    lengths, slots, alpha = [8, 8, 8, 5, 2, 2], 2, 6
    starts = isjl(lengths, slots, alpha)
    assert starts == [0, 0, 8, 8, 13, 16]
    assert gap_max(lengths, starts) <= alpha
    at_its_own_end = [*starts[:5], 15]
    assert gap_max(lengths, at_its_own_end) == 7


def test_a_rare_case_below_three_quarters() -> None:
    lengths, slots, alpha = [10, 5, 5], 2, 4
    assert makespan(lengths, isjl(lengths, slots, alpha)) == makespan(lengths, isjl_best(lengths, slots, alpha)) == 15
    assert fair_optimum(lengths, slots, alpha) == 11


def test_the_bound_counts_a_long_request_of_every_slots() -> None:
    assert fair_lower_bound([10, 10, 10], 2, 4) == 20
    assert fair_lower_bound([10, 10, 10], 2, 5) == 15
    assert fair_lower_bound([10, 1, 1], 2, 5) == 10


@pytest.mark.parametrize(
    ("lengths", "slots", "alpha", "said"),
    [
        ([], 2, 1, "no requests"),
        ([3, 0, 1], 2, 1, "request 1: its length is 0"),
        ([3, -4], 2, 1, "request 1: its length is -4"),
        ([3], 0, 1, "slots B = 0"),
        ([3], 2, -1, "alpha=-1"),
    ],
)
def test_what_cannot_be_planned_is_said(lengths: list[int], slots: int, alpha: int, said: str) -> None:
    for name in ("isjl_paper_naive", "isjl_paper_fixed", "isjl_b0", "isjl_best"):
        with pytest.raises(PolicyError, match=said):
            planner(name, alpha)(lengths, slots)
    for name in ("fcfs", "sjf", "lpt", "ljf"):
        if alpha >= 0:
            with pytest.raises(PolicyError, match=said):
                planner(name, alpha)(lengths, slots)


@pytest.mark.parametrize("beta", [-1, 5])
def test_beta_lies_between_0_and_alpha(beta: int) -> None:
    with pytest.raises(PolicyError, match="beta"):
        isjl([3, 2], 2, 4, beta)
