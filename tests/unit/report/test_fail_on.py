"""`--fail-on`: how a condition is written and when it fails."""

import dataclasses
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.report.comparison import Comparison, compare
from harness.report.fail_on import parse_fail_on
from tests.support.runfactory import SPEC, faster, toy_run, write_run


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(*faster(tmp_path_factory.mktemp("runs"), 1))


@pytest.mark.parametrize(
    ("condition", "fails"),
    [
        ("output_throughput<-5%", False),
        ("output_throughput>5%", True),
        ("output_throughput > +5 %", True),
        ("output_throughput>=100%", False),
        ("itl_s<-5%", True),
        ("itl_s.mean<-5%", True),
        ("itl_s.p99>10%", False),
    ],
)
def test_fail_on(compared: Comparison, condition: str, fails: bool) -> None:
    why = parse_fail_on(condition).failure(compared)
    assert (why is not None) == fails
    if why:
        assert condition in why


@pytest.mark.parametrize("text", ["", "output_throughput", "output_throughput<-5", "speed<-5%", "ttft_s.p42>1%", "<5%"])
def test_fail_on_says_how_it_is_written(text: str) -> None:
    with pytest.raises(UserError, match="such as"):
        parse_fail_on(text)


def test_fail_on_a_metric_that_is_not_there(compared: Comparison) -> None:
    with pytest.raises(UserError, match="no goodput"):
        parse_fail_on("goodput<-5%").failure(compared)


def test_fail_on_fails_where_nothing_could_be_compared(tmp_path: Path) -> None:
    requests, steps = toy_run(60)
    a = write_run(tmp_path, requests, steps)
    b = write_run(tmp_path, requests, steps, spec=dataclasses.replace(SPEC, policy="b"), status="failed", reason="x")
    why = parse_fail_on("output_throughput<-5%").failure(compare([a], [b]))
    assert why is not None
    assert "INVALID" in why
