"""When a request may go out again: only where the server closed an idle connection that it was just sent on."""

from __future__ import annotations

import pytest

from harness.drive.flight import Flight
from harness.drive.openai_stream import Answer

S = 1_000_000_000


class Connection:
    """What a flight asks of a connection."""

    def __init__(self, requests: int = 2, made_ns: int = 0, t_ns: int = 0) -> None:
        self.requests = requests
        self.made_ns = made_ns
        self.t_ns = t_ns


def flight(sent_ns: int | None, resent: bool = False) -> Flight:
    one = Flight(0, 0, Answer())
    one.sent_ns = sent_ns
    one.resent = resent
    return one


@pytest.mark.parametrize(
    ("one", "connection", "now_ns", "stale"),
    [
        (flight(5 * S), Connection(), 5 * S + 1, True),
        # Its first request, on a connection that was long idle before it, or was made just now.
        (flight(5 * S), Connection(requests=1), 5 * S + 1, True),
        (flight(5 * S), Connection(requests=1, made_ns=4 * S), 5 * S + 1, False),
        (flight(5 * S), Connection(requests=1, made_ns=4 * S - 1), 5 * S + 1, True),
        # Once only.
        (flight(5 * S, resent=True), Connection(), 5 * S + 1, False),
        # The server had begun to answer, or had time to work on it.
        (flight(5 * S), Connection(t_ns=5 * S), 5 * S + 1, False),
        (flight(5 * S), Connection(), 6 * S - 1, True),
        (flight(5 * S), Connection(), 6 * S, False),
        (flight(None), Connection(), 5 * S, False),
    ],
)
def test_a_request_is_sent_again_once_and_only_where_the_server_cannot_have_seen_it(
    one: Flight, connection: Connection, now_ns: int, stale: bool
) -> None:
    assert one.met_a_stale(connection, now_ns) is stale  # type: ignore[arg-type]
