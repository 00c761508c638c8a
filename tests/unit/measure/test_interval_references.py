"""Intervals against other ways of reaching them: derivatives by hand, textbook formulas, edges without a spread."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from harness.measure.estimate import Estimate, log_ratio, ratio_of_sums, repeats_ratio, within_run_ratio
from harness.measure.sample import LEAST_ABOVE, Sample
from harness.measure.statistics import Floats, block_length, mean_variance, t_quantile

SECOND = 1_000_000_000


def estimate(units: list[int], sums: list[float], counts: list[float] | None = None) -> Estimate:
    """The ratio of sums over units."""
    weights = np.ones(len(units)) if counts is None else np.array(counts, dtype=np.float64)
    return ratio_of_sums(np.array(units, dtype=np.int64), np.array(sums, dtype=np.float64), weights)


Arm = tuple[list[int], Floats, Floats]


def log_of_ratio(weights: Floats, units: list[int], a: Arm, b: Arm) -> float:
    """The log of B's ratio of sums over A's, each unit weighted."""
    logs = []
    for own, sums, counts in (b, a):
        weight = weights[[units.index(unit) for unit in own]]
        logs.append(math.log((weight * sums).sum() / (weight * counts).sum()))
    return logs[0] - logs[1]


@pytest.mark.parametrize(
    ("a_units", "b_units"),
    [
        (list(range(40)), [unit for unit in range(40) if unit != 7]),
        ([unit for unit in range(40) if unit % 5], list(range(40))),
        (list(range(30)), list(range(12, 45))),
    ],
    ids=["one failed in B", "some failed in A", "other requests"],
)
def test_a_paired_ratio_with_unequal_units_is_what_weighting_units_gives(
    a_units: list[int], b_units: list[int]
) -> None:
    draw = np.random.default_rng(5)
    units = sorted({*a_units, *b_units})
    a_arm, b_arm = (
        (own, draw.gamma(3.0, 1.0, len(own)) + 0.1, draw.integers(1, 5, len(own)).astype(np.float64))
        for own in (a_units, b_units)
    )
    # The influence of a unit: how much the log of the ratio moves when its weight does, times their number.
    step = 1e-6
    influence = np.array(
        [
            len(units)
            * (
                log_of_ratio(1 + step * np.eye(len(units))[place], units, a_arm, b_arm)
                - log_of_ratio(1 - step * np.eye(len(units))[place], units, a_arm, b_arm)
            )
            / (2 * step)
            for place in range(len(units))
        ]
    )
    variance, freedom = mean_variance(influence)
    by_hand = log_ratio(log_of_ratio(np.ones(len(units)), units, a_arm, b_arm), variance, freedom)
    a, b = (ratio_of_sums(np.array(own), sums, counts) for own, sums, counts in (a_arm, b_arm))
    ratio = within_run_ratio(a, b, paired=True)
    assert ratio is not None
    for name in ("ratio", "low", "high", "p"):
        assert math.isclose(getattr(ratio, name), getattr(by_hand, name), rel_tol=1e-5), name
    unpaired = within_run_ratio(a, b, paired=False)
    assert unpaired is not None
    assert not math.isclose(unpaired.high, ratio.high, rel_tol=1e-3)


def test_unpaired_variances_add_with_welchs_freedom() -> None:
    draw = np.random.default_rng(6)
    a, b = (estimate(list(range(n)), list(draw.gamma(shape, 1.0, n))) for n, shape in ((60, 2.0), (35, 5.0)))
    (va, fa), (vb, fb) = mean_variance(a.influence), mean_variance(b.influence)
    half = t_quantile((va + vb) ** 2 / (va**2 / fa + vb**2 / fb)) * math.sqrt(va + vb)
    ratio = within_run_ratio(a, b, paired=False)
    assert ratio is not None
    assert math.isclose(ratio.high, b.value / a.value * math.exp(half), rel_tol=1e-12)


def test_equal_means_of_different_requests_are_not_equal_runs() -> None:
    a = estimate(list(range(20)), [1.0, 3.0] * 10)
    b = estimate(list(range(20)), [3.0, 1.0] * 10)
    for paired in (True, False):
        ratio = within_run_ratio(a, b, paired)
        assert ratio is not None
        assert ratio.ratio == pytest.approx(1.0)
        assert ratio.low < 0.9
        assert ratio.high > 1.1
    same = within_run_ratio(a, a, paired=True)
    assert same is not None
    assert (same.low, same.high, same.p) == (1.0, 1.0, 1.0)


def test_two_values_without_any_spread_have_a_sure_ratio() -> None:
    a, b = estimate(list(range(20)), [2.0] * 20), estimate(list(range(20)), [3.0] * 20)
    for paired in (True, False):
        ratio = within_run_ratio(a, b, paired)
        assert ratio is not None
        assert ratio.ratio == pytest.approx(1.5)
        assert ratio.high - ratio.low < 1e-9
        assert ratio.p < 1e-12


@pytest.mark.parametrize("pairs", [[(1.0, 2.0), (0.0, 3.0)], [(1.0, 2.0), (3.0, 0.0)], [(0.0, 1.0), (2.0, 3.0)]])
def test_a_zero_in_one_repeat_leaves_no_ratio(pairs: list[tuple[float, float]]) -> None:
    assert repeats_ratio(pairs) is None


def test_repeats_of_which_one_is_equal_are_not_all_equal() -> None:
    ratio = repeats_ratio([(1.0, 1.0), (1.0, 2.0), (1.0, 4.0)])
    assert ratio is not None
    assert ratio.ratio == pytest.approx(2.0)
    # Logs 0, 1 and 2 (base 2): standard error log(2)/√3, 2 degrees of freedom.
    assert ratio.high == pytest.approx(2 * 2 ** (4.302652729911275 / math.sqrt(3)))


def politis_white(series: Floats) -> int:
    """The block length of Politis and White (2004), corrected 2009, term by term from the paper."""
    n = len(series)
    quiet = max(5, math.ceil(math.sqrt(math.log10(n))))
    most_lag = min(math.ceil(math.sqrt(n)) + quiet, n - 1)

    def covariance(lag: int) -> float:
        return float(sum(series[i] * series[i + lag] for i in range(n - lag))) / n

    def loud(lag: int) -> bool:
        return abs(covariance(lag) / covariance(0)) > 2 * math.sqrt(math.log10(n) / n)

    last = next((m for m in range(most_lag - quiet + 1) if not any(loud(m + k) for k in range(1, quiet + 1))), most_lag)
    if last == 0:
        return 1
    width = min(2 * last, most_lag)

    def taper(lag: int) -> float:
        share = lag / width
        return 1.0 if share <= 0.5 else 2 * (1 - share)

    spread = sum(taper(abs(k)) * abs(k) * covariance(abs(k)) for k in range(-width, width + 1))
    level = sum(taper(abs(k)) * covariance(abs(k)) for k in range(-width, width + 1))
    if level <= 0:
        return 1
    best = (2 * spread**2 / (4 / 3 * level**2)) ** (1 / 3) * n ** (1 / 3)
    return int(min(max(1, round(best)), max(1, n // 10)))


@pytest.mark.parametrize("memory", [0.0, 0.3, 0.6, 0.9, -0.5])
@pytest.mark.parametrize("n", [60, 250, 700])
def test_block_lengths_are_those_of_the_paper(n: int, memory: float) -> None:
    draw = np.random.default_rng(round(100 * memory) + n)
    noise = draw.standard_normal(n)
    series = np.zeros(n)
    for place in range(n):
        series[place] = noise[place] + (memory * series[place - 1] if place else 0.0)
    series -= series.mean()
    assert block_length(series) == politis_white(series)


def test_block_lengths_grow_with_memory_and_stay_short_without() -> None:
    alternating = np.array([1.0, -1.0] * 200)
    assert block_length(np.zeros(50)) == 1
    assert block_length(alternating) == politis_white(alternating)


def sample(values: list[int]) -> Sample:
    return Sample.of(np.arange(len(values)), np.array(values, dtype=np.int64))


def test_a_percentile_that_is_zero_or_without_spread_has_no_interval() -> None:
    assert sample([0] * 300 + [SECOND] * 10).percentile(50) is None
    flat = sample([SECOND] * 500 + list(range(2 * SECOND, 2 * SECOND + 100))).percentile(50)
    assert flat is not None
    assert (flat.value, flat.interval()) == (1.0, None)


def test_a_percentile_needs_requests_beyond_it() -> None:
    just = sample([SECOND + place for place in range(100)] + [3 * SECOND + place for place in range(LEAST_ABOVE)])
    assert just.percentile(50) is not None
    assert just.percentile(95) is not None
    assert just.percentile(95).interval() is None  # type: ignore[union-attr]


@pytest.mark.parametrize("percent", [50, 90])
def test_a_percentiles_interval_is_woodruffs(percent: int) -> None:
    draw = np.random.default_rng(8)
    values = np.sort((draw.gamma(2.0, 1.0, 400) * SECOND).astype(np.int64))
    order = draw.permutation(len(values))
    shuffled = values[order]
    found = Sample.of(np.arange(len(values)), shuffled).percentile(percent)
    assert found is not None
    value = float(np.percentile(values, percent))
    indicator = percent / 100 - (shuffled <= value)
    series = indicator - indicator.mean()
    variance, freedom = mean_variance(series)
    half = 2 * math.sqrt(variance)
    edges: Any = np.percentile(values, [100 * (percent / 100 - half), 100 * (percent / 100 + half)])
    slope = (edges[1] - edges[0]) / (2 * half)
    spread = t_quantile(freedom) * math.sqrt(variance) * slope / value
    interval = found.interval()
    assert interval is not None
    assert interval[0] == pytest.approx(value / SECOND * math.exp(-spread), rel=1e-9)
    assert interval[1] == pytest.approx(value / SECOND * math.exp(spread), rel=1e-9)
