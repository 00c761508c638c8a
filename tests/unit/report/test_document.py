"""The JSON document's keys, and tables that fit a terminal."""

import dataclasses
import json
from pathlib import Path

from harness.report.comparison import compare
from harness.report.document import run_document, runs_document
from harness.report.tables import compare_table, list_lines, run_table, show_table
from harness.runs.run import load_run
from tests.support.console import rendered
from tests.support.runfactory import SPEC, toy_run, write_run, write_toy

TWIN = {"trace": {"kind": "twin", "name": "longbench"}}


def test_the_document_has_the_contracts_keys(tmp_path: Path) -> None:
    path = write_toy(tmp_path)
    document = json.loads(json.dumps(run_document(load_run(path)), allow_nan=False))
    contract = {"dir", "digest", "gpu", "model", "workload", "policy", "engine", "kind", "status", "verdict"}
    assert contract | {"counts", "metrics"} <= document.keys()
    assert document["dir"] == str(path)
    assert document["verdict"] == {"level": "VALID", "reasons": []}
    tokens, engine = ["output_tokens", "prompt_tokens"], ["steps", "mixed_steps", "preemptions"]
    assert list(document["counts"]) == ["requests", "completed", "failed", *tokens, *engine]
    assert document["counts"]["completed"] == 200
    assert {"value", "unit", "low", "high"} == document["metrics"]["output_throughput"].keys()
    assert {"mean", "p50", "p90", "p95", "p99", "max", "count", "unit"} <= document["metrics"]["ttft_s"].keys()
    assert runs_document([load_run(path)]) == {"runs": [run_document(load_run(path))]}


def test_tables_fit_80_columns_and_name_the_kind(tmp_path: Path) -> None:
    requests, steps = toy_run(200)
    spec = dataclasses.replace(SPEC, policy="ebplus", gpu="h200")
    a = write_toy(tmp_path)
    b = write_run(tmp_path, requests, steps, spec=spec, provenance=TWIN, degraded=("mixed-step cost is assumed",))
    runs = [load_run(a), load_run(b)]
    comparison = compare([a], [b], frozenset({"gpu"}))
    for table in (show_table(runs[1]), compare_table(comparison), run_table(runs)):
        text = rendered(table)
        assert "simulated" in text
        assert "…" not in text.replace(" … ", "")
        assert max(map(len, text.splitlines())) <= 80
    for table in (show_table(runs[1]), compare_table(comparison), run_table(runs)):
        assert "twin" in rendered(table)
    shown = rendered(show_table(runs[1]))
    assert "DEGRADED: mixed-step cost is assumed" in shown
    assert "output_throughput " in shown
    assert "tok/s" in shown
    compared = rendered(compare_table(comparison))
    assert "gpu: l40s | h200" in compared
    assert "no difference shown" in compared


def test_markup_in_names_is_not_interpreted(tmp_path: Path) -> None:
    requests, steps = toy_run(20)
    path = write_run(tmp_path, requests, steps, spec=dataclasses.replace(SPEC, workload="file:a[red]b[/red].jsonl"))
    assert "[red]" in rendered(show_table(load_run(path)), 200)


def test_what_is_not_comparable_says_why(tmp_path: Path) -> None:
    requests, steps = toy_run(50)
    a = write_run(tmp_path, requests, steps)
    spec = dataclasses.replace(SPEC, policy="b")
    b = write_run(tmp_path, requests, steps, spec=spec, status="interrupted", reason="Ctrl-C")
    text = rendered(compare_table(compare([a], [b])))
    assert "not compared: b is INVALID: the run is interrupted: Ctrl-C" in text


def test_a_listed_run_is_one_line_that_ends_in_its_whole_path(tmp_path: Path) -> None:
    path = write_toy(tmp_path)
    (line,) = list_lines([load_run(path)])
    assert line.startswith("VALID")
    assert "simulated" in line
    assert line.endswith(str(path))
