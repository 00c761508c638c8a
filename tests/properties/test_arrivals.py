import math

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from workloads.core.arrivals import (
    Arrival,
    Closed,
    Constant,
    FromTrace,
    Gamma,
    Offline,
    Phases,
    Poisson,
    Ramp,
    parse_arrival,
)
from workloads.core.stream import phase_times, ramp_times, schedule, unit_times
from workloads.core.trace import Trace

rates = st.floats(1e-3, 1e5)
seconds = st.floats(1e-2, 1e4)
shapes = st.floats(0.001, 1000.0)
ramps = st.builds(Ramp, st.floats(0.0, 1e4), rates, seconds)


@st.composite
def phases(draw: st.DrawFn) -> Phases:
    n = draw(st.integers(1, 5))
    some = draw(st.lists(st.one_of(st.just(0.0), rates), min_size=n - 1, max_size=n - 1))
    return Phases((*some, draw(rates)), tuple(draw(st.lists(seconds, min_size=n, max_size=n))))


open_loops: st.SearchStrategy[Arrival] = st.one_of(
    st.builds(Poisson, rates), st.builds(Constant, rates), st.builds(Gamma, rates, shapes), ramps, phases()
)
arrivals: st.SearchStrategy[Arrival] = st.one_of(
    open_loops, st.builds(Closed, st.integers(1, 10**6)), st.builds(FromTrace, rates), st.builds(Offline)
)
seeds = st.integers(0, 2**63)


def trace_of(n: int) -> Trace:
    ones = np.ones(n, np.int64)
    return Trace("t", ones, ones, timestamp_s=np.arange(n) / 7)


def due_of(arrival: Arrival, n: int, seed: int) -> npt.NDArray[np.int64]:
    due = schedule(arrival, trace_of(n), seed).due_ns
    assert due is not None
    return due


@given(arrivals)
def test_canonical_text_reads_back_as_itself(arrival: Arrival) -> None:
    again = parse_arrival(arrival.canonical)
    assert again == arrival
    assert again.canonical == arrival.canonical


@given(open_loops, st.integers(1, 200), seeds)
def test_due_times_ascend_from_above_zero_one_a_request(arrival: Arrival, n: int, seed: int) -> None:
    due = due_of(arrival, n, seed)
    assert due.dtype == np.int64
    assert len(due) == n
    assert due[0] >= 0
    assert (np.diff(due) >= 0).all()


@given(open_loops, st.integers(1, 100), st.integers(0, 100), seeds)
def test_more_requests_never_move_earlier_ones(arrival: Arrival, n: int, more: int, seed: int) -> None:
    np.testing.assert_array_equal(due_of(arrival, n + more, seed)[:n], due_of(arrival, n, seed))


@given(arrivals, seeds)
def test_the_same_seed_gives_the_same_stream(arrival: Arrival, seed: int) -> None:
    assert schedule(arrival, trace_of(50), seed).digest == schedule(arrival, trace_of(50), seed).digest


@given(open_loops.filter(lambda arrival: not isinstance(arrival, Gamma) or 0.1 < arrival.cv < 2), seeds)
def test_another_seed_gives_another_stream(arrival: Arrival, seed: int) -> None:
    same = (due_of(arrival, 50, seed) == due_of(arrival, 50, seed + 1)).all()
    assert same == isinstance(arrival, Constant)


@given(st.builds(Poisson, rates), st.integers(1, 6), seeds)
def test_the_rate_only_stretches_time(arrival: Poisson, power: int, seed: int) -> None:
    slow, fast = due_of(arrival, 50, seed), due_of(Poisson(arrival.rate * 2**power), 50, seed)
    assert np.abs(slow / 2**power - fast).max() <= 1.0


@given(ramps, seeds)
def test_a_ramps_times_invert_its_integrated_rate(ramp: Ramp, seed: int) -> None:
    s = unit_times(ramp, 100, seed)
    t = ramp_times(s, ramp)
    inside = np.minimum(t, ramp.seconds)
    area = ramp.from_ * inside + (ramp.to - ramp.from_) / (2 * ramp.seconds) * inside**2
    np.testing.assert_allclose(area + ramp.to * np.maximum(t - ramp.seconds, 0.0), s, rtol=1e-6, atol=1e-9)


@given(phases(), seeds)
def test_phases_invert_their_integrated_rate(arrival: Phases, seed: int) -> None:
    s = unit_times(arrival, 100, seed)
    for at, t in zip(s, phase_times(s, arrival), strict=True):
        area, start = 0.0, 0.0
        for position, (rate, length) in enumerate(zip(arrival.rates, arrival.seconds, strict=True)):
            last = position == len(arrival.rates) - 1
            area += rate * max(0.0, t - start if last else min(t - start, length))
            start += length
        assert math.isclose(area, at, rel_tol=1e-6, abs_tol=1e-6)


@given(ramps.filter(lambda ramp: ramp.from_ > 0), seeds)
def test_a_flat_ramp_and_one_phase_are_a_plain_poisson_process(ramp: Ramp, seed: int) -> None:
    plain = due_of(Poisson(ramp.to), 100, seed)
    np.testing.assert_allclose(due_of(Ramp(ramp.to, ramp.to, ramp.seconds), 100, seed), plain, rtol=1e-9, atol=2)
    np.testing.assert_allclose(due_of(Phases((ramp.to,), (ramp.seconds,)), 100, seed), plain, rtol=1e-9, atol=2)
