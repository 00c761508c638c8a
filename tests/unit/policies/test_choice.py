"""Which k, by what a request costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from policies.online.choice import (
    CANDIDATES,
    Content,
    DecodeTimes,
    Traffic,
    candidates,
    exclusive_s,
    mixed_s,
    mixed_token_s,
    saturated,
    smallest_good,
    unsaturated,
)
from policies.online.threshold import theta0

TRAFFIC = Traffic(
    prompt=200.0, output=300.0, rate=20.0, batch=1000.0, most=500.0, decoding=500.0, context=400.0, work=100.0,
    budget=8000,
)  # fmt: skip
ALL = 1 << 62  # prompt tokens of a step
ALPHA_P, BETA_P, ALPHA_D, BETA_D = 0.02, 2e-5, 0.009, 5e-5


def prefill(content: Content) -> float:
    return ALPHA_P + BETA_P * content[0]


def decode(content: Content) -> float:
    return ALPHA_D + BETA_D * content[2]


TIMES = DecodeTimes.of(TRAFFIC, decode)


def mixed(content: Content) -> float:
    return ALPHA_D + BETA_D * content[2] + 3e-5 * content[0]


def test_an_admission_takes_as_many_steps_as_the_budget_asks_for() -> None:
    assert exclusive_s(10, ALL, TRAFFIC, prefill) == pytest.approx(ALPHA_P + BETA_P * 2000)
    assert exclusive_s(100, ALL, TRAFFIC, prefill) == pytest.approx(3 * ALPHA_P + BETA_P * 20000)
    assert exclusive_s(10, 500, TRAFFIC, prefill) == pytest.approx(4 * ALPHA_P + BETA_P * 2000)
    assert mixed_s(100, 500, ALL, TRAFFIC, mixed, TIMES) == pytest.approx(3e-5 * 20000)
    assert mixed_s(100, 500, ALL, TRAFFIC, lambda content: 0.5 * decode(content), TIMES) == 0.0, (
        "mixing never makes a step cheaper"
    )


def test_a_prompt_token_costs_what_it_adds_and_its_share_of_decoding() -> None:
    # 200 prompt tokens and 300 answers a request, 500 that decode: 0.6 answers of a 500th of a step each.
    share = (ALPHA_D + BETA_D * 500) * 300 / (500 * 200)
    assert mixed_token_s(4000, TRAFFIC, mixed, TIMES) == pytest.approx(3e-5 + share, rel=1e-3)
    # Steps of 100 tokens let in half a request each: 150 decode in the end, and share what a step costs.
    few = (ALPHA_D + BETA_D * 150) * 300 / (150 * 200)
    assert mixed_token_s(100, TRAFFIC, mixed, TIMES) == pytest.approx(3e-5 + few, rel=1e-3)
    assert mixed_token_s(4000, TRAFFIC, lambda _: 0.0, TIMES) == pytest.approx(share, rel=1e-3)


def test_candidates_lie_on_octaves() -> None:
    assert candidates(0.3) == [1]
    assert candidates(600)[0] == 1
    assert candidates(600)[-1] == 600
    assert CANDIDATES - 2 <= len(candidates(1e6)) <= CANDIDATES
    assert candidates(7) == [1, 2, 3, 4, 5, 6, 7]


def test_the_smallest_k_close_to_the_best() -> None:
    assert smallest_good([(1, 2.0), (2, 1.009), (5, 1.0), (9, 1.005)]) == (2, 1.009)
    assert smallest_good([(1, math.inf), (2, math.inf)]) == (1, math.inf)


def test_in_saturation_the_best_k_is_the_papers() -> None:
    """With the costs of form 1 the least cost lies at θ0 (form 2), whatever the prompts."""
    wide = replace(TRAFFIC, budget=10**9, batch=100_000.0)

    def admission(k: int) -> float:
        return exclusive_s(k, ALL, wide, prefill)

    k, cost = saturated(admission, wide, ALPHA_D)
    theta = theta0(1 / wide.output, ALPHA_P, ALPHA_D)
    n = wide.batch
    best = (admission(round(theta * n)) - ALPHA_D * math.log(1 - theta) * wide.output) / (theta * n)
    assert best <= cost * 1.001
    assert cost <= best * 1.03  # 24 candidates, and the smallest of those within 1 %
    assert k / n <= theta


def test_a_prefill_that_costs_nothing_to_begin_wants_no_batch() -> None:
    k, _ = unsaturated(lambda k: 1e-3 * k, TRAFFIC, TIMES, ttft_s=10.0)
    assert k == 1


def test_below_saturation_a_batch_pays_where_each_prefill_costs_much_by_itself() -> None:
    k, stay = unsaturated(lambda k: 0.1 + 1e-3 * k, TRAFFIC, TIMES, ttft_s=10.0)
    assert k > 2
    assert math.isfinite(stay)
    bound, _ = unsaturated(lambda k: 0.1 + 1e-3 * k, TRAFFIC, TIMES, ttft_s=0.3)
    assert bound <= 0.15 * TRAFFIC.rate + 1e-9 or bound == 1


def test_a_stay_is_the_wait_the_prefill_and_the_decoding_of_a_steady_batch() -> None:
    k, stay = unsaturated(lambda _: 0.01, replace(TRAFFIC, rate=1.0), TIMES, ttft_s=1.0)
    assert k == 1
    # D = λOτ, τ = (α_d + β_d D)/(1 − λE) solved by hand.
    step = ALPHA_D / (0.99 - BETA_D * 300)
    assert stay == pytest.approx(0.01 + 300 * step, rel=0.01)


def test_admissions_that_take_all_the_time_have_no_stay() -> None:
    assert unsaturated(lambda k: 1.0 * k, TRAFFIC, TIMES, 1.0) == (1, math.inf)
