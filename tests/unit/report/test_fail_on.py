"""`--fail-on`: how a condition is written and when it fails."""

import dataclasses
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.report.comparison import Comparison, compare
from harness.report.fail_on import parse_fail_on
from harness.runs.run import load_run
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


@pytest.mark.parametrize(
    "text", ["", "output_throughput", "speed<-5%", "ttft_s.p42>1%", "<5%", "output_throughput>3ms"]
)
def test_fail_on_says_how_it_is_written(text: str) -> None:
    with pytest.raises(UserError, match=r"such as|is no time"):
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


def test_a_metric_that_is_none_is_answered_with_the_three_nearest() -> None:
    with pytest.raises(UserError, match=r"nearest are ttft_s(\.p..)?, \S+, \S+; write") as caught:
        parse_fail_on("tttf_s>1")
    assert len(str(caught.value)) < 400


def arms_apart(tmp_path: Path, gains: list[float]) -> Comparison:
    """Three repeats of which B is faster by these factors."""
    a: list[Path] = []
    b: list[Path] = []
    for repeat, gain in enumerate(gains):
        for arm, policy, speed in ((a, "v1", 1.0), (b, "eb", gain)):
            requests, steps = toy_run(100, repeat, speed=speed)
            spec = dataclasses.replace(SPEC, policy=policy, seed=repeat, repeat=repeat)
            arm.append(write_run(tmp_path, requests, steps, spec=spec))
    return compare(a, b)


def test_the_word_decides_and_not_the_point_value(tmp_path: Path) -> None:
    noisy = arms_apart(tmp_path / "noisy", [1.5, 0.95, 1.0])
    row = noisy.metrics["output_throughput"]
    assert row.ratio is not None
    assert row.ratio > 1.1
    assert parse_fail_on("output_throughput>5%").failure(noisy) is None
    assert parse_fail_on("worse").failure(noisy) is None
    slower = arms_apart(tmp_path / "slower", [0.7, 0.72, 0.71])
    for condition in ("output_throughput<-20%", "output_throughput worse", "worse"):
        why = parse_fail_on(condition).failure(slower)
        assert why is not None
        assert ": worse" in why
    assert parse_fail_on("output_throughput<-40%").failure(slower) is None
    assert parse_fail_on("tpot_s.p90 worse").failure(arms_apart(tmp_path / "faster", [1.4, 1.41, 1.42])) is None


def test_absolute_conditions_hold_bs_own_value_against_a_limit(compared: Comparison) -> None:
    ttft = compared.metrics["ttft_s_steady.p90"].b
    assert ttft is not None
    for condition, fails in (
        (f"ttft_s.p90>{ttft * 0.99:.9f}", True),
        (f"ttft_s.p90>{ttft * 1.01:.9f}s", False),
        (f"ttft_s.p90<{ttft * 1010:.6f}ms", True),
    ):
        assert (parse_fail_on(condition).failure(compared) is not None) == fails
    run = compared.b[0]
    alone = run.summary["metrics"]["ttft_s"]["p90"]
    assert parse_fail_on(f"ttft_s.p90>{alone * 0.99:.9f}").failure_alone([run]) is not None
    assert parse_fail_on(f"ttft_s.p90>{alone * 1.01:.9f}").failure_alone([run]) is None


def test_a_verdict_is_a_condition(tmp_path: Path, compared: Comparison) -> None:
    assert parse_fail_on("INVALID").failure(compared) is None
    requests, steps = toy_run(60)
    bad = write_run(tmp_path, requests, steps, status="failed", reason="x")
    why = parse_fail_on("INVALID").failure_alone([load_run(bad)])
    assert why is not None
    assert "INVALID" in why
