"""Limits on percentiles, as they are written."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.report.limits import Limit, parse_limits
from harness.runs.run import Run
from tests.support.runfactory import SPEC


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("ttft_p95=1", [Limit("ttft_s", "p95", 1.0)]),
        ("ttft_p95=1,tpot_p95=0.05", [Limit("ttft_s", "p95", 1.0), Limit("tpot_s", "p95", 0.05)]),
        ("ttft_s.p99=200ms, tpot_mean = 50 ms", [Limit("ttft_s", "p99", 0.2), Limit("tpot_s", "mean", 0.05)]),
        ("ttft_from_sent_p50=2s", [Limit("ttft_from_sent_s", "p50", 2.0)]),
        ("itl.p99=1e-1,e2el_s_p90=30", [Limit("itl_s", "p99", 0.1), Limit("e2el_s", "p90", 30.0)]),
    ],
)
def test_limits_are_read(text: str, limits: list[Limit]) -> None:
    assert list(parse_limits(text)) == limits


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ttft=1", "say of which percentile: ttft_p95=1"),
        ("ttft_s=0.5", "ttft_p95=0.5"),
        ("tttf_p95=1", "did you mean ttft"),
        ("ttft_p97=1", "p97 is not kept"),
        ("ttft_p95=0", "above 0"),
        ("ttft_p95=-1", "above 0"),
        ("ttft_p95=nan", "above 0"),
        ("ttft_p95=1h", "above 0"),
        ("ttft_p95", "above 0"),
        ("ttft_p95=1,ttft_s.p95=2", "twice"),
        ("", "no such metric"),
        ("ttft_p95=1,", "no such metric"),
    ],
)
def test_what_is_no_limit_is_refused_in_a_line(text: str, told: str) -> None:
    with pytest.raises(UserError, match="--slo") as caught:
        parse_limits(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_of_a_closed_loop_a_limit_is_held_against_what_is_steady() -> None:
    metrics = {"ttft_s": {"p95": 3.0}, "ttft_s_steady": {"p95": 0.5}}
    (limit,) = parse_limits("ttft_p95=1")
    for arrival, value in (("closed:concurrency=8", 0.5), ("poisson:rate=8.0", 3.0)):
        spec = dataclasses.replace(SPEC, arrival=arrival)
        assert limit.value_of(Run(Path("x"), {}, spec, {"metrics": metrics})) == value
    del metrics["ttft_s_steady"]
    spec = dataclasses.replace(SPEC, arrival="closed:concurrency=8")
    assert limit.value_of(Run(Path("x"), {}, spec, {"metrics": metrics})) == 3.0


@pytest.mark.parametrize(("text", "least"), [("ttft_p99=1", 100), ("ttft_p95=1", 20), ("ttft_mean=1", 1)])
def test_a_percentile_takes_so_many_requests(text: str, least: int) -> None:
    (limit,) = parse_limits(text)
    assert limit.least_requests() == least
    assert limit.name == text.partition("=")[0]
