"""The exposure estimator against simulated lengths whose hazard is known, and against a slow plain reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest

from policies.core import PartialPrefill, StepCosts
from policies.online import hazard
from policies.online.controller import CORRECTION_CAP, ControlOptions, OnlineController
from policies.online.hazard import BINS, ExposureEstimator, HazardLine
from policies.online.threshold import theta0

COSTS = StepCosts(0.0013, 2.5e-5, 0.0089, 4.6e-5, 0.0013, 2.5e-5, 5.2e-5, 1.5e-5)
Draw = Callable[[np.random.Generator, int], npt.NDArray[np.int64]]


def geometric(mean: float, least: int = 1) -> Draw:
    return lambda rng, n: rng.geometric(1 / mean, n) + (least - 1)


def rising(p0: float, eta: float, least: int = 1) -> Draw:
    """Lengths that stop at age t with probability p0 + η·t, by inverting the cumulated hazard."""
    ages = np.arange(1, 40_000)
    beyond = np.cumsum(-np.log1p(-np.minimum(p0 + eta * ages, 0.99)))
    return lambda rng, n: np.searchsorted(beyond, rng.exponential(size=n)) + least


def uniform(low: int, high: int) -> Draw:
    return lambda rng, n: rng.integers(low, high + 1, n)


class Full:
    """A system whose slots are always full: a request that completes is followed by one in the next step.

    `alone` gives first tokens in a prefill-only step, as exclusive batching does; else decodes share it.
    """

    def __init__(self, draw: Draw, slots: int, window: int, seed: int, alone: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.estimator = ExposureEstimator(window)
        self.slots = slots
        self.alone = alone
        self._lengths = iter(draw(rng, 400 * slots if slots < 100 else 16 * slots).tolist())
        self.running: list[list[int]] = []  # age, length
        self.history: list[tuple[list[tuple[int, int]], int]] = []  # (ages in this step, completions so far)

    def step(self) -> None:
        """One step, told to the estimator as an engine tells it."""
        fresh = [[0, next(self._lengths)] for _ in range(self.slots - len(self.running))]
        decodes = 0 if self.alone and fresh else len(self.running)
        lived = fresh if self.alone and fresh else self.running + fresh
        self.running += fresh
        for request in lived:
            request[0] += 1
        self.history.append(([(age, length) for age, length in lived], self.estimator.completions))
        self.estimator.on_steps(1, decodes, len(fresh))
        for request in [request for request in self.running if request[0] == request[1]]:
            self.running.remove(request)
            self.estimator.on_finish(request[1])

    @property
    def ages(self) -> list[int]:
        return sorted((age for age, _ in self.running), reverse=True)

    def until(self, completions: int) -> Full:
        while self.estimator.completions < completions:
            self.step()
        return self


def quick(draw: Draw, slots: int, window: int, seed: int, marks: Sequence[int]) -> Iterator[ExposureEstimator]:
    """The same full system, mixed steps only, from event to event; the estimator whenever a mark is passed."""
    lengths = draw(np.random.default_rng(seed), slots * (14 + 3 * max(marks) // slots)).reshape(slots, -1)
    ends = lengths.cumsum(axis=1)
    horizon = int(ends[:, -1].min())
    order = np.argsort(ends, axis=None, kind="stable")
    at, of = ends.ravel()[order].tolist(), lengths.ravel()[order].tolist()
    estimator = ExposureEstimator(window)
    estimator.on_steps(1, 0, slots)
    now, i = 1, 0
    for mark in marks:
        while True:
            finished = 0
            while at[i] == now:
                estimator.on_finish(of[i])
                finished += 1
                i += 1
            if finished:
                if estimator.completions >= mark:
                    yield estimator
                estimator.on_steps(1, slots - finished, finished)
                now += 1
            elif at[i] > now:
                estimator.on_steps(at[i] - now, slots, 0)
                now = at[i]
            assert now < horizon
            if finished and estimator.completions >= mark:
                break


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


# The line against a slow reference.


@dataclass(frozen=True, slots=True)
class Reference:
    """Nelson–Aalen by hand: requests at risk and stopping at each age inside the window, age by age."""

    at_risk: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]

    @classmethod
    def of(cls, system: Full) -> Reference:
        """Reads the system's own history, a token at a time, over the steps of the estimator's window."""
        window, total = system.estimator.window, system.estimator.completions
        first = 0
        if total > window:
            # The window starts after the step that brought the completions to at least total − window.
            first = next(i for i, (_, before) in enumerate(system.history) if before >= total - window)
        ages = np.array([age for lived, _ in system.history[first:] for age, _ in lived])
        lengths = np.array([length for lived, _ in system.history[first:] for _, length in lived])
        return cls(np.bincount(ages), np.bincount(ages[ages == lengths], minlength=int(ages.max()) + 1))

    def oldest(self) -> int:
        """The 95th percentile of the completed lengths."""
        return int(np.searchsorted(np.cumsum(self.stops), math.ceil(0.95 * self.stops.sum())))

    def slope(self) -> tuple[float, float]:
        """Mean hazard at the mean age, and slope, over exactly equal bins (ages are split where they must be)."""
        oldest = self.oldest()
        risk, stops = self.at_risk[1 : oldest + 1], self.stops[1 : oldest + 1]
        curve = np.concatenate([[0], np.cumsum(risk)])
        events = np.concatenate([[0], np.cumsum(stops)])
        targets = np.linspace(0, curve[-1], BINS + 1)
        edges = np.interp(targets, curve, np.arange(oldest + 1))
        hazards = np.diff(np.interp(edges, np.arange(oldest + 1), events)) / np.diff(targets)
        middles = (edges[:-1] + edges[1:] + 1) / 2
        offsets = middles - middles.mean()
        eta = float((offsets * (hazards - hazards.mean())).sum() / (offsets * offsets).sum())
        return float(hazards.mean() - max(eta, 0.0) * middles.mean()), eta


def weights_of(system: Full) -> tuple[list[int], list[int], int]:
    """Edges and exposures of the bins that `line` made, caught as it makes them."""
    caught: list[tuple[Callable[[int], int], list[int]]] = []
    plain = hazard._equal_exposure

    def catch(exposure: Callable[[int], int], oldest: int) -> list[int]:
        edges = plain(exposure, oldest)
        caught.append((exposure, edges))
        return edges

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hazard, "_equal_exposure", catch)
        system.estimator.line(system.ages)
    exposure, edges = caught[0]
    return edges, [exposure(b) - exposure(a) for a, b in zip([0, *edges], edges, strict=False)], exposure(1 << 40)


SYSTEMS = [
    pytest.param(geometric(80), 64, 200, False, id="geometric, mixed"),
    pytest.param(geometric(80, least=2), 64, 200, True, id="geometric, prefill alone"),
    pytest.param(rising(0.002, 0.0001, least=2), 64, 200, True, id="rising"),
    pytest.param(uniform(50, 150), 32, 100, False, id="uniform"),
    pytest.param(uniform(50, 150), 32, 100, True, id="uniform, prefill alone"),
    pytest.param(uniform(2, 9), 40, 60, False, id="short, ten completions a step"),
    pytest.param(uniform(60, 60), 16, 50, True, id="forced"),
]


@pytest.mark.parametrize(("draw", "slots", "window", "alone"), SYSTEMS)
@pytest.mark.parametrize("seed", range(3))
def test_the_bins_hold_every_token_of_the_window_once(
    draw: Draw, slots: int, window: int, alone: bool, seed: int
) -> None:
    """Before and after the window has begun to slide, at every completion count that a run may stop at."""
    system = Full(draw, slots, window, seed, alone)
    for completions in (window // 3, window, window + 1, 2 * window + 7, 3 * window):
        system.until(completions)
        reference = Reference.of(system)
        edges, weights, whole = weights_of(system)
        assert edges[-1] == reference.oldest()
        assert edges == sorted(set(edges))
        counted = np.cumsum(reference.at_risk)
        assert weights == [int(counted[b] - counted[a]) for a, b in zip([0, *edges], edges, strict=False)]
        assert whole == reference.at_risk.sum()
        p_bar = reference.stops.sum() / reference.at_risk.sum()
        assert system.estimator.p_bar == pytest.approx(p_bar, rel=1e-12)


def test_one_token_answers_in_prefill_only_steps_cost_at_most_a_step_of_first_tokens() -> None:
    """Where a window starts between two prefill-only steps, first tokens before and after it look the same."""
    for seed in range(10):
        system = Full(geometric(4), 64, 100, seed, alone=True)
        for completions in range(50, 600, 37):
            system.until(completions)
            reference = Reference.of(system)
            whole = weights_of(system)[2]
            assert 0 <= reference.at_risk.sum() - whole <= system.slots
            assert system.estimator.p_bar == pytest.approx(reference.stops.sum() / reference.at_risk.sum(), rel=1e-12)


@pytest.mark.parametrize(
    ("draw", "alone"), [(geometric(80), True), (geometric(80), False), (rising(0.002, 0.0001), True)]
)
def test_the_line_is_that_of_the_reference(draw: Draw, alone: bool) -> None:
    """Bins of about equal exposure give the line of exactly equal ones, well within what chance moves it by.

    With n = 200 completions chance alone moves η by about 2·p²/sqrt(n) and p0 by 2·p/sqrt(n) (0.14 p² and
    0.14 p); where an edge lies a few tokens off, only the completions on those tokens change bins. The
    differences must stay below a tenth of that for each seed, and below a hundredth in the mean.
    """
    slopes, levels = [], []
    for seed in range(25):
        system = Full(draw, 64, 200, seed, alone).until(600)
        line = system.estimator.line(system.ages)
        p_bar = system.estimator.p_bar
        level, eta = Reference.of(system).slope()
        slopes.append((line.eta - max(eta, 0.0)) / p_bar**2)
        levels.append((line.p0 - max(level, p_bar / 4)) / p_bar)
    print(f"worst η {np.abs(slopes).max():.4f} p̄², p0 {np.abs(levels).max():.4f} p̄")
    assert np.abs(slopes).max() < 0.014
    assert np.abs(levels).max() < 0.014
    assert abs(np.mean(slopes)) < 0.0014
    assert abs(np.mean(levels)) < 0.0014


def test_geometric_lengths_have_no_slope_on_average() -> None:
    """The reference's slope has mean 0 (the line's own is cut off at 0), and the line never strays far from it."""
    slopes, kept, levels = [], [], []
    for seed in range(60):
        system = Full(geometric(60), 50, 150, seed).until(400)
        slopes.append(Reference.of(system).slope()[1] * 60**2)
        line = system.estimator.line(system.ages)
        kept.append(line.eta * 60**2)
        levels.append(line.p0 * 60)
    error = float(np.std(slopes)) / math.sqrt(len(slopes))
    print(f"η/p²: {np.mean(slopes):.4f} ± {error:.4f}; cut off at 0: {np.mean(kept):.4f}; p0/p {np.mean(levels):.4f}")
    assert abs(np.mean(slopes)) < 3 * error
    assert error < 0.02
    assert np.mean(kept) < 0.1
    assert np.mean(levels) == pytest.approx(1.0, abs=0.08)


@pytest.mark.parametrize(("p0", "eta"), [(0.002, 2e-5), (0.004, 1e-5)])
@pytest.mark.parametrize("alone", [True, False])
def test_a_rising_hazard_is_recovered(p0: float, eta: float, alone: bool) -> None:
    """In the mean of 24 windows of 300 completions, each of which knows η to about a third.

    The reference, with 150 seeds, finds η 3–8 % high: the last bin ends at a completion, by its definition.
    """
    lines = []
    for seed in range(24):
        system = Full(rising(p0, eta), 64, 300, seed, alone).until(700)
        lines.append(system.estimator.line(system.ages))
    got_p0, got_eta = np.mean([line.p0 for line in lines]), np.mean([line.eta for line in lines])
    print(f"p0 {got_p0 / p0:.3f}, η {got_eta / eta:.3f} of the truth")
    assert got_p0 == pytest.approx(p0, rel=0.12)
    assert got_eta == pytest.approx(eta, rel=0.2)


def test_a_falling_hazard_counts_as_level() -> None:
    def mixture(rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
        return np.where(rng.random(n) < 0.5, rng.geometric(1 / 20, n), rng.geometric(1 / 400, n))

    system = Full(mixture, 64, 200, 1).until(600)
    line = system.estimator.line(system.ages)
    assert line.eta == 0.0
    assert line.p0 >= system.estimator.p_bar / 4


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
