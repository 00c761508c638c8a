"""The exposure estimator against simulated lengths whose hazard is known, and against a slow plain reference."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from policies.core import PartialPrefill, StepCosts
from policies.online.controller import CORRECTION_CAP, ControlOptions, OnlineController
from policies.online.hazard import ExposureEstimator, HazardLine
from policies.online.threshold import theta0
from tests.support.lengths_drawn import Draw, Full, geometric, quick, uniform

COSTS = StepCosts(0.0013, 2.5e-5, 0.0089, 4.6e-5, 0.0013, 2.5e-5, 5.2e-5, 1.5e-5)


# p̄.


@pytest.mark.parametrize(("mean", "slots", "seeds"), [(1024, 1024, 600), (64, 1024, 400), (256, 512, 400)])
def test_p_bar_is_the_hazard_of_geometric_lengths_from_the_first_hundred_on(mean: int, slots: int, seeds: int) -> None:
    """Tokens a completion, averaged over seeds, within 1 % of the mean length after 100, 300 and 1,000 completions.

    1/p̄ is what has no bias: p̄ itself, n over a sum of n lengths, is n/(n − 1) too high on average (1.0101
    at n = 100) however it is counted. The average of `seeds` draws of n lengths is known to 1/sqrt(n·seeds).
    """
    marks = (100, 300, 1000)
    lengths = np.array(
        [[1 / e.p_bar for e in quick(geometric(mean), slots, 500, seed, marks)] for seed in range(seeds)]
    )
    ratios = mean / lengths.mean(axis=0)
    print(f"mean {mean}, N {slots}: p̄/truth after {marks}: {np.round(ratios, 4)}")
    assert np.all(np.abs(ratios - 1) < 0.01)


def test_p_bar_by_hand() -> None:
    estimator = ExposureEstimator(2)
    assert estimator.p_bar == 0.0
    estimator.on_steps(1, 0, 4)
    estimator.on_steps(5, 4, 0)
    assert estimator.p_bar == 0.0
    estimator.on_finish(6)
    assert estimator.p_bar == 1 / 24
    estimator.on_steps(1, 3, 0)
    estimator.on_finish(7)
    estimator.on_steps(2, 2, 0)
    estimator.on_finish(9)
    assert estimator.p_bar == 2 / 7, "the window starts after the first completion: 3 + 4 tokens"
    assert estimator.completions == 3


def test_completions_of_the_step_that_the_window_starts_after_are_left_out_of_it() -> None:
    """They have no token in it: with ten completions a step and a window of 25 they would add up to 9 of 25."""
    estimator = ExposureEstimator(25)
    for _ in range(50):
        estimator.on_steps(1, 100, 0)
        for _ in range(10):
            estimator.on_finish(10)
        assert estimator.p_bar == pytest.approx(0.1, rel=1e-12)


def test_more_completions_in_a_step_than_the_window_holds() -> None:
    estimator = ExposureEstimator(3)
    estimator.on_steps(1, 0, 10)
    for _ in range(10):
        estimator.on_finish(1)
    assert estimator.p_bar == 1.0
    assert estimator.line([]) == HazardLine(1.0, 0.0)
    estimator.on_steps(1, 50, 0)
    estimator.on_finish(40)
    assert estimator.p_bar == 1 / 50


def test_nothing_seen_gives_zeros() -> None:
    estimator = ExposureEstimator(500)
    assert (estimator.p_bar, estimator.mu_l) == (0.0, 0.0)
    assert estimator.line([]) == HazardLine(0.0, 0.0)
    estimator.on_steps(10, 5, 5)
    assert estimator.line([11] * 5) == HazardLine(0.0, 0.0)


def test_the_mean_prompt_is_that_of_the_last_admissions() -> None:
    estimator = ExposureEstimator(3)
    for tokens in (1000, 1, 2, 6):
        estimator.on_admit(tokens)
    assert estimator.mu_l == 3.0


def test_many_steps_at_once_are_one_by_one() -> None:
    """O(1) a step: what is kept does not depend on how many steps a call stands for."""
    at_once, one_by_one = ExposureEstimator(4), ExposureEstimator(4)
    rng = np.random.default_rng(3)
    for _ in range(200):
        steps, decodes, first, output = (int(x) for x in rng.integers((1, 1, 0, 1), (60, 9, 3, 400)))
        if first:
            for estimator in (at_once, one_by_one):
                estimator.on_steps(1, decodes, first)
        at_once.on_steps(steps, decodes, 0)
        for _ in range(steps):
            one_by_one.on_steps(1, decodes, 0)
        for estimator in (at_once, one_by_one):
            estimator.on_finish(output)
        ages = [9, 5, 5, 1]
        assert at_once.p_bar == one_by_one.p_bar
        assert at_once.line(ages) == one_by_one.line(ages)


# What must only stay sane.


@dataclass(slots=True)
class StillView:
    """Enough of a View for a controller."""

    seen: Full
    slots: int = 48
    total_blocks: int = 30_000
    free_blocks: int = 30_000
    block_size: int = 16
    token_budget: int = 8192
    watermark_blocks: int = 0
    waiting: int = 100
    prefilling: int = 0
    decoding: int = 50

    def waiting_tokens(self) -> Iterator[int]:
        return iter([100] * self.waiting)

    def num_output_tokens(self) -> list[int]:
        return self.seen.ages

    def footprints(self) -> list[int]:
        return []

    def partial_prefills(self) -> list[PartialPrefill]:
        return []


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("window", [1, 2, 30, 500])
@pytest.mark.parametrize("draw", [uniform(200, 200), uniform(100, 300), uniform(1, 1), uniform(1, 2), geometric(90)])
def test_whatever_the_lengths_the_target_is_finite_and_inside_its_limits(draw: Draw, window: int, alone: bool) -> None:
    system = Full(draw, 48, window, 5, alone)
    options = ControlOptions(window=window, update_every=1, min_completions=1)
    controller = OnlineController(options, COSTS)
    controller.estimator = system.estimator
    for completions in (*range(1, 60), 100, 200, 300):
        system.estimator.on_admit(100)
        line = system.until(completions).estimator.line(system.ages)
        assert math.isfinite(line.p0)
        assert line.p0 >= system.estimator.p_bar / 4 > 0
        assert 0 <= line.eta < math.inf
        target = controller.target(StillView(system))
        assert 0.01 <= target.theta <= 0.8
        assert 5 <= target.slots <= 48
        assert 1 <= target.k <= target.slots
        assert 0 <= target.growth_tokens < math.inf


@pytest.mark.parametrize("draw", [uniform(200, 200), uniform(100, 300)])
def test_out_of_range_lengths_have_their_correction_capped_and_say_so(draw: Draw) -> None:
    system = Full(draw, 48, 200, 5, alone=True).until(400)
    system.estimator.on_admit(100)
    line = system.estimator.line(system.ages)
    assert line.eta > line.p0**2
    # Decodes dear enough that the correction would be large.
    costs = replace(COSTS, beta_d_s=1e-3)
    controller = OnlineController(ControlOptions(window=200), costs)
    controller.estimator = system.estimator
    target = controller.target(StillView(system))
    assert target.capped
    plain = theta0(system.estimator.p_bar, costs.alpha_p_s, costs.alpha_d_s)
    assert target.theta == pytest.approx(plain + CORRECTION_CAP, rel=1e-12)
    controller = OnlineController(ControlOptions(window=200, correction="none"), costs)
    controller.estimator = system.estimator
    target = controller.target(StillView(system))
    assert (target.capped, target.eta) == (False, 0.0)
    assert target.theta == pytest.approx(plain, rel=1e-12)


def test_uniform_lengths_of_half_as_much_again_are_out_of_range_as_the_spec_says() -> None:
    """It gives η/p0² = 2.7 for uniform ±50 % lengths, with p̄ for p0."""
    ratios = []
    for seed in range(12):
        system = Full(uniform(100, 300), 64, 300, seed).until(900)
        ratios.append(system.estimator.line(system.ages).eta / system.estimator.p_bar**2)
    print(f"η/p̄² {np.mean(ratios):.2f}")
    assert 1 < np.mean(ratios) < 5
