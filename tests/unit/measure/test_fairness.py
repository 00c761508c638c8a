"""Fairness in a run: golden schedules, what is absent and why, α, the verdict, and runs of before."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.records import STEPS
from harness.measure.fairness import alpha_of, estimates, fairness
from harness.measure.metrics import FAIRNESS, METRICS, PROFITS
from harness.measure.profit import TokenStep, profit_tokenstep
from harness.report.comparison import compare, compare_runs
from harness.report.document import at_alpha, run_document
from harness.report.tables import compare_table, fairness_table, show_table
from harness.runs.run import load_run
from harness.runs.writer import recover
from tests.support.console import rendered
from tests.support.places import SHARED
from tests.support.runfactory import SPEC, table_of, toy_run, write_run
from tests.support.schedules import Schedule

GOLDEN = SHARED / "reference" / "isjl_golden.json"


def schedule(seed: int = 0, n: int = 60) -> Schedule:
    rng = np.random.default_rng(seed)
    starts, lengths = rng.integers(0, 400, n).tolist(), rng.integers(1, 120, n).tolist()
    return Schedule([0, *starts], [600, *lengths], rng.integers(1, 500, n + 1).tolist(), [10**7] * 700)


def run_of(tmp_path: Path, one: Schedule, **spec: Any) -> Path:
    # An open loop needs no steady window.
    given = dataclasses.replace(SPEC, arrival="poisson:rate=9.0")
    return write_run(tmp_path, one.requests(), one.steps(), spec=dataclasses.replace(given, **spec))


def metrics_of(path: Path) -> dict[str, Any]:
    return dict(load_run(path).summary["metrics"])


def test_golden_schedules() -> None:
    if not GOLDEN.is_file():
        pytest.skip("needs ../shared/reference/isjl_golden.json, which is not here")
    rows = json.loads(GOLDEN.read_text())
    assert len(rows) >= 40
    for row in rows:
        n = len(row["o"])
        one = Schedule(row["start"], row["o"], [0] * n, [1] * row["T"])
        state = fairness(table_of(STEPS, one.steps()))
        assert state is not None
        assert (state.steps, state.externality, state.held, state.charged) == (row["T"], row["E"], row["Q"], row["K"])
        assert state.gap_max == row["gap_max"]
        assert state.gap_mean() == pytest.approx(row["gap_mean"], abs=1e-6)
        assert state.violation_share(row["alpha"]) == pytest.approx(row["viol_frac"], abs=1e-6)
        constants = TokenStep(row["rho0"], row["tau"], row["c"])
        assert profit_tokenstep(state, constants) == pytest.approx(row["Pi"], abs=1e-9)


def test_a_step_log_gives_every_metric_and_none_gives_none(tmp_path: Path) -> None:
    one = schedule()
    found = metrics_of(run_of(tmp_path / "a", one, alpha=50.0))
    assert FAIRNESS.keys() - {"gap_mean_steady"} <= found.keys(), "two waves leave no steady steps"
    assert not PROFITS.keys() & found.keys()
    assert found["makespan_steps"]["value"] == one.end
    assert found["externality"] == {"value": found["externality"]["value"], "unit": "tokens", "low": None, "high": None}
    assert type(found["externality"]["value"]) is int
    without = metrics_of(write_run(tmp_path / "b", one.requests(), spec=SPEC))
    assert not FAIRNESS.keys() & without.keys()
    # Steps that do not say who produced what are no zero either.
    requests, steps = toy_run(50)
    assert not FAIRNESS.keys() & metrics_of(write_run(tmp_path / "c", requests, steps)).keys()


def test_means_over_steps_have_an_interval_where_a_run_holds_many_stays() -> None:
    table = table_of(STEPS, schedule().steps())
    state = fairness(table)
    assert state is not None
    found = estimates(table, "", state, 50.0, overlap=0.02)
    for name in ("gap_mean", "violation_share", "excess_mean", "externality_per_token"):
        bounds = found[name].interval()
        assert bounds is not None
        assert bounds[0] < found[name].value < bounds[1]
    assert found["gap_max"].interval() is None
    assert found["externality"].interval() is None
    # A run that is little longer than a request's stay tells nothing of another draw.
    assert estimates(table, "", state, 50.0, overlap=0.5)["gap_mean"].interval() is None


def test_what_no_step_produces_may_be_null_and_what_one_does_may_not(tmp_path: Path) -> None:
    rows = schedule().steps()
    idle = {"t_s": 0.0, "duration_s": 0.1, "prefill_tokens": 7, "decode_requests": 0, "producing": 0}
    whole, with_idle = (fairness(table_of(STEPS, some)) for some in (rows, [idle, *rows]))
    assert whole is not None
    assert with_idle is not None
    assert (with_idle.steps, with_idle.working, with_idle.busy) == (whole.steps + 1, whole.working + 1, whole.busy)
    assert with_idle.gap_mean() == whole.gap_mean()
    rows[3] = rows[3] | {"generated_min": None}
    table = table_of(STEPS, rows)
    assert fairness(table) is None
    assert fairness(table, "_kv") is not None


def test_alpha_is_the_specs_or_the_policys(tmp_path: Path) -> None:
    for policy, alpha, expected in (
        ("v1", None, None),
        ("v1", 7.0, 7.0),
        ("isjl:alpha=100,plan=0.7", None, 100.0),
        ("isjl-best:beta=0,alpha=50", None, 50.0),
        ("isjl:alpha=100", 20.0, 20.0),
        ("isjl:alpha=many", None, None),
        ("isjl:alpha=nan", None, None),
        ("ebplus:alpha=3", None, None),
    ):
        assert alpha_of(dataclasses.replace(SPEC, policy=policy, alpha=alpha)) == expected
    path = run_of(tmp_path, schedule())
    assert "violation_share" not in metrics_of(path)
    before = (path / "summary.json").read_bytes()
    shown = run_document(at_alpha(load_run(path), 30.0))
    again = metrics_of(run_of(tmp_path / "again", schedule(), alpha=30.0))
    for name in ("violation_share", "excess_mean", "violation_share_kv", "excess_mean_time"):
        assert shown["metrics"][name] == again[name]
    assert shown["alpha"] == 30.0
    assert (path / "summary.json").read_bytes() == before


def test_an_alpha_of_kv_footprints_is_not_held_against_generated_tokens(tmp_path: Path) -> None:
    own = run_of(tmp_path / "a", schedule(), policy="isjl:alpha=100,footprint=kv")
    found = metrics_of(own)
    assert "violation_share_kv" in found
    assert not {"violation_share", "excess_mean", "violation_share_time"} & found.keys()
    assert "excess_mean_kv" not in metrics_of(run_of(tmp_path / "b", schedule(), policy="isjl:alpha=100"))
    share = f"{100 * found['violation_share_kv']['value']:.4g} % KV"
    table = fairness_table([load_run(own)])
    assert table is not None
    assert share in rendered(table)
    assert "violation_share" in rendered(show_table(load_run(own)))
    both = metrics_of(run_of(tmp_path / "c", schedule(), policy="isjl:alpha=100,footprint=kv", alpha=30.0))
    assert {"violation_share", "violation_share_kv"} <= both.keys()


def test_arms_are_held_against_one_alpha(tmp_path: Path) -> None:
    a = run_of(tmp_path / "a", schedule(), policy="fcfs")
    b = run_of(tmp_path / "b", schedule(), policy="isjl:alpha=40")
    c = run_of(tmp_path / "c", schedule(), policy="isjl:alpha=80")
    found = compare([a], [b])
    assert found.metrics["violation_share"].ratio == 1
    assert found.metrics["gap_mean"].word == "no difference shown"
    assert found.metrics["makespan_steps"].a == schedule().end
    two = compare([b], [c])
    assert "violation_share" not in two.metrics
    assert any("40, 80" in note for note in two.notes)
    assert METRICS["gap_mean"].better == "lower"
    kv = run_of(tmp_path / "kv", schedule(), policy="isjl:alpha=40,footprint=kv")
    assert not {"violation_share", "excess_mean_time"} & compare([a], [kv]).metrics.keys()
    asked = compare_runs([load_run(a)], [load_run(kv)], alpha=40.0)
    assert {"violation_share", "violation_share_kv"} <= asked.metrics.keys()


def test_tables_show_fairness_in_80_columns(tmp_path: Path) -> None:
    a = run_of(tmp_path / "a", schedule(), policy="fcfs", alpha=40.0)
    b = run_of(tmp_path / "b", schedule(1), policy="isjl:alpha=40,plan=0.7", alpha=40.0)
    runs = [load_run(a), load_run(b)]
    lines = fairness_table(runs)
    assert lines is not None
    for table in (show_table(runs[0]), lines, compare_table(compare([a], [b], frozenset({"trace"})))):
        text = rendered(table)
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text.replace(" … ", "")
        assert "gap" in text
    assert "> 40" in rendered(lines)
    assert "α = 40" in rendered(show_table(runs[0]))
    requests, steps = toy_run(50)
    assert fairness_table([load_run(write_run(tmp_path / "c", requests, steps))]) is None


def test_a_fairer_arm_is_better(tmp_path: Path) -> None:
    def repeats(policy: str, spread: int) -> list[Path]:
        paths = []
        for seed in range(3):
            rng = np.random.default_rng(seed)
            lengths = rng.integers(20, 60, 80).tolist()
            starts = (np.arange(80) // 8 * 60 + rng.integers(0, spread, 80)).tolist()
            one = Schedule(starts, lengths, [5] * 80, [10**7] * 1000)
            spec = {"policy": policy, "seed": seed, "repeat": seed}
            paths.append(run_of(tmp_path / f"{policy}{seed}", one, **spec))
        return paths

    found = compare(repeats("fcfs", 50), repeats("ljf", 5)).metrics
    assert found["gap_mean"].word == "better"
    assert found["externality_kv"].word in ("better", "no difference shown")
    assert compare(repeats("sjf", 5), repeats("lpt", 50)).metrics["gap_mean"].word == "worse"


def _check(path: Path, name: str) -> dict[str, Any]:
    checks = load_run(path).manifest["verdict"]["checks"]
    return next(dict(one) for one in checks if one["name"] == name)


def test_a_step_log_that_contradicts_itself_or_the_requests_is_invalid(tmp_path: Path) -> None:
    one = schedule()
    path = run_of(tmp_path / "whole", one)
    assert _check(path, "step_counts")["value"] == 0
    assert _check(path, "step_tokens")["value"] == 0
    steps = one.steps()
    steps[5] = steps[5] | {"generated_max": 1, "generated_min": 9}
    twisted = write_run(tmp_path / "twisted", one.requests(), steps)
    assert _check(twisted, "step_counts")["value"] == 1
    assert load_run(twisted).level == "INVALID"
    missing = write_run(tmp_path / "missing", one.requests()[1:], one.steps())
    assert _check(missing, "step_tokens")["level"] == "INVALID"
    requests, rows = toy_run(50)
    assert "does not say" in _check(write_run(tmp_path / "untold", requests, rows), "step_tokens")["why"]


def test_a_run_of_before_is_read_shown_and_made_again(tmp_path: Path) -> None:
    """A run.json whose spec has no alpha, and a summary without fairness."""
    path = run_of(tmp_path, schedule())
    manifest = json.loads((path / "run.json").read_text())
    del manifest["spec"]["alpha"]
    canonical = json.dumps(manifest["spec"], sort_keys=True, separators=(",", ":"))
    manifest["digest"] = hashlib.sha256(canonical.encode()).hexdigest()
    (path / "run.json").write_text(json.dumps(manifest))
    summary = json.loads((path / "summary.json").read_text())
    summary["metrics"] = {name: one for name, one in summary["metrics"].items() if name not in FAIRNESS}
    (path / "summary.json").write_text(json.dumps(summary))
    assert "gap_mean" not in run_document(load_run(path))["metrics"]
    final, changed = recover(path)
    assert changed
    assert "gap_mean" in metrics_of(final)
    assert load_run(final).spec.alpha is None
    assert recover(final) == (final, False)
