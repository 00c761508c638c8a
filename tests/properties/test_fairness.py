"""Fairness against its definition on random schedules: exact sums, shards that add up, the paper's identities."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.records import STEPS
from harness.measure.fairness import DECODE, KV, NOTHING, Fairness, dot, fairness, merge, of_batch
from harness.measure.profit import Account, TokenStep, break_even, profit_tokenstep
from tests.support.runfactory import table_of
from tests.support.schedules import Schedule


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    n = draw(st.integers(1, 9))
    starts = draw(st.lists(st.integers(0, 30), min_size=n, max_size=n))
    lengths = draw(st.lists(st.integers(1, 40), min_size=n, max_size=n))
    prompts = draw(st.lists(st.integers(0, 5000), min_size=n, max_size=n))
    end = max(s + o for s, o in zip(starts, lengths, strict=True))
    durations = draw(st.lists(st.integers(0, 10**10), min_size=end, max_size=end))
    return Schedule(starts, lengths, prompts, durations)


def plain(state: Fairness) -> dict[str, Any]:
    return {
        field.name: value.tolist() if isinstance(value := getattr(state, field.name), np.ndarray) else value
        for field in dataclasses.fields(state)
    }


def state_of(schedule: Schedule, variant: str = DECODE) -> Fairness:
    found = fairness(table_of(STEPS, schedule.steps()), variant)
    assert found is not None
    return found


def near(value: float | None, exact: Fraction | None) -> bool:
    if value is None or exact is None:
        return value is None and exact is None
    return value == pytest.approx(float(exact), rel=1e-12, abs=1e-9)


@given(schedules(), st.fractions(0, 40, max_denominator=4), st.sampled_from([DECODE, KV]))
def test_every_figure_is_what_its_definition_says(schedule: Schedule, alpha: Fraction, variant: str) -> None:
    state = state_of(schedule, variant)
    expected = schedule.expected(alpha, kv=variant == KV)
    for name in ("externality", "charged", "held", "tokens", "busy", "gap_max"):
        assert getattr(state, name) == expected[name], name
    assert (state.steps, state.working, state.contradictions) == (schedule.end, expected["busy"], 0)
    assert state.charged_time - state.held_time == expected["externality_time"]
    for timed in (False, True):
        suffix = "_time" if timed else ""
        assert near(state.gap_mean(timed), expected[f"gap_mean{suffix}"])
        assert near(state.violation_share(float(alpha), timed), expected[f"violation_share{suffix}"])
        assert near(state.excess_mean(float(alpha), timed), expected[f"excess_mean{suffix}"])
    gaps = np.asarray(expected["gaps"])
    p90 = state.gap_percentile(90)
    assert (p90 is None) == (len(gaps) < 10)
    assert p90 is None or p90 == pytest.approx(float(np.percentile(gaps, 90)))


@given(schedules(), st.lists(st.integers(0, 70), max_size=4), st.sampled_from([DECODE, KV]))
def test_merged_shards_are_the_whole(schedule: Schedule, cuts: list[int], variant: str) -> None:
    table = table_of(STEPS, schedule.steps())
    edges = sorted({0, *(min(cut, table.num_rows) for cut in cuts), table.num_rows})
    shards = [
        of_batch(table.slice(a, b - a).combine_chunks().to_batches()[0], variant) for a, b in itertools.pairwise(edges)
    ]
    for order in (shards, shards[::-1]):
        together = NOTHING
        for shard in order:
            together = merge(together, shard)
        assert plain(together) == plain(state_of(schedule, variant))


@given(schedules(), st.floats(0, 5), st.floats(0, 1), st.floats(0, 5))
def test_the_identities_of_the_paper_hold(schedule: Schedule, rho0: float, tau: float, c: float) -> None:
    decode, kv = state_of(schedule), state_of(schedule, KV)
    lengths, prompts = schedule.lengths, schedule.prompts
    assert decode.held == sum(o * (o + 1) // 2 for o in lengths)
    assert kv.held == sum(p * o + o * (o + 1) // 2 for o, p in zip(lengths, prompts, strict=True))
    assert decode.tokens == kv.tokens == sum(lengths)
    for state in (decode, kv):
        assert state.charged == state.held + state.externality
        assert state.gap_max is not None
        assert 0 <= state.externality <= state.gap_max * state.tokens
        whole = rho0 * state.tokens - (c * state.working + tau * state.charged)
        assert profit_tokenstep(state, TokenStep(rho0, tau, c)) == pytest.approx(whole, rel=1e-9, abs=1e-6)


@given(schedules(), st.integers(1, 30), st.floats(1e-6, 1), st.floats(0, 10))
def test_break_even_says_which_side_of_c_pays(one: Schedule, spread: int, tau: float, c: float) -> None:
    # The same requests at other times: O and Q are equal, T and E are not.
    other = dataclasses.replace(one, starts=[s * 7 % spread for s in one.starts], durations=[1] * 80)
    x, base = (Account("x", None, 1, 0, 0, 1.0, state_of(s)) for s in (one, other))
    found = break_even(x, base, tau)
    assert found is not None
    assert x.fairness is not None
    assert base.fairness is not None
    k = TokenStep(1.0, tau, c)
    gained = profit_tokenstep(x.fairness, k) - profit_tokenstep(base.fairness, k)
    if found.c is not None and abs(c - found.c) < 1e-6 * (1 + c):
        return
    if abs(gained) < 1e-9:
        return
    pays = {"always": True, "never": False}
    if found.c is not None:
        pays |= {"above": c > found.c, "below": c < found.c}
    assert pays[found.pays] == (gained > 0)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=20))
def test_dot_is_exact_whatever_the_size(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
    assert dot(a, b) == sum(x * y for x, y in pairs)


# Gaps of a wider spread than a piece has rows are sorted, others counted.
@pytest.mark.parametrize("spread", [5000, 10**6])
def test_the_log_is_taken_in_pieces_without_a_trace_of_them(spread: int) -> None:
    rng = np.random.default_rng(3)
    n, rows = rng.integers(0, 1024, 200_000), 200_000
    low = rng.integers(1, 500, rows)
    high = low + rng.integers(0, spread, rows)
    total = n * low + rng.integers(0, 10**6, rows) % np.maximum(n * (high - low), 1)
    columns = {
        "duration_s": rng.integers(1, 10**8, rows) / 1e9,
        "prefill_tokens": np.zeros(rows, dtype=np.int64),
        "producing": n,
        "generated_sum": total,
        "generated_min": low,
        "generated_max": high,
    }
    state = fairness(pa.table(columns))
    assert state is not None
    busy = n > 0
    gap, n, high, total = (high - low)[busy], n[busy], high[busy], total[busy]
    ns = np.rint(columns["duration_s"][busy] * 1e9).astype(np.int64)
    assert state.gap_mean() == pytest.approx(float(gap.mean()))
    assert state.gap_percentile(99) == pytest.approx(float(np.percentile(gap, 99)))
    assert state.externality == int((n * high - total).sum())
    assert state.charged_time == sum(int(x) * int(y) for x, y in zip(n * high, ns, strict=True))
    assert state.gap_mean(timed=True) == pytest.approx(float(np.average(gap, weights=ns)))
