"""What holds of the policies whatever comes: one θ0, no stall, and steps that may be told in any portions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import assume, given
from hypothesis import strategies as st

from policies.core import PartialPrefill, Phase, Policy, StepCosts
from policies.online.controller import ControlOptions, FixedController, OnlineController
from policies.online.ebplus import EBPlus
from policies.online.exclusive import Exclusive
from policies.online.hazard import ExposureEstimator
from policies.online.threshold import growth_reserve, n_star_limited, theta0, throughput_eb

COSTS = StepCosts(0.0013, 2.5e-5, 0.0089, 4.6e-5, 0.0013, 2.5e-5, 5.2e-5, 1.5e-5)

rights = st.floats(-12, 3).map(lambda x: 10**x)
shares = st.floats(0.001, 0.999)


def left(theta: float) -> float:
    """θ/(1−θ) + ln(1−θ), as printed."""
    return theta / (1 - theta) + math.log1p(-theta)


@given(rights, rights)
def test_theta0_rises_with_the_right_side(a: float, b: float) -> None:
    assume(abs(a - b) > 1e-14 * max(a, b))
    assert (theta0(a, 1.0, 1.0) < theta0(b, 1.0, 1.0)) == (a < b)


@given(rights)
def test_theta0_is_the_only_root(rhs: float) -> None:
    """The left side rises from 0, so what is above on one side and below on the other is crossed once."""
    theta = theta0(rhs, 1.0, 1.0)
    assert 0 < theta < 1
    for share in (0.01, 0.5, 0.999):
        # −1e-15: the printed left side itself cancels to no better where θ is small.
        assert left(theta * share) - 1e-15 < rhs
        above = 1 - (1 - theta) * share
        assert left(above) + 1e-15 > rhs


@given(rights, st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_theta0_depends_on_the_product_alone(rhs: float, p0: float, alpha_d: float) -> None:
    assert math.isclose(theta0(p0, rhs * alpha_d / p0, alpha_d), theta0(rhs, 1.0, 1.0), rel_tol=1e-14)


@given(st.floats(1e-5, 0.5), st.floats(1, 1e5), st.integers(1, 4096), shares)
def test_no_threshold_beats_theta0(p0: float, mu_l: float, slots: int, theta: float) -> None:
    best = theta0(p0, COSTS.alpha_p_s, COSTS.alpha_d_s)
    assert throughput_eb(theta, slots, p0, mu_l, COSTS) <= throughput_eb(best, slots, p0, mu_l, COSTS) * (1 + 1e-14)


@given(st.integers(1, 10**9), shares, st.floats(1e-5, 1), st.floats(1, 1e5), shares, st.integers(1, 4096))
def test_slots_and_reserve_stay_in_their_limits(
    capacity: int, epsilon: float, p0: float, mu_l: float, theta: float, slots: int
) -> None:
    assert -(-slots // 10) <= n_star_limited(capacity, epsilon, p0, mu_l, theta, slots) <= slots
    assert 0 <= growth_reserve(theta, p0, mu_l) <= 1 / p0


@dataclass(slots=True)
class AnyView:
    slots: int
    token_budget: int
    block_size: int
    total_blocks: int
    free_blocks: int
    watermark_blocks: int
    waiting: int
    prefilling: int
    decoding: int
    queue: list[int]

    def waiting_tokens(self) -> Iterator[int]:
        return iter(self.queue)

    def num_output_tokens(self) -> list[int]:
        return sorted((1 + 7 * i % 300 for i in range(self.decoding)), reverse=True)

    def footprints(self) -> list[int]:
        return []

    def partial_prefills(self) -> list[PartialPrefill]:
        return []


@st.composite
def views(draw: st.DrawFn, slots: int) -> AnyView:
    total = draw(st.integers(1, 5000))
    held = draw(st.integers(0, slots))
    prefilling = min(held, draw(st.integers(0, 1)))
    queue = draw(st.lists(st.integers(1, 60_000), max_size=12))
    return AnyView(
        slots,
        draw(st.sampled_from([1, 16, 2048, 14336])),
        16,
        total,
        draw(st.integers(0, total)),
        draw(st.sampled_from([0, 1, total // 20, total])),
        len(queue),
        prefilling,
        held - prefilling,
        queue,
    )


@st.composite
def machines(draw: st.DrawFn) -> tuple[int, Policy]:
    slots = draw(st.integers(1, 40))
    options = ControlOptions(
        theta_min=0.01,
        theta_max=draw(shares.filter(lambda x: x >= 0.01)),
        theta_init=draw(shares),
        window=draw(st.integers(1, 50)),
        update_every=draw(st.integers(1, 40)),
        correction=draw(st.sampled_from(["first_order", "none"])),
    )
    kind = draw(st.sampled_from(["fixed", "online", "ebplus"]))
    if kind == "fixed":
        return slots, Exclusive(FixedController(draw(st.integers(1, slots)), options))
    controller = OnlineController(options, COSTS)
    if kind == "online":
        return slots, Exclusive(controller)
    return slots, EBPlus(controller, COSTS, draw(st.sampled_from([-1.0, 0.0, 1.0])), 0.1, draw(st.integers(1, 3)))


@given(st.data(), machines())
def test_a_machine_never_stalls_and_never_loses_a_chunk(data: st.DataObject, machine: tuple[int, Policy]) -> None:
    """Any views in any order: who waits with nothing running is admitted, and a partial prompt goes on."""
    slots, policy = machine
    for _ in range(data.draw(st.integers(1, 12))):
        view = data.draw(views(slots))
        plan = policy.plan(view)
        if view.waiting and not view.decoding and not view.prefilling:
            assert plan.phase is not Phase.DECODE
            assert plan.admit >= 1
        if view.prefilling:
            assert plan.phase is not Phase.DECODE
        if plan.phase is Phase.DECODE:
            assert plan.admit == 0
        if plan.phase is Phase.PREFILL:
            assert plan.admit <= view.waiting
            assert view.decoding + view.prefilling + plan.admit <= slots
            assert plan.admit or view.prefilling, "a prefill phase with nothing to prefill"
        again = policy.plan(view)
        assert again.phase is plan.phase, "asked twice, it says the same"
        for _ in range(data.draw(st.integers(0, 60))):
            policy.on_admit(data.draw(st.integers(1, 5000)))
            policy.on_steps(data.draw(st.integers(1, 300)), slots, slots, 1)
            policy.on_finish(data.draw(st.integers(1, 2000)))


steps = st.lists(
    st.tuples(
        st.integers(1, 50),  # steps at one level
        st.integers(0, 30),  # decodes
        st.integers(0, 5),  # first tokens in a step of their own, before
        st.lists(st.integers(1, 200), max_size=4),  # completions after
    ),
    min_size=1,
    max_size=40,
)


@given(steps, st.integers(1, 20), st.data())
def test_told_at_once_or_one_by_one_everything_is_the_same_to_the_last_bit(
    told: list[tuple[int, int, int, list[int]]], window: int, data: st.DataObject
) -> None:
    def fresh() -> EBPlus:
        return EBPlus(OnlineController(ControlOptions(window=window), COSTS), COSTS, 0.0, 0.1, 3)

    at_once, portions = fresh(), fresh()
    for count, decodes, first, finished in told:
        running = decodes + first
        if first:
            at_once.on_steps(1, 0, running, first)
            portions.on_steps(1, 0, running, first)
        at_once.on_steps(count, decodes, running, 0)
        left_over = count
        while left_over:
            part = data.draw(st.integers(1, left_over))
            portions.on_steps(part, decodes, running, 0)
            left_over -= part
        for output in finished:
            at_once.on_finish(output)
            portions.on_finish(output)
    assert at_once.n_obs.hex() == portions.n_obs.hex()
    one, other = at_once._controller.estimator, portions._controller.estimator
    assert one.p_bar.hex() == other.p_bar.hex()
    ages = [150, 40, 40, 3, 1]
    assert one.line(ages) == other.line(ages)


@given(steps, st.integers(1, 20), st.data())
def test_an_estimate_does_not_depend_on_when_anyone_looked(
    told: list[tuple[int, int, int, list[int]]], window: int, data: st.DataObject
) -> None:
    always, seldom = ExposureEstimator(window), ExposureEstimator(window)
    for count, decodes, first, finished in told:
        for estimator in (always, seldom):
            estimator.on_steps(count, decodes, first)
        for output in finished:
            for estimator in (always, seldom):
                estimator.on_finish(output)
            assert always.p_bar >= 0
        assert always.completions == seldom.completions
        if data.draw(st.integers(0, 9)) == 0:
            assert seldom.line([40, 3]) == always.line([40, 3])
    assert seldom.p_bar.hex() == always.p_bar.hex()
    assert seldom.line([150, 40, 40, 3, 1]) == always.line([150, 40, 40, 3, 1])


@given(steps, st.integers(1, 20), st.lists(st.integers(1, 500), max_size=20))
def test_an_estimate_is_finite_whatever_it_is_told(
    told: list[tuple[int, int, int, list[int]]], window: int, ages: list[int]
) -> None:
    estimator = ExposureEstimator(window)
    for count, decodes, first, finished in told:
        estimator.on_steps(count, decodes, first)
        for output in finished:
            estimator.on_finish(output)
        line = estimator.line(sorted(ages, reverse=True))
        assert 0 <= estimator.p_bar <= 1
        assert estimator.p_bar / 4 <= line.p0 < math.inf
        assert 0 <= line.eta < math.inf
