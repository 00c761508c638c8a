"""The fitted line of the hazard against a slow plain reference, on lengths whose slope is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from policies.online import hazard
from policies.online.hazard import BINS
from tests.support.lengths_drawn import Draw, Full, geometric, rising, uniform

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
