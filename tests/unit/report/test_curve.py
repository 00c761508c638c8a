"""Curves over loads: what is grouped, where the knee is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from harness.report.curve import Curve, Point, curves_of, load_of
from harness.report.curve_tables import curve_table
from harness.runs.run import Run
from tests.support.console import rendered
from tests.support.runfactory import SPEC


def made(policy: str, arrival: str, rate: float, e2el_s: float, repeat: int = 0, level: str = "VALID") -> Run:
    spec = dataclasses.replace(SPEC, policy=policy, arrival=arrival, repeat=repeat, seed=repeat)
    metrics: dict[str, Any] = {
        "output_throughput": {"value": rate, "unit": "tok/s"},
        "request_throughput": {"value": rate / 10, "unit": "req/s"},
        "e2el_s": {"mean": e2el_s, "unit": "s"},
        "ttft_s": {"p50": e2el_s / 2, "p95": e2el_s, "p99": None, "unit": "s"},
        "tpot_s": {"mean": 0.01, "p95": 0.02, "unit": "s"},
    }
    manifest = {"kind": "simulated", "verdict": {"level": level, "reasons": []}, "provenance": {}}
    return Run(Path(f"{policy}-{arrival}-{repeat}"), manifest, spec, {"metrics": metrics})


@pytest.mark.parametrize(
    ("arrival", "family", "axis", "load"),
    [
        ("closed:concurrency=64", "closed", "concurrency", 64),
        ("poisson:rate=2.5", "poisson", "rate", 2.5),
        ("gamma:cv=2.0,rate=10.0", "gamma:cv=2.0", "rate", 10),
    ],
)
def test_an_arrival_is_a_family_and_a_load(arrival: str, family: str, axis: str, load: float) -> None:
    assert load_of(arrival) == (family, axis, load)


@pytest.mark.parametrize(
    "arrival", ["offline", "trace:scale=1.0", "ramp:from=1.0,seconds=60.0,to=50.0", "closed-phases:concurrency=3/4"]
)
def test_an_arrival_of_no_single_load_is_on_no_curve(arrival: str) -> None:
    assert load_of(arrival) is None


def test_runs_become_a_curve_a_policy_with_means_over_repeats() -> None:
    runs = [
        made(policy, f"poisson:rate={load}", 100 * load + 10 * repeat, load, repeat)
        for repeat in (0, 1)
        for load in (4.0, 2.0)
        for policy in ("v1", "ebplus")
    ]
    curves = curves_of(runs)
    assert [(curve.first.spec.policy, curve.axis) for curve in curves] == [("v1", "rate"), ("ebplus", "rate")]
    assert [point.load for point in curves[0].points] == [2.0, 4.0]
    assert [point.values["output_throughput.value"] for point in curves[0].points] == [205.0, 405.0]
    assert curves[0].points[0].values["ttft_s.p99"] is None
    assert curves[0].points[0].values["goodput.value"] is None


def test_one_load_and_two_kinds_of_load_make_no_curve() -> None:
    assert curves_of([made("v1", "poisson:rate=2.0", 1, 1), made("v1", "closed:concurrency=2", 1, 1)]) == []
    assert curves_of([made("v1", "poisson:rate=2.0", 1, 1), made("v1", "constant:rate=4.0", 1, 1)]) == []


def curve(*points: tuple[float, float, float], levels: dict[float, str] | None = None) -> Curve:
    runs = [made("v1", f"closed:concurrency={load}", rate, e2el) for load, rate, e2el in points]
    (only,) = curves_of(runs)
    at = levels or {}
    return Curve(
        only.axis,
        tuple(Point(point.load, point.runs, point.values, at.get(point.load, "VALID")) for point in only.points),
    )


def test_the_knee_is_where_throughput_over_latency_is_largest() -> None:
    # X = N / (1 + N/8), R = 1 + N/8: their ratio N / (1 + N/8)² is largest at N = 8.
    found = curve(*((n, n / (1 + n / 8), 1 + n / 8) for n in (2, 4, 8, 16, 32)))
    assert found.knee is not None
    assert found.knee.load == 8
    assert found.knee_note == ""
    assert found.to_dict()["knee"] == 8


def test_closed_loops_that_tell_it_are_shown_without_start_and_end() -> None:
    runs = [made("v1", f"closed:concurrency={load}", 100, 1.0) for load in (2, 4)]
    for run in runs:
        metrics = run.summary["metrics"]
        metrics |= {"e2el_s_steady": {"mean": 0.5}, "output_throughput_steady": {"value": 120}}
    (steady,) = curves_of(runs)
    assert steady.steady
    assert steady.points[0].values["output_throughput.value"] == 120
    assert steady.points[0].power == 240
    assert "start and end left out" in " ".join(rendered(curve_table([steady]), 120).split())
    # One run that does not tell it makes all of them whole.
    del runs[0].summary["metrics"]["e2el_s_steady"]
    (whole,) = curves_of(runs)
    assert not whole.steady
    assert whole.points[1].values["output_throughput.value"] == 100


def test_a_knee_at_an_end_is_said_to_lie_beyond() -> None:
    rising = curve((1, 10, 1), (2, 20, 1), (4, 40, 1))
    assert "at or above" in rising.knee_note
    falling = curve((1, 10, 1), (2, 11, 2), (4, 12, 4))
    assert "at or below" in falling.knee_note


def test_two_loads_or_invalid_ones_have_no_knee() -> None:
    assert curve((1, 10, 1), (2, 20, 1)).knee is None
    three = curve((1, 10, 1), (2, 20, 1), (4, 10, 4), levels={2: "INVALID"})
    assert three.knee is None
    assert "not INVALID" in three.knee_note


def test_the_table_marks_the_knee_once_a_policy() -> None:
    text = rendered(curve_table([curve(*((n, n / (1 + n / 8), 1 + n / 8) for n in (4, 8, 16)))]), 120)
    (marked,) = [line for line in text.splitlines() if "← knee" in line]
    assert " 8 " in marked
    assert "goodput" not in text
    assert "Kleinrock" in text
