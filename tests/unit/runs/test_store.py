"""Run directories: names, writing, finding, reading, what is wrong with them."""

import dataclasses
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UserError
from harness.core.records import REQUESTS, STEPS
from harness.runs.run import find_partials, find_runs, load_run, run_path, slug
from harness.runs.writer import RunWriter, recover
from tests.support.runfactory import SPEC, batch_of, request, step, toy_run, write_run, write_toy

WHEN = datetime(2026, 11, 29, 22, 15, 1, 123456, tzinfo=UTC)


@given(st.text(max_size=300))
def test_a_slug_is_a_safe_path_segment(name: str) -> None:
    out = slug(name)
    assert re.fullmatch(r"[a-z0-9._=+-]{1,80}", out)
    assert not out.startswith(".")


def test_slugs_of_what_people_write() -> None:
    assert slug("eb:k=32") == "eb-k=32"
    assert slug("Qwen/Qwen3-8B") == "qwen-qwen3-8b"
    assert slug("..") == "none"
    assert slug("../../etc") == "etc"
    assert slug("") == "none"
    long = slug("x" * 200), slug("x" * 201)
    assert long[0] != long[1]


def test_the_path_names_gpu_model_workload_policy_and_the_run() -> None:
    spec = dataclasses.replace(SPEC, policy="eb:k=32", repeat=2)
    path = run_path(Path("runs"), spec, WHEN)
    assert path.parts[:-1] == ("runs", "l40s", "qwen-qwen3-8b", "synthetic-mu_l=64-mu_o=16", "eb-k=32")
    assert path.name == f"20261129t221501.123456z-{spec.digest[:8]}-r2"


def test_a_finished_run_reads_back(tmp_path: Path) -> None:
    requests, steps = toy_run(80)
    path = write_run(tmp_path, requests, steps, provenance={"engine_version": "1"})
    assert sorted(file.name for file in path.iterdir()) == [
        "requests.parquet",
        "run.json",
        "steps.parquet",
        "summary.json",
    ]
    run = load_run(path)
    assert (run.kind, run.status, run.level) == ("simulated", "complete", "VALID")
    assert run.spec == dataclasses.replace(SPEC, requests=80)
    assert run.manifest["digest"] == run.spec.digest
    assert datetime.fromisoformat(run.manifest["finished_utc"]) >= datetime.fromisoformat(run.manifest["started_utc"])
    assert run.requests().schema.equals(REQUESTS)
    assert run.requests().column("row").to_pylist() == sorted(one["row"] for one in requests)
    read = run.steps()
    assert read is not None
    assert read.schema.equals(STEPS)
    assert read.column("phase").to_pylist() == [one["phase"] for one in steps]
    assert run.manifest["counts"]["requests"] == 80
    assert run.manifest["counts"]["mixed_steps"] == sum(one["phase"] == "mixed" for one in steps)
    assert find_runs(tmp_path) == [path]
    assert find_partials(tmp_path) == []


def test_a_search_gives_up_where_there_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runs.run.MOST_WITHOUT", 20)
    path = write_toy(tmp_path / "m", n=30)
    for name in ("a", "b", "z"):
        for i in range(8):
            (tmp_path / f"{name}/{i}").mkdir(parents=True)
    with pytest.raises(UserError, match=r"given up after 20 directories in a row without a run: name the one"):
        find_runs(tmp_path)
    # What counts is how many there are in a row, not in all.
    (tmp_path / "b").rename(tmp_path / "y")
    assert find_runs(tmp_path) == [path]


def test_many_small_batches_make_the_same_tables(tmp_path: Path) -> None:
    requests, steps = toy_run(50)
    at_once = write_run(tmp_path / "a", requests, steps)
    writer = RunWriter.create(
        tmp_path / "b", dataclasses.replace(SPEC, requests=50), kind="simulated", provenance={}, started=WHEN
    )
    for row in requests:
        writer.add_requests(batch_of(REQUESTS, [row]))
    for row in steps:
        writer.add_steps(batch_of(STEPS, [row]))
    piecemeal = writer.finish()
    assert load_run(piecemeal).requests().equals(load_run(at_once).requests())
    assert (piecemeal / "summary.json").read_bytes() == (at_once / "summary.json").read_bytes()


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    requests, steps = toy_run(20)
    path = write_run(tmp_path, requests, steps)
    before = (path / "run.json").read_bytes()
    with pytest.raises(UserError, match="never overwritten"):
        write_run(tmp_path, requests, steps)
    assert (path / "run.json").read_bytes() == before
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={}, started=WHEN)
    with pytest.raises(UserError, match="exists"):
        RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={}, started=WHEN)
    writer.close()


def test_a_place_that_cannot_be_written_to_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--out"):
        RunWriter.create(tmp_path / "file", SPEC, kind="simulated", provenance={})


def test_secrets_do_not_reach_the_manifest(tmp_path: Path) -> None:
    provenance = {"command": ["bench", "run", "--url", "http://me:hunter2@host/v1?key=abc"], "api_key": "hunter2"}
    path = write_run(tmp_path, [request(0)], provenance=provenance)
    text = (path / "run.json").read_text()
    assert "hunter2" not in text
    assert "abc" not in text


def test_an_interrupted_run_is_readable_and_invalid(tmp_path: Path) -> None:
    path = write_run(tmp_path, [request(0)], status="interrupted", reason="Ctrl-C")
    run = load_run(path)
    assert (run.status, run.level) == ("interrupted", "INVALID")
    assert run.manifest["verdict"]["reasons"][0] == "INVALID: the run is interrupted: Ctrl-C"


def test_a_run_without_a_single_request_is_written_too(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, [], status="failed", reason="the engine did not start"))
    assert run.manifest["counts"]["requests"] == 0
    assert run.summary["window"] is None
    assert run.steps() is None


def test_recovering_a_finished_run_makes_its_summary_again(tmp_path: Path) -> None:
    path = write_toy(tmp_path)
    assert recover(path) == (path, False)
    good = (path / "summary.json").read_bytes()
    (path / "summary.json").unlink()
    assert recover(path) == (path, True)
    assert (path / "summary.json").read_bytes() == good


def test_loading_says_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    path = write_toy(tmp_path / "out", n=30)
    with pytest.raises(UserError, match="name one run, such as"):
        load_run(tmp_path / "out")
    with pytest.raises(UserError, match="no run directory"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no such directory"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no run directory"):
        recover(tmp_path)

    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(manifest | {"schema": 99}))
    with pytest.raises(UserError, match=r"schema 99.*upgrade"):
        load_run(path)
    (path / "run.json").write_text(json.dumps(manifest | {"spec": {"gpu": "x", "colour": 1}}))
    with pytest.raises(UserError, match="not a run's manifest"):
        load_run(path)
    (path / "run.json").write_text('{"schema": 1, ')
    with pytest.raises(UserError, match=r"run\.json: cannot be read"):
        load_run(path)
    (path / "run.json").write_text(json.dumps(manifest))

    (path / "summary.json").write_text("")
    with pytest.raises(UserError, match="bench recover"):
        load_run(path)
    recover_after_damage = path / "summary.json"
    recover_after_damage.unlink()
    table = (path / "requests.parquet").read_bytes()
    (path / "requests.parquet").write_bytes(table[: len(table) // 2])
    with pytest.raises(UserError, match=r"requests\.parquet: damaged"):
        load_run(path).requests()
    (path / "requests.parquet").unlink()
    with pytest.raises(UserError, match=r"requests\.parquet: not there"):
        load_run(path).requests()


def test_a_reported_run_has_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "paper"
    path.mkdir()
    manifest = {"schema": 1, "spec": SPEC.to_dict(), "digest": SPEC.digest, "kind": "reported", "status": "complete"}
    (path / "run.json").write_text(json.dumps(manifest))
    (path / "summary.json").write_text(json.dumps({"schema": 1, "metrics": {}}))
    run = load_run(path)
    assert run.kind == "reported"
    with pytest.raises(UserError, match="not there"):
        run.requests()


def test_unknown_names_in_a_column_are_a_bug_of_ours(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    with pytest.raises(AssertionError, match="finish"):
        writer.add_requests(batch_of(REQUESTS, [request(0, finish="vanished")]))
    writer.add_steps(batch_of(STEPS, [step(0, 1, 1)]))
    writer.close()
