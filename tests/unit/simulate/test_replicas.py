"""Two replicas worked out by hand: every step takes a millisecond, whatever is in it."""

from __future__ import annotations

import pytest

from harness.core.routers import LEAST_LOADED, ROUND_ROBIN
from harness.simulate.arrivals import NEVER, Arrivals
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits, too_long
from harness.simulate.replicas import Replicas
from harness.simulate.router import Router
from harness.simulate.rows import Rows
from policies.catalog import make_policy
from policies.core import Policy, PolicyState
from tests.unit.simulate.test_batch import MS, Millisecond, stream_of
from workloads.core.stream import Stream

LIMITS = EngineLimits(slots=4, token_budget=64, kv_blocks=100, max_model_len=100)


def v1() -> Policy:
    return make_policy("v1", {}, LIMITS.slots, None)


def served(stream: Stream, rule: str) -> dict[int, tuple[int, int, int, int]]:
    """By row the replica, and when the request was due, had its first token and was done, tenths of a millisecond."""
    refused = too_long(stream.trace, LIMITS)
    states: list[PolicyState] = []
    replicas = Replicas(
        Arrivals(stream, NEVER, refused),
        refused,
        Router(rule, 2),
        [lambda desk: BatchLoop(stream, v1(), Millisecond(), LIMITS, desk=desk, states=states)] * 2,
        reacts=stream.due_ns is None,
    )
    kept: list[Rows] = []

    def sink(rows: Rows) -> bool:
        kept.append(rows)
        return True

    assert replicas.run(sink)
    (rows,) = kept
    assert rows.request_replicas is not None
    due, first, done = (rows.request_column(name) // (MS // 10) for name in ("due", "first", "done"))
    columns = (rows.request_replicas, due, first, done)
    told = list(zip(*(column.tolist() for column in columns), strict=True))
    return dict(zip(rows.request_column("row").tolist(), told, strict=True))


def test_one_that_has_nothing_left_is_busy_until_its_last_step_ends() -> None:
    # The first has its two tokens at 2 ms. At 1.6 ms each replica has one in flight, so the third goes to the first
    # replica, which begins its next step at 2 ms and not before.
    stream = stream_of([(4, 2), (4, 9), (4, 1)], [0, MS // 2, MS * 8 // 5])
    assert served(stream, LEAST_LOADED) == {0: (0, 0, 10, 20), 1: (1, 5, 15, 95), 2: (0, 16, 30, 30)}


def test_a_closed_loop_is_filled_again_where_a_place_is_free() -> None:
    # Of two in flight the shorter ends at 2 ms and the next goes to its replica, the last at 3 ms to the other.
    stream = stream_of([(4, 3), (4, 2), (4, 3), (4, 1)], 2)
    assert served(stream, LEAST_LOADED) == {
        0: (0, 0, 10, 30),
        1: (1, 0, 10, 20),
        2: (1, 20, 30, 50),
        3: (0, 30, 40, 40),
    }


@pytest.mark.parametrize(("rule", "replica"), [(LEAST_LOADED, 0), (ROUND_ROBIN, 1)])
def test_a_request_that_fits_nowhere_is_in_flight_nowhere(rule: str, replica: int) -> None:
    stream = stream_of([(4, 200), (4, 2), (4, 2)], [0, 0, 0])
    found = served(stream, rule)
    # Refused when it came: by the one the next two are one each, by the other it has had its turn.
    assert found[0][0] == 0
    assert [found[1][0], found[2][0]] == [replica, 1 - replica]
