"""Which servers are driven, and by what names."""

from __future__ import annotations

import pytest

from harness.core.errors import UserError
from harness.session.options import RunOptions
from harness.session.servers import servers_of

A, B = "http://127.0.0.1:1", "http://127.0.0.1:2"


@pytest.mark.parametrize(
    ("options", "servers"),
    [
        (RunOptions(urls=(A,)), {"external": A}),
        (RunOptions(urls=(A,), policies=("mine v2",)), {"mine v2": A}),
        (RunOptions(urls=(A,), policies=("eb:k=4,theta_min=0.7",)), {"eb:k=4,theta_min=0.7": A}),
        (RunOptions(urls=(A, B)), {"a": A, "b": B}),
        (RunOptions(urls=(A, A)), {"a": A, "b": A}),
        (RunOptions(urls=(A, B), policies=("v1,eb:k=4",)), {"v1": A, "eb:k=4": B}),
        (RunOptions(arms=(f"after={B}", f"before={A}")), {"after": B, "before": A}),
        (RunOptions(arms=(f"one={A}?x=1",)), {"one": f"{A}?x=1"}),
    ],
)
def test_every_server_has_a_name(options: RunOptions, servers: dict[str, str]) -> None:
    found = servers_of(options)
    assert found == servers
    assert list(found) == list(servers)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (RunOptions(urls=(A,), policies=("a", "b")), "a --url for each policy"),
        (RunOptions(urls=(A,), policies=("a,b",)), "a --url for each policy"),
        (RunOptions(urls=(A, B), policies=("v1",)), "2 servers and 1 policies"),
        (RunOptions(urls=(A, B), policies=("v1,v1",)), "a --policy of its own"),
        (RunOptions(urls=(A, B), arms=(f"x={A}",)), "leave out --url"),
        (RunOptions(arms=(f"x={A}",), policies=("v1",)), "leave out --policy"),
        (RunOptions(arms=(A,)), "NAME=URL"),
        (RunOptions(arms=(f"={A}",)), "NAME=URL"),
        (RunOptions(arms=(f"a/b={A}",)), "NAME=URL"),
        (RunOptions(arms=(f"x={A}", f"x={B}")), "names a server already"),
        (RunOptions(arms=(f"x\ny={A}",)), "NAME=URL"),
        (RunOptions(arms=(f"x,y={A}",)), "two names"),
        (RunOptions(arms=(f"v1,k={A}",)), "two names"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(options: RunOptions, told: str) -> None:
    with pytest.raises(UserError) as caught:
        servers_of(options)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
