"""What a load gave: met or not, why not, and the run that is there already."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.report.capacity import BEYOND, Search, Tried
from harness.report.limits import parse_limits
from harness.runs.run import Run, load_run
from harness.session.capacity import Arm, Wanted, finished_run, judged
from harness.session.capacity_report import waves_at_capacity
from tests.support.runfactory import SPEC, toy_run, write_run

LIMITS = parse_limits("ttft_p95=1,tpot_mean=100ms")


def made(ttft_s: float | None, tpot_s: float, level: str = "VALID", check: str = "backlog", **spec: Any) -> Run:
    metrics = {"ttft_s": {"p95": ttft_s}, "tpot_s": {"mean": tpot_s}, "e2el_s": {"mean": 2.0}}
    reasons = [f"{level}: so it was"] if level != "VALID" else []
    verdict = {"level": level, "reasons": reasons, "checks": [{"name": check, "level": level}]}
    manifest = {"kind": "simulated", "verdict": verdict}
    return Run(Path("x"), manifest, dataclasses.replace(SPEC, **spec), {"metrics": metrics})


def test_a_load_is_met_where_every_limit_holds_by_the_mean_over_repeats() -> None:
    met = judged([made(0.8, 0.05), made(1.1, 0.05)], LIMITS)
    # The geometric mean of 0.8 and 1.1 is 0.94.
    assert met.worst == pytest.approx((math.log(0.8), math.log(1.1)))
    assert (met.met, met.why) == (True, "")
    unmet = judged([made(0.95, 0.05), made(1.1, 0.05)], LIMITS)
    assert not unmet.met
    assert unmet.why == "ttft_p95 is 1.02 s"


def test_the_worst_limit_of_each_repeat_counts() -> None:
    tried = judged([made(0.5, 0.2), made(3.0, 0.05)], LIMITS)
    assert tried.worst == pytest.approx((math.log(2), math.log(3)))
    assert "ttft_p95 is" in tried.why
    assert "tpot_mean" not in judged([made(3.0, 0.05)], LIMITS).why


def test_an_invalid_run_serves_no_load_and_its_client_is_named() -> None:
    tried = judged([made(0.1, 0.01), made(0.1, 0.01, "INVALID")], LIMITS)
    assert (tried.met, tried.worst[1]) == (False, BEYOND)
    assert tried.why == "INVALID: so it was"
    assert "the client gave up" in judged([made(0.1, 0.01, "INVALID", "client_cpu")], LIMITS).why
    assert judged([made(0.1, 0.01, "DEGRADED")], LIMITS).met


def test_a_percentile_that_too_few_answers_carry_is_not_met() -> None:
    tried = judged([made(None, 0.01)], LIMITS)
    assert tried == Tried(((BEYOND, BEYOND),), "too few requests completed to tell ttft_p95")


@pytest.mark.parametrize(
    ("axis", "kind", "load", "arrival"),
    [
        ("rate", "poisson", 2.5, "poisson:rate=2.5"),
        ("rate", "gamma:cv=2", 3.0, "gamma:cv=2,rate=3.0"),
        ("concurrency", "poisson", 8.0, "closed:concurrency=8"),
    ],
)
def test_a_load_becomes_an_arrival(axis: str, kind: str, load: float, arrival: str) -> None:
    assert Wanted(LIMITS, axis).arrival(load, kind) == arrival


def test_a_finished_run_of_the_very_spec_is_found_and_no_other(tmp_path: Path) -> None:
    requests, steps = toy_run(30)
    spec = dataclasses.replace(SPEC, requests=30, seed=3, repeat=2)
    assert finished_run(tmp_path, spec) is None
    path = write_run(tmp_path, requests, steps, spec=spec)
    found = finished_run(tmp_path, spec)
    assert found is not None
    assert found.path == path
    assert finished_run(tmp_path, dataclasses.replace(spec, seed=4)) is None
    assert finished_run(tmp_path, dataclasses.replace(spec, repeat=1)) is None


def test_a_run_of_another_server_is_no_run_of_this_one(tmp_path: Path) -> None:
    requests, _ = toy_run(30)
    spec = dataclasses.replace(SPEC, requests=30, engine="endpoint", policy="external")
    write_run(tmp_path, requests, spec=spec, provenance={"url": "http://127.0.0.1:1"})
    assert finished_run(tmp_path, spec, "http://127.0.0.1:1") is not None
    assert finished_run(tmp_path, spec, "http://127.0.0.1:2") is None


def test_a_run_that_did_not_end_or_cannot_be_read_is_run_again(tmp_path: Path) -> None:
    requests, steps = toy_run(30)
    spec = dataclasses.replace(SPEC, requests=30)
    write_run(tmp_path / "interrupted", requests, steps, spec=spec, status="interrupted", reason="Ctrl-C")
    assert finished_run(tmp_path / "interrupted", spec) is None
    damaged = write_run(tmp_path / "damaged", requests, steps, spec=spec)
    (damaged / "run.json").write_text("{")
    with pytest.raises(UserError):
        load_run(damaged)
    assert finished_run(tmp_path / "damaged", spec) is None


def test_waves_follow_from_littles_law() -> None:
    loads = (1.0, 2.0, 4.0)
    tried = {0: Tried(((-1.0,),)), 1: Tried(((-0.5,),)), 2: Tried(((1.0,),))}
    search = Search(loads, 0, 2, tried)
    open_loop = [made(0.5, 0.05, arrival="poisson:rate=2.0", requests=40)]
    arm = Arm((open_loop[0].spec,), search, {1: open_loop})
    # Two requests a second that stay for two seconds are four in flight: ten times over.
    assert waves_at_capacity(arm) == pytest.approx(10)
    closed = [made(0.5, 0.05, arrival="closed:concurrency=2", requests=40)]
    assert waves_at_capacity(Arm((closed[0].spec,), search, {1: closed})) == pytest.approx(20)
    assert waves_at_capacity(Arm((closed[0].spec,), Search(loads, 0, 2, {0: Tried(((1.0,),))}))) is None
