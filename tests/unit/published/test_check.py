"""`bench site check`: what a pull request may bring."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.core.errors import UserError
from harness.measure.measured import by_the_older_rule, measure
from harness.measure.summary import summary_of
from harness.published.check import check
from harness.runs.run import load_run
from tests.support.runfactory import SPEC, toy_run, write_run, write_toy


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "results", policy="v1", n=60)


def lines(run: Path, *paths: Path) -> list[str]:
    found = check(run.parents[4], paths)
    return [f"{one.where}: {one.why}" for one in found.problems]


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_runs_as_bench_wrote_them_pass_wherever_one_directory_above(run: Path) -> None:
    assert lines(run) == []
    results = run.parents[4]
    (results / "README.md").write_text("read me")
    (results / "my-lab").mkdir()
    run.parents[3].rename(results / "my-lab" / run.parents[3].name)
    found = check(results)
    assert (found.runs, found.problems) == (1, ())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: one["provenance"].update(command=["bench", "--api-key", "k", "hf_abcdefghijkl"]), "secret"),
        (lambda one: one["provenance"].update(api_key="abc"), "secret"),
        (lambda one: one["provenance"].update(url="http://me:word@host/"), "secret"),
        (lambda one: one["notes"].append("Authorization: Bearer abcdefgh"), "secret"),
        (lambda one: one["provenance"].update(command=["bench", "--out", "/home/me/runs"]), "put ~ in its place"),
        (lambda one: one["provenance"].update({"/Users/me": 1}), "put ~ in its place"),
        (lambda one: one["notes"].append("word " * 1000), "letters"),
        (lambda one: one["verdict"].update(level="INVALID"), "bench recover"),
        (lambda one: one["counts"].update(completed=59), "counts.completed is 59, the tables give 60"),
        (lambda one: one["verdict"]["checks"].pop(), "lacks same_engine"),
        (lambda one: one.update(started_utc="2026-01-01T00:00:00+00:00"), "move it to"),
        (lambda one: one.update(started_utc="yesterday"), "started_utc is no time"),
        (lambda one: one["spec"].update(slots=1), "edited"),
    ],
)
def test_an_edited_manifest_is_told(run: Path, change: Callable[[dict[str, Any]], object], told: str) -> None:
    edit(run / "run.json", change)
    found = lines(run)
    assert len(found) == 1, found
    assert told in found[0]
    assert str(run.parents[4]) not in found[0]


def test_a_summary_of_the_older_steady_window_is_held_against_that_window(run: Path) -> None:
    told = load_run(run)
    older = by_the_older_rule(measure(told.requests(), told.steps(), told.spec, closed_loop=True), told.spec)
    assert older.window is not None
    now = told.summary["window"]
    assert (older.window.start, older.window.end) != (now["start_s"] * 1e9, now["end_s"] * 1e9)
    (run / "summary.json").write_text(json.dumps(summary_of(older)))
    assert lines(run) == []
    edit(run / "summary.json", lambda one: one["metrics"]["output_throughput_steady"].update(value=1.0))
    assert "output_throughput_steady.value is 1.0" in lines(run)[0]


def test_a_summary_that_lacks_a_metric_of_today_is_told(run: Path) -> None:
    edit(run / "summary.json", lambda one: one["metrics"].pop("ttft_s"))
    assert "lacks ttft_s" in lines(run)[0]


@pytest.mark.parametrize(
    ("name", "told"), [("notes.txt", "no file of a run"), ("steps.log", "step table"), ("more/x", "a directory")]
)
def test_what_belongs_to_no_run_is_told(run: Path, name: str, told: str) -> None:
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text("x")
    assert any(told in one for one in lines(run))


def test_files_beside_runs_links_and_empty_directories_are_told(run: Path, tmp_path: Path) -> None:
    results = run.parents[4]
    (results / "l40s/run.sh").write_text("x")
    (results / "out").symlink_to(tmp_path)
    (results / "empty").mkdir()
    found = lines(run)
    assert [one.partition(":")[0] for one in found] == ["empty", "l40s/run.sh", "out"]
    assert lines(run, run) == []


def test_text_and_secrets_in_tables_and_logs_are_told(tmp_path: Path) -> None:
    requests, steps = toy_run(60)
    requests[3] |= {"id": "Write me a poem. " * 20}
    requests[4] |= {"error": "401 for Bearer abcdefghijkl", "finish": "error"}
    run = write_run(tmp_path / "results", requests, steps, spec=dataclasses.replace(SPEC, policy="v1"))
    (run / "engine.log").write_text("start\nReceived request a: prompt: 'Hello', params\nfrom /home/me/.venv/lib\n")
    found = "\n".join(lines(run))
    assert "requests.parquet: id holds a text of 340 letters" in found
    assert "requests.parquet: error may hold a secret" in found
    assert "engine.log: line 2 holds a prompt" in found
    assert "engine.log: line 3 tells a private path" in found


def test_what_a_tables_file_carries_besides_is_told(run: Path) -> None:
    path = run / "steps.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"note": "text"}), path)
    assert "carries 'note'" in lines(run)[0]


def test_the_same_run_elsewhere_is_told_of_what_is_asked(run: Path) -> None:
    results = run.parents[4]
    again = results / "other" / run.relative_to(results)
    shutil.copytree(run, again)
    assert ["the same run as" in one for one in lines(run)] == [True]
    assert lines(run, run) == []
    assert len(lines(run, again)) == 1


def test_a_reported_figure_has_no_tables_and_may_be_edited_by_hand(run: Path) -> None:
    spec = dataclasses.replace(SPEC, policy="v1", gpu="h100-sxm")
    path = run.parents[4] / "published/h100-sxm/qwen-qwen3-8b" / run.parents[1].name / "v1/table-4"
    path.mkdir(parents=True)
    manifest = {"schema": 1, "spec": spec.to_dict(), "digest": spec.digest, "kind": "reported", "status": "complete"}
    (path / "run.json").write_text(json.dumps(manifest))
    assert "nothing is reported" in lines(run, path)[0]
    summary = {"schema": 1, "metrics": {"output_throughput": {"value": 1.0, "unit": "tok/s"}}}
    (path / "summary.json").write_text(json.dumps(summary))
    assert lines(run) == []
    shutil.copy(run / "steps.parquet", path)
    assert "a reported figure has none" in lines(run)[0]


def test_paths_are_of_the_results(run: Path, tmp_path: Path) -> None:
    for path, match in ((tmp_path / "none", "not there"), (tmp_path, "not in")):
        with pytest.raises(UserError, match=match):
            check(run.parents[4], [path])


def test_each_of_several_paths_is_checked(tmp_path: Path) -> None:
    results = tmp_path / "results"
    sound, damaged = (write_toy(results, policy=policy, n=60) for policy in ("v1", "eb"))
    edit(damaged / "summary.json", lambda summary: summary["metrics"]["ttft_s"].update(mean=1e-3))
    for paths in ((sound, damaged), (damaged, sound)):
        assert [line.partition(":")[0] for line in lines(sound, *paths)] == [str(damaged.relative_to(results))]
    assert lines(sound, sound) == []
