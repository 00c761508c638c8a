"""Policy constants derived from the roofline: model 1 fitted to model 2."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.errors import USER_ERRORS, UserError
from harness.profiles.derived import DECODE_REQUESTS, PREFILL_TOKENS, prefill_line, step_costs
from harness.profiles.pair import load_pair
from harness.profiles.roofline import Roofline

SHAREGPT = (230.0, 250.0, 14336)


def roofline(gpu: str) -> Roofline:
    cost = load_pair(gpu, "Qwen3-8B").cost("roofline")
    assert isinstance(cost, Roofline)
    return cost


@pytest.mark.parametrize("gpu", ["l40s", "h200", "rtxpro6000", "b300"])
def test_the_lines_are_plain_least_squares_where_the_floor_does_not_bind(gpu: str) -> None:
    cost = roofline(gpu)
    line = prefill_line(cost)
    slope, intercept = np.polyfit(PREFILL_TOKENS, [cost.seconds(n, n * n / 2, 0, 0, 0) for n in PREFILL_TOKENS], 1)
    assert line.free_alpha_s == pytest.approx(intercept, abs=1e-12)
    if intercept > cost.host_s:
        assert (line.alpha_s, line.beta_s) == pytest.approx((intercept, slope), rel=1e-9)
    costs = step_costs(cost, *SHAREGPT, "x")
    slope, intercept = np.polyfit(DECODE_REQUESTS, [cost.seconds(0, 0.0, n, n * 355, 0) for n in DECODE_REQUESTS], 1)
    assert (costs.alpha_d_s, costs.beta_d_s) == pytest.approx((intercept, slope), rel=1e-9)


def test_the_constants_of_the_derived_pairs_at_sharegpt_lengths() -> None:
    """The figures that docs/cost-models.md prints."""
    expected = {
        "l40s": (5.5661e-3, 7.2667e-5, 19.2524e-3, 1.28158e-4, 6.7754e-5, 1.47000e-4),
        "a100": (2.5e-3, 8.4931e-5, 7.7719e-3, 1.07761e-4, 7.8856e-5, 1.69779e-4),
        "h100": (2.5e-3, 2.6772e-5, 6.4664e-3, 4.4104e-5, 2.4871e-5, 2.5325e-5),
    }
    for gpu, figures in expected.items():
        costs = load_pair(gpu, "Qwen3-8B").policy_constants(*SHAREGPT, "roofline")
        got = (
            costs.alpha_p_s,
            costs.beta_p_s,
            costs.alpha_d_s,
            costs.beta_d_s,
            costs.mixed_a_s,
            costs.mixed_b_s,
        )
        assert got == pytest.approx(figures, rel=1e-4)
        assert costs.alpha_mb_s == costs.alpha_p_s
        assert costs.mixed_c_s == pytest.approx(0, abs=1e-12)


def test_an_intercept_below_the_hosts_time_is_held_there_and_said() -> None:
    cost = roofline("a100")
    line = prefill_line(cost)
    assert line.free_alpha_s == pytest.approx(-0.863e-3, abs=1e-6)
    assert line.alpha_s == cost.host_s
    # The best slope through the floor: Σ n(t − floor)/Σ n².
    t = [cost.seconds(n, n * n / 2, 0, 0, 0) - cost.host_s for n in PREFILL_TOKENS]
    best = sum(n * s for n, s in zip(PREFILL_TOKENS, t, strict=True)) / sum(n * n for n in PREFILL_TOKENS)
    assert line.beta_s == pytest.approx(best, rel=1e-9)
    (note,) = load_pair("a100", "Qwen3-8B").policy_notes("roofline")
    assert "-0.86 ms" in note
    assert "2.5 ms" in note
    assert load_pair("l40s", "Qwen3-8B").policy_notes("roofline") == ()


def test_mixed_constants_give_back_the_mixed_steps() -> None:
    cost = roofline("l40s")
    costs = step_costs(cost, *SHAREGPT, "x")
    budget = 14336
    for r in (0.1, 0.5, 0.9):
        decodes = round(r * budget)
        prefill = budget - decodes
        seconds = cost.seconds(prefill, prefill * 230 / 2, decodes, decodes * 355, 0)
        fitted = costs.alpha_mb_s + costs.beta_mb(decodes / budget) * budget
        assert fitted == pytest.approx(seconds, rel=1e-3)


def test_a_prompt_longer_than_its_share_of_the_budget_is_one_chunk() -> None:
    costs = step_costs(roofline("l40s"), 50_000.0, 100.0, 2048, "x")
    assert costs.beta_mb(0.5) > 0


def test_published_constants_do_not_depend_on_the_workload() -> None:
    pair = load_pair("h200", "Qwen3-8B")
    told = pair.policy_constants(1.0, 1.0, 32, "linear")
    assert told == pair.policy_constants(9000.0, 10.0, 8192, "linear")
    assert told.alpha_mb_s == 0.0012785933415095027


@pytest.mark.parametrize("kind", ["roofline", "kernels"])
def test_a_policy_is_told_the_costs_of_the_world_that_it_runs_in(kind: str) -> None:
    """Of a pair that was measured too: the constants are a fit to the steps that are simulated."""
    pair = load_pair("h200", "Qwen3-8B")
    told = pair.policy_constants(*SHAREGPT, kind)
    cost = pair.cost(kind)
    assert told != pair.policy_constants(*SHAREGPT, "linear")
    for n in (64, 512, 1024):
        fitted = told.alpha_d_s + told.beta_d_s * n
        assert fitted == pytest.approx(cost.seconds(0, 0.0, n, n * 355, 0), rel=0.2)


@pytest.mark.parametrize(("mu_l", "mu_o", "budget"), [(0.0, 250.0, 14336), (230.0, 0.0, 14336), (230.0, 250.0, 8)])
def test_a_workload_too_small_to_fit_is_one_clear_line(mu_l: float, mu_o: float, budget: int) -> None:
    with pytest.raises(UserError, match=r"^l40s / Qwen3-8B: ") as error:
        load_pair("l40s", "Qwen3-8B").policy_constants(mu_l, mu_o, budget)
    assert "\n" not in str(error.value)


def test_a_slope_that_is_not_positive_is_refused() -> None:
    # A step whose time does not grow with its work has no slope.
    flat = Roofline(weight_read_s=0.01, beta_s=0.0, kappa_s=0.0, xi_s=0.0, q_s=0.0, decode_s=0.0)
    with pytest.raises(USER_ERRORS, match="not positive"):
        step_costs(flat, *SHAREGPT, "x")
