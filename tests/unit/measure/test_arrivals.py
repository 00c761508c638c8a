"""Several tokens an event, and answers that were held back: what they make of ITL, TPOT and the verdict."""

from __future__ import annotations

import dataclasses
import random
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.records import REQUESTS
from harness.core.runspec import RunSpec
from harness.measure.evidence import Evidence
from harness.measure.measured import measure
from harness.measure.summary import summary_of
from harness.measure.verdict import judge
from tests.support.runfactory import SECOND, SPEC, request, table_of

REAL = dataclasses.replace(SPEC, engine="endpoint", requests=20)


def answer(row: int, gaps_s: list[float], tokens: int, told: list[int] | None = None, ttft_s: float = 0.4) -> Any:
    """A request of so many tokens, sent at `row` s, whose events come after these gaps."""
    first = row + ttft_s
    last = first + sum(gaps_s)
    return request(
        row,
        first_token_s=first,
        last_token_s=last,
        done_s=last,
        output_tokens=tokens,
        token_gaps_s=gaps_s,
        event_tokens=told,
    )


def summary(rows: list[Any], spec: RunSpec = REAL) -> dict[str, Any]:
    return dict(summary_of(measure(table_of(REQUESTS, rows), None, spec, True))["metrics"])


def check(rows: list[Any], name: str, client: dict[str, Any] | None = None) -> dict[str, Any]:
    table = table_of(REQUESTS, rows)
    measured = measure(table, None, REAL, True)
    manifest = {"client": client or {}, "planned": {"requests": len(rows)}}
    verdict = judge(Evidence(REAL, manifest, table, None, measured), "complete", None)
    return next(dict(one) for one in verdict["checks"] if one["name"] == name)


@pytest.mark.parametrize("told", [True, False])
def test_a_pace_is_the_same_however_many_tokens_come_together(told: bool) -> None:
    one = summary([answer(i, [0.01] * 31, 32) for i in range(20)])
    four = summary([answer(i, [0.04] * 7, 32, [4] * 8 if told else None) for i in range(20)])
    for metrics in (one, four):
        assert metrics["itl_s"]["mean"] == pytest.approx(0.01)
        assert metrics["itl_s"]["p50"] == pytest.approx(0.01)
        assert metrics["tpot_s"]["mean"] == pytest.approx(0.01)
    assert one["itl_s"]["count"] == 20 * 31
    assert four["itl_s"]["count"] == 20 * 28


def test_tokens_that_are_told_share_the_gap_before_them() -> None:
    metrics = summary([answer(0, [0.03, 0.01], 6, [2, 3, 1])])
    assert metrics["itl_s"]["count"] == 4
    assert metrics["itl_s"]["mean"] == pytest.approx(0.01)
    assert metrics["tpot_s"]["mean"] == pytest.approx(0.04 / 4)


@pytest.mark.parametrize("told", [[2, 3], [2, 3, 1, 1], [9, 9, 9]])
def test_a_list_that_does_not_fit_its_answer_is_none_of_it(told: list[int]) -> None:
    rows = [answer(0, [0.03, 0.01], 6, told)]
    assert summary(rows) == summary([answer(0, [0.03, 0.01], 6)])


@pytest.mark.parametrize(
    "gaps",
    [[], [0.0] * 31, [0.0] * 20 + [0.0001] + [0.0] * 10, [0.00002] * 31, [0.0] * 17 + [0.02] * 14],
    ids=["one event", "one read", "two reads", "many reads", "most of it"],
)
def test_an_answer_that_was_held_back_has_no_pace(gaps: list[float]) -> None:
    rows = [answer(i, gaps, 32) for i in range(20)]
    metrics = summary(rows)
    for name in ("tpot_s", "itl_s"):
        assert metrics[name]["count"] == 0
        assert metrics[name]["mean"] is None
    found = check(rows, "held_back")
    assert (found["level"], found["value"]) == ("INVALID", 100)
    # In virtual time nothing stands between.
    assert summary(rows, SPEC)["itl_s"]["count"] == (31 if gaps else 0) * 20


@pytest.mark.parametrize(
    ("gaps", "tokens"),
    [([0.001] * 31, 32), ([0.0] * 3 + [0.02] * 28, 32), ([0.0], 2), ([0.01] * 3, 4), ([0.02, 0.0, 0.0], 4)],
)
def test_an_answer_that_came_as_it_was_made_is_not_held_back(gaps: list[float], tokens: int) -> None:
    rows = [answer(i, gaps, tokens) for i in range(20)]
    assert summary(rows)["tpot_s"]["count"] == 20
    assert check(rows, "held_back").get("value", 0) == 0


def test_a_few_that_were_held_back_leave_the_others_their_pace() -> None:
    rows = [answer(i, [0.0] * 31 if i == 3 else [0.01] * 31, 32) for i in range(20)]
    assert summary(rows)["tpot_s"]["mean"] == pytest.approx(0.01)
    assert check(rows, "held_back")["level"] == "DEGRADED"


def test_an_slo_on_the_pace_binds_no_answer_without_one() -> None:
    spec = dataclasses.replace(REAL, slo={"tpot_s": 0.02})
    assert summary([answer(i, [], 32) for i in range(20)], spec)["goodput"]["value"] > 0


@pytest.mark.parametrize(
    ("client", "level"),
    [
        ({"echoed": 20, "foreign": 0}, "VALID"),
        ({"echoed": 19, "foreign": 1}, "INVALID"),
        ({"echoed": 1000, "foreign": 1}, "DEGRADED"),
        # A server that names all its answers alike meets one request's id by chance.
        ({"echoed": 1, "foreign": 19}, "not applicable"),
        ({"echoed": 0, "foreign": 20}, "not applicable"),
        ({}, "not applicable"),
    ],
)
def test_answers_that_bear_another_id_are_in_the_verdict(client: dict[str, Any], level: str) -> None:
    assert check([answer(i, [0.01] * 31, 32) for i in range(20)], "foreign", client)["level"] == level


@pytest.mark.parametrize(("beyond", "level"), [(0, "VALID"), (1, "DEGRADED"), (3, "INVALID")])
def test_answers_with_tokens_beyond_their_usage_are_in_the_verdict(beyond: int, level: str) -> None:
    rows = [answer(i, [0.01] * 31, 32) for i in range(20)]
    assert check(rows, "beyond_usage", {"beyond_usage": beyond})["level"] == level


EVENTS = st.lists(st.tuples(st.integers(1_000_000, 10**8), st.integers(1, 9)), min_size=1, max_size=12)


@given(st.lists(st.tuples(EVENTS, st.booleans()), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_gaps_are_those_of_walking_every_token(answers: list[tuple[Any, bool]], rng: random.Random) -> None:
    rows, walked = [], []
    for row, (events, told) in enumerate(answers):
        gaps, tokens = [gap for gap, _ in events[1:]], [count for _, count in events]
        total = sum(tokens)
        if not told:
            # As they are taken to be where nobody said: as even as whole tokens can be.
            ends = [i * total // len(tokens) for i in range(len(tokens) + 1)]
            tokens = [after - before for before, after in pairwise(ends)]
        rows.append(answer(row, [gap / SECOND for gap in gaps], total, tokens if told else None))
        if 2 * tokens[0] <= total or total < 4:
            walked += [gap / count for gap, count in zip(gaps, tokens[1:], strict=True) for _ in range(count)]
    rng.shuffle(rows)
    itl = measure(table_of(REQUESTS, rows), None, REAL, True).samples["itl_s"]
    assert itl.count == len(walked)
    repeats = list(itl.cumulative) if itl.cumulative is not None else list(accumulate([1] * len(itl.values)))
    found = [value for value, more in zip(itl.values, _steps(repeats), strict=True) for _ in range(more)]
    assert found == pytest.approx(sorted(walked))
    for limit in walked[:3]:
        above = limit * (1 + 1e-9)
        assert int(itl.below(above).sum()) == sum(gap <= above for gap in walked)


def _steps(running: list[int]) -> list[int]:
    return [int(after - before) for before, after in zip([0, *running], running, strict=False)]
