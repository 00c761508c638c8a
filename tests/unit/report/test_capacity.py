"""The search for a capacity: what it tries, where it ends, what it says of the spread."""

from __future__ import annotations

import bisect
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure.estimate import Ratio
from harness.report.capacity import BEYOND, Capacity, Search, Tried, capacity_of, capacity_ratio, capacity_words, ladder


def search_of(*of_repeats: float, axis: str = "rate", precision: float = 0.05) -> Search:
    """A search that is played out against repeats that hold up to these loads, log excess linear in log load."""
    loads = ladder(axis, precision)
    search = Search(loads, bisect.bisect_left(loads, 4), len(loads) - 1)
    while (place := search.next_place()) is not None:
        assert place not in search.tried
        excess = tuple((2 * math.log(loads[place] / own),) for own in of_repeats)
        search.tried[place] = Tried(excess)
    return search


@pytest.mark.parametrize("precision", [0.01, 0.05, 0.2])
def test_rates_on_the_ladder_are_a_step_apart_and_of_four_digits(precision: float) -> None:
    loads = ladder("rate", precision)
    assert loads[0] == pytest.approx(0.001, rel=precision)
    assert loads[-1] == pytest.approx(1e6, rel=precision)
    assert all(b / a == pytest.approx(1 + precision, rel=2e-3) for a, b in pairwise(loads))
    assert all(float(f"{load:.4g}") == load for load in loads)


def test_concurrency_on_the_ladder_is_whole_and_starts_at_one() -> None:
    loads = ladder("concurrency", 0.05)
    assert loads[:20] == tuple(range(1, 21))
    assert all(load == int(load) for load in loads)
    assert all(1 < b / a <= 2 for a, b in pairwise(loads))


@given(st.floats(0.01, 1e5), st.sampled_from(["rate", "concurrency"]))
def test_the_search_ends_between_neighbours_around_the_truth(truth: float, axis: str) -> None:
    search = search_of(truth, axis=axis)
    low, high = search.bracket()
    if low is None:
        assert truth < search.loads[0]
        return
    assert high == low + 1
    assert search.loads[low] <= truth <= search.loads[high]
    assert len(search.tried) <= 30


@given(st.integers(0, 10**6), st.floats(0.1, 1e4), st.floats(0, 1.5), st.integers(1, 5))
def test_a_noisy_search_ends_and_tries_no_load_twice(seed: int, truth: float, noise: float, repeats: int) -> None:
    loads, rng = ladder("rate", 0.1), np.random.default_rng(seed)
    search = Search(loads, 70, len(loads) - 1)
    while (place := search.next_place()) is not None:
        assert 0 <= place < len(loads)
        assert place not in search.tried
        excess = math.log(loads[place] / truth) + rng.normal(0, noise, repeats)
        search.tried[place] = Tried(tuple((one,) for one in excess.tolist()))
    found = capacity_of(search)
    if found.met is not None and found.unmet is not None:
        assert found.met < found.unmet
        assert loads.index(found.unmet) == loads.index(found.met) + 1
    if found.low is not None:
        assert found.low <= (found.value or 0) <= (found.high or math.inf)


def test_the_search_goes_up_by_two_then_bisects() -> None:
    search = search_of(19.0)
    loads = [search.loads[at] for at in search.tried]
    assert loads[0] == pytest.approx(4, rel=0.05)
    assert [b / a for a, b in pairwise(loads[:4])] == pytest.approx([2, 2, 2], rel=0.06)
    assert len(loads) == 8


def test_each_repeat_is_enclosed_and_the_mean_of_their_logs_is_the_capacity() -> None:
    each = (10.0, 12.0, 11.0)
    found = capacity_of(search_of(*each))
    assert found.of_repeats == pytest.approx(each)
    logs = np.log(each)
    half = 4.302652729749464 * logs.std(ddof=1) / math.sqrt(3)
    assert found.value == pytest.approx(math.exp(logs.mean()))
    assert (found.low, found.high) == pytest.approx((math.exp(logs.mean() - half), math.exp(logs.mean() + half)))
    assert None not in (found.met, found.unmet)
    assert 10.5 < float(found.met or 0) <= 11 <= float(found.unmet or 0) < 11.6


def test_each_limit_holds_by_its_own_mean_and_a_repeat_by_its_worst() -> None:
    # Each limit is passed in one repeat and kept by the mean.
    tried = Tried(((0.1, -0.5), (-0.2, 0.4)))
    assert tried.met
    assert tried.worst == (0.1, 0.4)
    assert not Tried(((0.1, -0.5), (-0.05, 0.4))).met
    assert not Tried(((BEYOND, BEYOND), (-9.0, -9.0))).met


def test_one_repeat_has_a_bracket_and_no_interval() -> None:
    found = capacity_of(search_of(7.0))
    assert found.met is not None
    assert found.unmet is not None
    assert found.met <= 7.0 <= found.unmet
    assert (found.value, found.low, found.high) == (found.met, None, None)


def test_where_the_highest_load_is_met_there_is_no_end() -> None:
    loads = ladder("rate", 0.05)
    search = Search(loads, 100, 130)
    while (place := search.next_place()) is not None:
        search.tried[place] = Tried(((-1.0,), (-1.0,)))
    found = capacity_of(search)
    assert (found.value, found.met, found.unmet) == (loads[130], loads[130], None)
    assert found.of_repeats == (None, None)


def test_where_no_load_is_met_there_is_no_capacity() -> None:
    search = Search(ladder("concurrency", 0.05), 10, 50)
    while (place := search.next_place()) is not None:
        search.tried[place] = Tried(((1.0,),))
    assert 0 in search.tried
    assert capacity_of(search) == Capacity(None, None, None, None, 1.0, (None,))


def test_a_load_that_cannot_be_served_is_not_met_and_its_neighbour_is_the_capacity() -> None:
    loads = ladder("rate", 0.05)
    start = bisect.bisect_left(loads, 4)
    search = Search(loads, start, len(loads) - 1)
    while (place := search.next_place()) is not None:
        over = loads[place] > 6
        search.tried[place] = Tried(((BEYOND if over else -1.0,),) * 2, "overloaded" if over else "")
    found = capacity_of(search)
    assert found.met == max(load for load in loads if load <= 6)
    assert found.of_repeats == (found.met, found.met)


def test_latency_that_falls_with_load_is_told() -> None:
    met, unmet = Tried(((-1.0,),)), Tried(((1.0,),))
    search = Search(ladder("rate", 0.05), 100, 500, {100: met, 101: unmet, 110: met})
    assert search.bracket() == (100, 101)
    assert search.met_again() == search.loads[110]
    assert Search(search.loads, 100, 500, {100: Tried(((-1.0,),))}).met_again() is None


def test_arms_are_compared_by_pairs_of_repeats() -> None:
    a, b = (capacity_of(search_of(*each)) for each in ((10, 12, 11), (11, 13.2, 12.1)))
    ratio = capacity_ratio(a, b)
    assert ratio is not None
    assert ratio.ratio == pytest.approx(1.1)
    # Pair by pair all differ by the same: no spread is left of what the streams have in common.
    assert ratio.high - ratio.low < 1e-6
    assert capacity_words([ratio], 3) == ["better"]
    assert capacity_words([ratio], 2) == ["not tested"]
    back = capacity_ratio(b, a)
    assert back is not None
    assert capacity_words([back, None, capacity_ratio(a, a)], 3) == ["worse", "not tested", "no difference shown"]


def test_a_word_among_several_takes_more_than_one_alone() -> None:
    near = Ratio(1.1, 1.01, 1.2, 0.04)
    assert capacity_words([near], 3) == ["better"]
    assert capacity_words([near, Ratio(1.0, 0.9, 1.1, 0.9)], 3) == ["no difference shown"] * 2


def test_without_a_crossing_there_is_no_ratio() -> None:
    one = Capacity(3.0, None, None, 3.0, None, (None, 3.0))
    assert capacity_ratio(one, one) is None
    assert capacity_words([None], 3) == ["not tested"]
