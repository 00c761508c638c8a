"""Several policies in one text."""

from __future__ import annotations

from harness.session.ask import split_policies
from harness.session.grid import canonical_policies


def test_several_policies_in_one_text() -> None:
    assert split_policies(["v1,eb:k=32,theta_min=0.7,ebplus"]) == ["v1", "eb:k=32,theta_min=0.7", "ebplus"]
    assert canonical_policies(["fcfs,v1,eb:k=1,eb:gate=paper,k=1,v0"]) == ["v1", "eb:k=1", "v0"]
    assert canonical_policies(["isjl:plan=0.7,alpha=0100,sjf"]) == ["isjl:alpha=100", "sjf"]
