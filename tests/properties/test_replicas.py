"""Replicas behind a router: one is the engine alone, and each of several does what it would do by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.routers import ROUND_ROBIN, ROUTERS
from tests.support.batch_cases import Case, cached_cases, cases, large_cases, phased_cases, talking_cases
from tests.support.batch_played import play
from tests.support.oracle_rows import LENGTH
from tests.support.replicas_played import Together, play_alone, play_together

COUNTS = st.integers(2, 4)
assert settings.default is not None
# Each case is replayed several times.
few_cases = settings(large_cases, max_examples=settings.default.max_examples // 3)


@few_cases
@given(st.one_of(cases(), phased_cases(), talking_cases(), cached_cases()))
def test_one_replica_is_the_engine_alone(case: Case) -> None:
    alone, one = play(case), play_together(case, 1)
    np.testing.assert_array_equal(one.requests, alone.requests)
    np.testing.assert_array_equal(one.steps[:, :-1], alone.steps[:, :-1])
    states = [alone.states[i] if i >= 0 else None for i in alone.column("state").tolist()]
    assert one.held(one.of_steps == 0) == states
    assert one.replicas.sent == alone.loop.sent
    # Every request has its list, and of those that were preempted it is the same.
    ran = alone.request_column("finish") == LENGTH
    assert one.gaps.keys() == set(alone.request_column("row")[ran].tolist())
    assert alone.gaps.items() <= one.gaps.items()


@few_cases
@given(cases(), COUNTS, st.sampled_from(ROUTERS))
def test_each_replica_does_what_it_would_alone_with_what_it_was_given(case: Case, count: int, rule: str) -> None:
    together = play_together(case, count, rule)
    rows, due = together.request_column("row"), [0] * len(case.prompts)
    for row, at in zip(rows.tolist(), together.request_column("due").tolist(), strict=True):
        due[row] = at
    for replica in range(count):
        mine, my_steps = together.of_requests == replica, together.of_steps == replica
        alone = play_alone(case, due, rows[mine].tolist())
        np.testing.assert_array_equal(together.requests[mine], alone.requests)
        np.testing.assert_array_equal(together.steps[my_steps][:, :-1], alone.steps[:, :-1])
        held = [alone.states[i] if i >= 0 else None for i in alone.step_column("state").tolist()]
        assert together.held(my_steps) == held
        for row, gaps in alone.gaps.items():
            assert together.gaps[row] == gaps.tolist()


@few_cases
@given(st.one_of(cases(), phased_cases(), talking_cases()), COUNTS, st.sampled_from(ROUTERS))
def test_every_request_is_served_once_and_steps_come_in_their_order(case: Case, count: int, rule: str) -> None:
    together = play_together(case, count, rule)
    rows = together.request_column("row").tolist()
    assert len(set(rows)) == len(rows)
    if case.max_duration_s is None:
        assert sorted(rows) == list(range(len(case.prompts)))
    starts = together.step_column("t")
    assert (np.diff(starts) >= 0).all()
    if case.talks is None:
        check_choices(together, count, rule)
        assert case.due_ns or case.phases or most_in_flight(together) <= case.concurrency
    for replica in range(count):
        mine = together.of_steps == replica
        ends = starts[mine] + together.step_column("duration")[mine]
        assert (starts[mine][1:] >= ends[:-1]).all()


def most_in_flight(together: Together) -> int:
    ran = together.request_column("finish") == LENGTH
    begun, ended = np.sort(together.request_column("due")[ran]), np.sort(together.request_column("done")[ran])
    return int((np.arange(1, len(begun) + 1) - np.searchsorted(ended, begun, side="right")).max(initial=0))


def check_choices(together: Together, count: int, rule: str) -> None:
    """Whom each request of a stream without conversations went to, from the rows alone."""
    due, done = together.request_column("due"), together.request_column("done")
    order = np.lexsort((together.request_column("row"), due)).tolist()
    chosen = together.of_requests[order].tolist()
    if rule == ROUND_ROBIN:
        assert chosen == [place % count for place in range(len(order))]
        return
    ran = together.request_column("finish") == LENGTH
    begun: list[int] = []
    for i, replica in zip(order, chosen, strict=True):
        in_flight = [sum(together.of_requests[j] == k and done[j] > due[i] for j in begun) for k in range(count)]
        assert replica == in_flight.index(min(in_flight)), "it knows what has ended, and no more"
        if ran[i]:
            begun.append(i)
