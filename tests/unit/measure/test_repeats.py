"""What repeats show: golden values, and what hypothesis finds of the tests over runs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.measure.repeats import dunnett, holm, power, repeats_for, repeats_to_show, shift_of

values = st.lists(st.floats(-5, 5), min_size=2, max_size=8).filter(lambda one: max(one) - min(one) > 1e-3)


@given(values)
def test_a_shift_is_students_t(differences: list[float]) -> None:
    found = shift_of(differences)
    assert found is not None
    expected = stats.ttest_1samp(differences, 0)
    assert found.p == pytest.approx(float(expected.pvalue), abs=1e-9)
    low, high = expected.confidence_interval()
    assert (found.mean - found.half(), found.mean + found.half()) == pytest.approx((low, high), rel=1e-9, abs=1e-9)


def test_one_difference_has_no_spread_and_runs_of_equals_give_it_one() -> None:
    assert shift_of([0.1]) is None
    assert shift_of([0.1], [[5.0]]) is None
    found = shift_of([0.1], [[1.0, 1.02, 0.98]])
    assert found is not None
    # Two degrees of freedom; a difference of two runs has twice the variance of one.
    assert (found.freedom, found.pooled) == (2, True)
    assert found.error == pytest.approx(math.sqrt(2 * 0.0004))


def test_spreads_pool_by_their_degrees_of_freedom() -> None:
    pairs, equals = [0.01, 0.03, 0.02], [[1.0, 1.01, 0.99, 1.0]]
    found = shift_of(pairs, equals)
    assert found is not None
    own, other = np.var(pairs, ddof=1), 2 * np.var(equals[0], ddof=1)
    assert found.freedom == 5
    assert found.deviation**2 == pytest.approx((2 * own + 3 * other) / 5)
    # Pairs that spread far more than equals do have more in them than noise: they speak for themselves.
    wide = shift_of([0.0, 1.0, -1.0], equals)
    assert wide is not None
    assert (wide.freedom, wide.pooled) == (2, False)


def test_equal_repeats_show_nothing_and_a_share_that_falls_to_nothing_is_sure() -> None:
    same = shift_of([0.0, 0.0, 0.0])
    assert same is not None
    assert same.p == 1.0
    gone = shift_of([-0.76, -0.76, -0.76])
    assert gone is not None
    assert gone.p < 1e-6
    assert shift_of([0.1, math.nan]) is None


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_no_smaller_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(own <= found <= 1 for own, found in zip(p_values, adjusted, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert np.all(np.diff(np.array(adjusted)[order]) >= 0)


def test_dunnett_is_scipys_where_repeats_are_no_blocks() -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(10, 0.1, (4, 400)) + np.array([0.0, 0.02, 0.0, -0.01])[:, None]
    expected = stats.dunnett(*table[1:], control=table[0], random_state=np.random.default_rng(1))
    # With so many repeats it matters little that blocks take their degrees of freedom.
    assert dunnett(table[0].tolist(), table[1:].tolist()) == pytest.approx(list(expected.pvalue), abs=0.02)


def test_dunnett_of_one_arm_is_the_paired_t() -> None:
    a, b = [1.0, 2.0, 4.0, 3.0], [1.1, 2.3, 4.1, 3.2]
    assert dunnett(a, [b]) == pytest.approx([float(stats.ttest_rel(b, a).pvalue)], abs=1e-9)
    assert dunnett([1.0], [[2.0]]) == [1.0]


def test_the_best_of_eight_equals_is_seldom_called_better() -> None:
    rng = np.random.default_rng(5)
    told = once = 0
    for _ in range(200):
        table = rng.normal(0, 1, (9, 3)) + 10 * rng.normal(0, 1, 3)
        told += min(dunnett(table[0].tolist(), table[1:].tolist())) < 0.05
        once += stats.ttest_rel(table[1:], table[:1], axis=1).pvalue.min() < 0.05
    assert told <= 20
    assert once > 30


def test_power_is_what_simulation_says() -> None:
    rng = np.random.default_rng(7)
    drawn = rng.normal(0.03, 0.02, (4000, 5))
    seen = np.mean(stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05)
    assert power(0.03, 0.02, 5) == pytest.approx(float(seen), abs=0.03)
    n = repeats_to_show(0.03, 0.02, 0.9)
    assert n is not None
    assert power(0.03, 0.02, n) >= 0.9 > power(0.03, 0.02, n - 1)


@given(st.floats(0.001, 0.5), st.floats(0.01, 3))
def test_repeats_for_a_width_are_the_fewest(deviation: float, ratio: float) -> None:
    half = deviation * ratio
    n = repeats_for(half, deviation)
    if n is None:
        assert ratio < 0.1
        return
    assert stats.t.ppf(0.975, n - 1) * deviation / math.sqrt(n) <= half * (1 + 1e-9)
    if n > 2:
        assert stats.t.ppf(0.975, n - 2) * deviation / math.sqrt(n - 1) > half * (1 - 1e-9)
