"""Answers that came to the client in bunches: how late at least, and what share of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.records import REQUESTS, STEPS
from harness.measure.columns import Requests
from harness.measure.delivery import bunched, first_token_lag, impossible
from tests.support.runfactory import request, step, table_of

MS = 1e-3


def steps_of(ends_ms: list[float], producing: list[int] | None = None) -> Any:
    """Steps end to end, each of which one request gets a token of unless told otherwise."""
    starts = [0.0, *ends_ms[:-1]]
    rows = [
        step(a * MS, (b - a) * MS, n) | {"producing": n}
        for a, b, n in zip(starts, ends_ms, producing or [1] * len(ends_ms), strict=True)
    ]
    return table_of(STEPS, rows)


def answer(row: int, sent_ms: float, first_ms: float, last_ms: float, tokens: int) -> dict[str, Any]:
    times = {"sent_s": sent_ms * MS, "first_token_s": first_ms * MS, "last_token_s": last_ms * MS}
    return request(row, at=sent_ms * MS, done_s=last_ms * MS, output_tokens=tokens) | times


def requests_of(*rows: dict[str, Any]) -> Requests:
    return Requests.of(table_of(REQUESTS, list(rows)))


TEN = [10.0 * i for i in range(1, 11)]


@pytest.mark.parametrize(
    ("first", "last", "tokens", "lag"),
    [
        (10, 50, 5, 0),  # as they were made: at 10, 20, 30, 40, 50
        (13, 53, 5, 0),  # a delay that all of them share does not show
        (23, 53, 5, 3),  # made at 10 at the latest; by the end of the next step it is late
        (43, 53, 5, 23),
        (53, 53, 5, 33),  # all at once
        (53, 53, 1, 0),  # one token: made at 50 at the latest
        (95, 100, 10, 75),
        (5, 55, 3, 0),  # a pause between its steps makes the bound lower, never negative
    ],
)
def test_the_least_lag_of_a_first_token(first: float, last: float, tokens: int, lag: float) -> None:
    found = first_token_lag(requests_of(answer(0, 0, first, last, tokens)), steps_of(TEN))
    assert found.tolist() == [round(lag * 1e6)]


def test_steps_that_gave_nobody_a_token_do_not_count() -> None:
    producing = [1, 0, 1, 0, 1, 1, 1, 1, 1, 1]
    found = first_token_lag(requests_of(answer(0, 0, 60, 60, 4)), steps_of(TEN, producing))
    # Made at 10, 30, 50, 60.
    assert found.tolist() == [30_000_000]


@given(
    durations=st.lists(st.integers(1, 50), min_size=2, max_size=60),
    start=st.integers(0, 59),
    delay=st.integers(0, 200),
    held=st.integers(0, 500),
    data=st.data(),
)
def test_never_more_than_the_lag_that_there_was(
    durations: list[int], start: int, delay: int, held: int, data: st.DataObject
) -> None:
    ends = np.cumsum(durations).tolist()
    start %= len(ends)
    # The steps that the request decodes in: from its first on, with pauses.
    mine = [start] + [i for i in range(start + 1, len(ends)) if data.draw(st.booleans())]
    last = ends[mine[-1]] + delay
    first = min(ends[start] + delay + held, last)
    steps = steps_of([float(end) for end in ends])
    found = first_token_lag(requests_of(answer(0, 0, first, last, len(mine))), steps)
    true = round((first - ends[start]) * 1e6)
    assert 0 <= found[0] <= true
    if len(mine) == len(ends) - start and delay == 0:
        # Without pauses and but for the next step all of it is seen.
        assert found[0] == max(0, round((first - ends[min(start + 1, len(ends) - 1)]) * 1e6))


@pytest.mark.parametrize(("bad", "share"), [(0, 0.0), (3, 30.0), (10, 100.0)])
def test_the_share_of_answers_that_came_bunched(bad: int, share: float) -> None:
    rows = [answer(row, 0, 90 if row < bad else 12, 92, 9) for row in range(10)]
    assert bunched(requests_of(*rows), steps_of(TEN, [10] * 10)) == pytest.approx(share)


def test_what_is_late_by_less_than_the_clock_of_a_busy_machine_is_not() -> None:
    ends = [0.5 * i for i in range(1, 11)]
    assert bunched(requests_of(answer(0, 0, 5, 5, 9)), steps_of(ends)) == 0
    assert bunched(requests_of(answer(0, 0, 50, 50, 9)), steps_of([10 * end for end in ends])) == 100


def test_answers_that_came_before_they_can_have_been_made_are_a_clock_that_is_wrong() -> None:
    rows = [answer(row, 0, 40, 80, 5) for row in range(3)]
    assert impossible(requests_of(*rows), steps_of(TEN, [3] * 10)) == 0
    later = table_of(STEPS, [step(100 + at, 1, 3) | {"producing": 3} for at in range(10)])
    assert impossible(requests_of(*rows), later) == 3


def test_where_steps_cannot_tell() -> None:
    one = answer(0, 0, 10, 50, 5)
    assert bunched(requests_of(one | {"finish": "error"}), steps_of(TEN)) == "no request was completed"
    without = table_of(STEPS, [step(0, 1, 1)])
    assert bunched(requests_of(one), without) == "the step log does not say which requests produce tokens"
    assert bunched(requests_of(one), steps_of(TEN[:3])) == "a step gave a request more than one token"
