"""Claims of a hostile pull request that its own tables do not bear out: each is told."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.core.records import REQUESTS
from harness.measure.columns import Requests
from harness.pages.build import build
from harness.published.bounds import peak_in_flight
from harness.published.tables import RunTables
from harness.published.verify import difference_from_figures, missing_evidence
from harness.runs.run import load_run
from harness.runs.writer import recover
from tests.support.hostile_runs import edit, edit_spec, left_out, problem_lines, put_column
from tests.support.runfactory import SPEC, request, table_of, toy_run, write_run, write_toy


@pytest.mark.parametrize("kind", ["measured", "emulated", "reported"])
def test_a_kind_that_is_not_its_engines_is_told(run: Path, kind: str) -> None:
    edit(run / "run.json", lambda one: one.update(kind=kind))
    (found,) = problem_lines(run)
    assert ("a reported figure has none" if kind == "reported" else "a run of engine simulated is simulated") in found
    assert left_out(run)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"arrival": "closed:concurrency=7"}, "8 requests were in flight at once, closed:concurrency=7 allows 7"),
        ({"arrival": "closed:concurrency=x"}, "names what bench does not know"),
        ({"arrival": "now and then"}, "names what bench does not know"),
        ({"policy": "mycoolpolicy"}, "names what bench does not know (unknown policy 'mycoolpolicy'"),
        ({"policy": "eb:k=0"}, "names what bench does not know"),
        ({"token_budget": 200}, "tokens were computed in one step, the spec allows 200"),
        ({"requests": 4000}, "planned.requests is 60, the spec has 4,000"),
        ({"engine": "nosuch"}, "no engine of bench"),
    ],
)
def test_tables_that_do_not_keep_to_the_spec_are_told(run: Path, spec: dict[str, Any], told: str) -> None:
    run = edit_spec(run, **spec)
    assert any(told in one for one in problem_lines(run)), problem_lines(run)
    assert left_out(run)


def test_more_slots_in_use_than_there_are_is_told(run: Path) -> None:
    put_column(run, "steps", "running", lambda old: [9] * len(old))
    assert problem_lines(run) == []
    assert "9 requests held a slot in one step, the spec allows 8" in problem_lines(edit_spec(run, slots=8))[0]


def test_the_peak_counts_what_overlaps_and_ended() -> None:
    rows = [request(0, at=0), request(1, at=2), request(2, at=1), request(3, at=0, done_s=None)]
    assert peak_in_flight(Requests.of(table_of(REQUESTS, rows))) == 2


def measured(results: Path, **more: Any) -> Path:
    requests, steps = toy_run(60)
    spec = dataclasses.replace(SPEC, policy="v1", engine="vllm", **more)
    told = {"client": {"cpu_share": 0.1, "wait_share": 0.0}, "machine": {"elsewhere": 0.0}, "engine_steps": {"v": 1}}
    run = write_run(results, requests, steps, spec=spec, observed=told)
    (run / "engine.log").write_text("started\n")
    recover(run)
    return run


def test_a_measured_run_without_the_evidence_of_its_verdict_is_told(tmp_path: Path) -> None:
    run = measured(tmp_path / "results")
    assert problem_lines(run) == []
    edit(run / "run.json", lambda one: [one.pop(name) for name in ("client", "machine", "engine_steps")])
    (run / "engine.log").unlink()
    put_none = pq.read_table(run / "steps.parquet").slice(0, 0)
    pq.write_table(put_none, run / "steps.parquet")
    recover(run)
    (found,) = problem_lines(run)
    assert "lacks client.cpu_share, client.wait_share, machine.elsewhere, engine.log, engine_steps, steps: " in found
    # vLLM's own scheduler tells no steps; a build shows older runs.
    stock = measured(tmp_path / "stock")
    stock = edit_spec(stock, policy="stock")
    edit(stock / "run.json", lambda one: one.pop("engine_steps"))
    assert missing_evidence(load_run(stock), RunTables.of(load_run(stock))) == []
    assert build(tmp_path / "results", tmp_path / "site").problems == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: one["metrics"].update(ttft_s={}), "summary.metrics.ttft_s lacks mean"),
        (lambda one: one["metrics"]["tpot_s"].pop("p99"), "summary.metrics.tpot_s lacks p99"),
        (lambda one: one["metrics"]["output_throughput"].pop("low"), "output_throughput lacks low"),
        (lambda one: one.pop("window"), "summary lacks window"),
    ],
)
def test_what_was_taken_out_of_a_summary_is_told(
    run: Path, change: Callable[[dict[str, Any]], object], told: str
) -> None:
    edit(run / "summary.json", change)
    assert told in problem_lines(run)[0]
    # A build shows what an older bench wrote.
    assert build(run.parents[4], run.parents[4].parent / "site").problems == 0


def test_a_stream_under_another_seed_is_no_repeat(run: Path) -> None:
    results = run.parents[4]
    other = write_toy(results, policy="v1", n=60, seed=1, repeat=1)
    assert problem_lines(run) == []
    for name in ("requests", "steps"):
        # Written in another way: what it tells counts.
        pq.write_table(pq.read_table(run / f"{name}.parquet"), other / f"{name}.parquet", compression="gzip")
    recover(other)
    # Both started at once: the first is the first by its path, which ends in a digest.
    first = min(run, other)
    told = f"has another seed and the same requests to the nanosecond as {first.relative_to(results)}: "
    assert [told in one for one in problem_lines(run)] == [True]
    # Whoever is asked about is told of.
    (found,) = problem_lines(run, run)
    assert found.startswith(str(run.relative_to(results)))


def test_a_spec_and_seed_are_published_once(run: Path) -> None:
    results = run.parents[4]
    requests, steps = toy_run(60, 7)
    spec = dataclasses.replace(SPEC, policy="v1")
    write_run(results, requests, steps, spec=spec, started=datetime(2026, 11, 30, 1, tzinfo=UTC))
    (found,) = problem_lines(run)
    assert f"has the spec and seed of {run.relative_to(results)}: one run of a spec and seed can be published" in found
    assert build(results, results.parent / "site").problems == 0


def test_a_reported_summary_is_what_its_provenance_says_was_read(run: Path) -> None:
    spec = dataclasses.replace(SPEC, policy="v1", gpu="h100-sxm")
    path = run.parents[4] / "published/h100-sxm/qwen-qwen3-8b" / run.parents[1].name / "v1/table-4"
    path.mkdir(parents=True)
    figures = {"output_throughput": {"value": 10}, "ttft_s.mean": {"value": 0.5}, "cost": {"value": 3}}
    manifest = {"schema": 1, "spec": spec.to_dict(), "digest": spec.digest, "kind": "reported", "status": "complete"}
    manifest["provenance"] = {"figures": figures}
    (path / "run.json").write_text(json.dumps(manifest))
    metrics = {"output_throughput": {"value": 10.0, "unit": "tok/s"}, "ttft_s": {"mean": 0.5, "unit": "s"}}
    (path / "summary.json").write_text(json.dumps({"schema": 1, "metrics": metrics}))
    assert problem_lines(run) == []
    edit(path / "summary.json", lambda one: one["metrics"]["ttft_s"].update(mean=0.05))
    assert "summary.metrics.ttft_s.mean is 0.05, provenance.figures says 0.5" in problem_lines(run)[0]
    edit(path / "run.json", lambda one: one["provenance"].pop("figures"))
    assert difference_from_figures(load_run(path)) is None
