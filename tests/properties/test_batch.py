"""The batch loop against the plain oracle, and what must hold of every run whatever is asked for."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from tests.support.batch_cases import Case, cases, large_cases, phased_cases, talking_cases
from tests.support.batch_played import check_conservation, check_equal, check_same, play


@large_cases
@given(cases())
def test_the_loop_equals_the_oracle(case: Case) -> None:
    oracle, played = case.oracle(), play(case)
    check_equal(case, oracle, played)
    check_conservation(case, played)


@large_cases
@given(phased_cases())
def test_a_schedule_of_concurrency_equals_the_oracle(case: Case) -> None:
    played = play(case)
    check_equal(case, case.oracle(), played)
    check_same(played, play(case, leap=False, every=1))


@large_cases
@given(talking_cases())
def test_conversations_equal_the_oracle(case: Case) -> None:
    played = play(case)
    check_equal(case, case.oracle(), played)
    check_same(played, play(case, leap=False, every=1))


@large_cases
@given(cases())
def test_leaping_gives_the_same_bits_as_stepping(case: Case) -> None:
    one_by_one = play(case, leap=False, every=1)
    check_same(play(case), one_by_one)
    check_conservation(case, one_by_one)


@large_cases
@given(cases())
def test_the_same_case_gives_the_same_rows(case: Case) -> None:
    check_same(play(case), play(case, every=3))


@large_cases
@given(cases())
def test_arrival_order_as_an_order_is_the_queue_itself(case: Case) -> None:
    plain = dataclasses.replace(case, policy="v1", options=())
    check_same(play(plain), play(dataclasses.replace(plain, policy="in arrival order")))


@large_cases
@given(cases(), st.floats(0, 1))
def test_nothing_is_sent_after_the_time_is_up_and_what_is_in_flight_ends(case: Case, share: float) -> None:
    whole = play(case)
    case = dataclasses.replace(case, max_duration_s=share * whole.loop.drain().now_ns / 1e9)
    assert case.max_duration_s is not None
    oracle, played = case.oracle(), play(case)
    check_equal(case, oracle, played)
    check_same(played, play(case, leap=False))
    assert (played.request_column("sent") <= round(case.max_duration_s * 1e9)).all()
    assert sorted(played.request_column("row").tolist()) == list(range(played.loop.sent))
    assert played.loop.state.free_blocks == played.loop.state.total_blocks
    if case.due_ns is not None:
        assert played.loop.sent == sum(due <= round(case.max_duration_s * 1e9) for due in case.due_ns)
