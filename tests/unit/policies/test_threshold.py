"""The closed forms against arithmetic to 50 digits, written out from the paper's equations."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from mpmath import mp, mpf

from policies.core import PolicyError, StepCosts
from policies.online.threshold import (
    beta_eb,
    crossover,
    delta_theta,
    growth_reserve,
    mean_age,
    n_star,
    n_star_limited,
    theta0,
    throughput_eb,
    zeta_of,
)

mp.dps = 50

# The published fit of Qwen3-8B on an H200.
COSTS = StepCosts(
    alpha_p_s=0.0012785933415095027,
    beta_p_s=2.4852551825304505e-05,
    alpha_d_s=0.008921181622454422,
    beta_d_s=4.586467522217373e-05,
    alpha_mb_s=0.0012785933415095027,
    mixed_a_s=2.493675e-05,
    mixed_b_s=5.192856e-05,
    mixed_c_s=1.477785e-05,
)

# rhs: θ0, the root in (0, 1) of θ/(1−θ) + ln(1−θ) = rhs, 20 digits (mpmath, 50).
GOLDEN_THETA0 = {
    1e-12: "1.4142122290407830770e-6",
    1e-09: "0.000044720026248960540194",
    1e-06: "0.0014128812497351515494",
    0.0001: "0.014009816892804993067",
    0.001: "0.043419656232716527561",
    0.01: "0.12904513426809675607",
    0.1: "0.34046560921221487017",
    0.5: "0.57585363122486119234",
    1.0: "0.68215556710062731617",
    2.0: "0.77803631593693099312",
    10.0: "0.92652930341292825058",
    100.0: "0.99053570095695104801",
    1000.0: "0.99900785347447960819",
}


def exact_theta0(rhs: mpf) -> mpf:
    """Bisection in ζ = −ln(1−θ), where the equation is e^ζ − 1 − ζ = rhs: nothing to do with Newton."""
    low, high = mpf(0), mp.log(1 + rhs + mp.sqrt(2 * rhs))
    for _ in range(170):
        middle = (low + high) / 2
        if mp.expm1(middle) - middle < rhs:
            low = middle
        else:
            high = middle
    return -mp.expm1(-low)


def relative(got: float, exact: mpf) -> float:
    return float(abs(mpf(got) - exact) / abs(exact))


@pytest.mark.parametrize(("rhs", "digits"), GOLDEN_THETA0.items())
def test_theta0_equals_its_golden_value(rhs: float, digits: str) -> None:
    assert relative(theta0(rhs, 1.0, 1.0), mpf(digits)) < 1e-15


@pytest.mark.parametrize("exponent", range(-24, 7))
def test_theta0_is_right_to_the_last_digits_from_1e_12_to_1e3(exponent: int) -> None:
    rhs = 10 ** (exponent / 2)
    assert relative(theta0(rhs, 1.0, 1.0), exact_theta0(mpf(rhs))) < 1e-15


def test_theta0_is_right_at_published_constants() -> None:
    for p0 in (1 / 64, 1 / 256, 1 / 1024, 1 / 4096):
        exact = exact_theta0(mpf(p0) * mpf(COSTS.alpha_p_s) / mpf(COSTS.alpha_d_s))
        assert relative(theta0(p0, COSTS.alpha_p_s, COSTS.alpha_d_s), exact) < 1e-15


def test_theta0_where_its_series_and_its_exponential_meet() -> None:
    middle = math.exp(0.5) - 1.5
    for i in range(-50, 51):
        rhs = middle * (1 + i * 1e-3)
        assert relative(theta0(rhs, 1.0, 1.0), exact_theta0(mpf(rhs))) < 1e-15


@pytest.mark.parametrize("rhs", [1e-8, 1e-10, 1e-12, 1e-200])
def test_small_theta0_is_the_root_of_twice_the_right_side(rhs: float) -> None:
    # With s = sqrt(2·rhs) the series is θ0 = s − (2/3)·s² + …
    assert theta0(rhs, 1.0, 1.0) == pytest.approx(math.sqrt(2 * rhs), rel=2 * math.sqrt(rhs) + 1e-15)


def test_theta0_of_nothing_and_of_too_much_stays_in_the_half_open_interval() -> None:
    assert theta0(0.0, 1.0, 1.0) == 0.0
    assert theta0(1.0, 0.0, 1.0) == 0.0
    for huge in (1e15, 1e17, 1e300):
        theta = theta0(1.0, huge, 1.0)
        assert 0.9 < theta < 1
        assert math.isfinite(delta_theta(1e-6, 1e-3, theta, 1024, 0.01, 1e-5))
    assert theta0(1.0, 1.0, 5e-324) < 1


@pytest.mark.parametrize(
    "arguments",
    [(0.1, 1.0, 0.0), (0.1, 1.0, -1.0), (0.1, 1.0, math.nan), (-0.1, 1.0, 1.0), (0.1, -1.0, 1.0), (math.nan, 1.0, 1.0)],
)
def test_theta0_refuses_what_has_no_root(arguments: tuple[float, float, float]) -> None:
    with pytest.raises(PolicyError) as error:
        theta0(*arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("slots", "mu_l"), [(64, 10.0), (1024, 400.0), (2048, 5000.0)])
@pytest.mark.parametrize("p0", [1 / 64, 1 / 1024])
@pytest.mark.parametrize("alpha_p_s", [0.0013, 0.05, 3.0])
def test_theta0_maximises_the_throughput_whatever_n_and_the_prompts(
    slots: int, mu_l: float, p0: float, alpha_p_s: float
) -> None:
    costs = dataclasses.replace(COSTS, alpha_p_s=alpha_p_s)
    best = theta0(p0, costs.alpha_p_s, costs.alpha_d_s)
    at_best = throughput_eb(best, slots, p0, mu_l, costs)
    for i in range(1, 1000):
        assert throughput_eb(i / 1000, slots, p0, mu_l, costs) <= at_best
    for nudge in (0.99, 0.999, 1.001, 1.01):
        assert throughput_eb(min(best * nudge, 0.999999), slots, p0, mu_l, costs) < at_best


def exact_throughput(theta: float, slots: int, p0: float, mu_l: float) -> mpf:
    t, p = mpf(theta), mpf(p0)
    fixed = (mpf(COSTS.alpha_p_s) - mpf(COSTS.alpha_d_s) * mp.log(1 - t) / p) / (t * slots)
    return 1 / (fixed + mpf(COSTS.beta_p_s) * mpf(mu_l) + mpf(COSTS.beta_d_s) / p)


@pytest.mark.parametrize("theta", [1e-9, 0.01, 0.3, 0.7, 0.999])
def test_throughput_is_form_1(theta: float) -> None:
    got = throughput_eb(theta, 1024, 1 / 300, 250.5, COSTS)
    assert relative(got, exact_throughput(theta, 1024, 1 / 300, 250.5)) < 1e-14


def exact_delta(eta: float, p0: float, theta: float, slots: float, alpha_d: float, beta_d: float) -> mpf:
    t, p = mpf(theta), mpf(p0)
    zeta = -mp.log(1 - t)
    bracket = zeta * (t / (1 - t) - zeta / 2) + mpf(beta_d) * mpf(slots) / mpf(alpha_d) * (zeta - t)
    return mpf(eta) * (1 - t) ** 2 / (p**2 * t) * bracket


@pytest.mark.parametrize("theta", [1e-12, 1e-8, 1e-5, 1e-3, 0.05, 0.39, 0.3935, 0.4, 0.8, 0.999])
@pytest.mark.parametrize("slots", [1.0, 1024.0])
def test_the_correction_is_form_3_also_where_a_plain_difference_would_cancel(theta: float, slots: float) -> None:
    arguments = (1e-7, 1 / 700, theta, slots, COSTS.alpha_d_s, COSTS.beta_d_s)
    assert relative(delta_theta(*arguments), exact_delta(*arguments)) < 2e-14


def test_the_correction_of_no_slope_or_no_threshold_is_none() -> None:
    assert delta_theta(0.0, 0.001, 0.5, 1024, 0.01, 1e-5) == 0.0
    assert delta_theta(-1e-6, 0.001, 0.5, 1024, 0.01, 1e-5) == 0.0
    assert delta_theta(1e-6, 0.001, 0.0, 1024, 0.01, 1e-5) == 0.0


@pytest.mark.parametrize("p0", [1 / 64, 1 / 1000])
def test_the_correction_is_the_slope_of_the_best_threshold_over_eta(p0: float) -> None:
    """Form 3 against the thing it approximates: the best θ of a cohort that lives by h(t) = p0 + η·t.

    Form 1 for any survival S: with T(θ) where S(T) = 1−θ, cost a request is (α_p + α_d·T + β_d·N·∫S)/(θN).
    A survivor keeps its age in reality; the form takes every cohort to start at age 0, and so does this.
    """
    alpha_p, alpha_d, beta_d, slots = mpf("0.05"), mpf("0.009"), mpf("4.6e-5"), 1024
    p = mpf(p0)

    def best(eta: mpf) -> mpf:
        def slope(theta: mpf) -> mpf:
            zeta = -mp.log(1 - theta)
            end = 2 * zeta / (p + mp.sqrt(p * p + 2 * eta * zeta))
            lived = mp.quad(lambda t: mp.e ** (-p * t - eta * t * t / 2), [0, end])
            pace = (alpha_d + beta_d * slots * (1 - theta)) / ((1 - theta) * (p + eta * end))
            return pace * theta - (alpha_p + alpha_d * end + beta_d * slots * lived)

        return mp.findroot(slope, exact_theta0(p * alpha_p / alpha_d))

    with mp.workdps(30):
        step = p * p * mpf("1e-8")
        slope = (best(step) - best(mpf(0))) / step
    theta = theta0(p0, float(alpha_p), float(alpha_d))
    got = delta_theta(p0 * p0 * 1e-8, p0, theta, slots, float(alpha_d), float(beta_d)) / (p0 * p0 * 1e-8)
    assert got == pytest.approx(float(slope), rel=1e-5)


def exact_age(theta: float, p0: float) -> mpf:
    t = mpf(theta)
    return -(1 - t) * mp.log(1 - t) / (t * mpf(p0))


def exact_n_star(capacity: float, epsilon: float, p0: float, mu_l: float, theta: float) -> mpf:
    numerator = mpf(capacity) - mp.log(1 / mpf(epsilon)) / (mpf(p0) ** 2 * mpf(mu_l))
    if numerator <= 0:
        return mpf(capacity) / (mpf(mu_l) + 1 / mpf(p0))
    return numerator / (mpf(mu_l) + exact_age(theta, p0))


def test_n_star_is_the_exact_floor_of_form_4() -> None:
    rng = random.Random(4)
    for _ in range(2000):
        arguments = (
            float(rng.randrange(1, 2_000_000) * 16),
            10 ** rng.uniform(-6, -0.01),
            1 / rng.uniform(2, 4000),
            rng.uniform(1, 8000),
            rng.uniform(1e-4, 0.999),
        )
        exact = exact_n_star(*arguments)
        assert abs(exact - mp.nint(exact)) > 1e-9 * exact, "too near a whole number to say what a double gives"
        assert n_star(*arguments) == int(mp.floor(exact))


def test_n_star_with_too_little_kv_for_its_margin_takes_the_mean_footprint() -> None:
    assert n_star(100_000, 0.01, 1 / 1000, 10.0, 0.5) == math.floor(100_000 / 1010)


def test_n_star_stays_between_a_tenth_rounded_up_and_all_slots() -> None:
    assert n_star_limited(1e12, 0.01, 1 / 500, 300.0, 0.5, 1024) == 1024
    assert n_star_limited(1600, 0.01, 1 / 500, 300.0, 0.5, 1024) == 103
    assert n_star_limited(1600, 0.01, 1 / 500, 300.0, 0.5, 1) == 1
    between = n_star(300_000, 0.01, 1 / 500, 300.0, 0.5)
    assert 103 < between < 1024
    assert n_star_limited(300_000, 0.01, 1 / 500, 300.0, 0.5, 1024) == between


@pytest.mark.parametrize("theta", [1e-9, 1e-3, 0.1, 0.5, 0.7, 0.99])
@pytest.mark.parametrize("mu_l", [1.0, 100.0, 900.0, 5000.0])
def test_the_reserve_is_the_growth_from_the_start_to_the_peak(theta: float, mu_l: float) -> None:
    p0 = 1 / 1000
    p, t = mpf(p0), mpf(theta)
    start = mpf(mu_l) + exact_age(theta, p0)
    x = min(max(1 - p * start, mpf(0)), -mp.log(1 - t))
    exact = max(mpf(0), mp.e ** (-x) * (start + x / p) - start)
    assert growth_reserve(theta, p0, mu_l) == pytest.approx(float(exact), abs=4e-16 * float(start) * 4)
    # The same by looking: KV a starting request after y/p steps, the y that gives most.
    looked = max(mp.e ** (-y) * (start + y / p) for y in (-mp.log(1 - t) * i / 400 for i in range(401))) - start
    assert growth_reserve(theta, p0, mu_l) == pytest.approx(float(looked), rel=1e-4, abs=1e-5 * float(start))


def test_the_reserve_at_the_ends_of_theta() -> None:
    assert growth_reserve(0.0, 0.001, 100.0) == 0.0
    assert growth_reserve(1 / 1024, 0.001, 1000.0) == 0.0, "v0 with prompts of the mean output: nothing grows"
    # k = N: all start at age 0 and nothing bounds the phase.
    assert growth_reserve(1.0, 0.001, 100.0) == pytest.approx(math.exp(-0.9) * 1000 - 100)
    assert growth_reserve(1.0, 0.001, 100.0) == pytest.approx(growth_reserve(1 - 1e-12, 0.001, 100.0), rel=1e-6)
    assert mean_age(1.0, 0.001) == 0.0


@pytest.mark.parametrize(("theta", "mu_l", "mu_o", "n_obs"), [(0.1, 200.0, 300.0, 900.0), (0.7, 3000.0, 40.0, 12.5)])
@pytest.mark.parametrize("delta", [0.0, 1e-5, -1e-5])
def test_both_sides_of_the_crossover_are_form_6(
    theta: float, mu_l: float, mu_o: float, n_obs: float, delta: float
) -> None:
    c = {f.name: mpf(getattr(COSTS, f.name)) for f in dataclasses.fields(COSTS)}
    l, o, t = mpf(mu_l), mpf(mu_o), mpf(theta)  # noqa: E741
    r = o / (l + o)
    mixed = c["mixed_a_s"] + c["mixed_b_s"] * r + c["mixed_c_s"] * r * r
    exclusive = (c["beta_p_s"] * l + c["beta_d_s"] * o) / (l + o)
    fixed = (c["alpha_p_s"] - c["alpha_d_s"] * mp.log(1 - t) * o) / t - c["alpha_mb_s"] * (1 + o)
    left, right = crossover(theta, mu_l, mu_o, n_obs, delta, COSTS)
    assert left == pytest.approx(float(mixed - exclusive), abs=1e-19)
    assert right == pytest.approx(float(fixed / ((l + o) * mpf(n_obs)) + mpf(delta)), rel=1e-14, abs=1e-19)
    assert beta_eb(mu_l, mu_o, COSTS) == pytest.approx(float(exclusive), rel=1e-15)


def test_zeta_keeps_its_digits_at_small_theta() -> None:
    assert relative(zeta_of(1e-12), -mp.log(1 - mpf(1e-12))) < 1e-15


@pytest.mark.parametrize("value", [0.0, -0.0, -1e-3])
def test_alpha_d_of_nothing_is_refused_in_one_clear_line(value: float) -> None:
    with pytest.raises(PolicyError, match=r"^alpha_d_s is .*α_d = 0.*θ0 is 1.*calibrate") as error:
        dataclasses.replace(COSTS, alpha_d_s=value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(StepCosts)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_cost_that_is_no_number_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(PolicyError, match=f"^{name} is "):
        dataclasses.replace(COSTS, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("beta_p_s", 0.0), ("beta_d_s", -1e-6), ("alpha_p_s", -1e-3), ("alpha_mb_s", -1e-3)]
)
def test_a_cost_that_falls_with_work_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(PolicyError, match=name):
        dataclasses.replace(COSTS, **{name: value})


def test_fixed_parts_of_nothing_are_fine_but_for_alpha_d() -> None:
    costs = dataclasses.replace(COSTS, alpha_p_s=0.0, alpha_mb_s=0.0, mixed_b_s=-1e-6)
    assert costs.beta_mb(0.0) == costs.mixed_a_s
    assert costs.beta_mb(0.5) == pytest.approx(costs.mixed_a_s - 0.5e-6 + 0.25 * costs.mixed_c_s)
