"""Which finished runs stand in the place of a run, and why others do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import __version__
from harness.core.runspec import RunSpec
from harness.runs.provenance import commit
from harness.runs.run import Run, load_run
from harness.runs.thin import make_thin
from harness.session.finished import Finished, finished_runs, why_again
from harness.session.one_run import Prepared, prepare, run

SPEC = RunSpec(
    "l40s", "Qwen/Qwen3-8B", "v1", "synthetic:mu_l=32,mu_o=8", arrival="closed:concurrency=4", requests=20, slots=4
)


@pytest.fixture(autouse=True)
def without_git(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As bench is where it was installed, whatever is edited in this checkout."""
    commit.cache_clear()
    monkeypatch.setenv("PATH", "")
    yield
    commit.cache_clear()


@pytest.fixture
def prepared() -> Prepared:
    return prepare(SPEC)


def ran(prepared: Prepared, out: Path, **more: Any) -> Run:
    return run(prepared, out, (), lambda _: None, lambda: False, **more)


def edited(one: Run, **provenance: Any) -> Run:
    manifest = json.loads((one.path / "run.json").read_text())
    manifest["provenance"] |= provenance
    (one.path / "run.json").write_text(json.dumps(manifest))
    return load_run(one.path)


def finished(out: Path, specs: list[RunSpec]) -> Finished:
    return Finished(out, specs, prepare, named={}, alone=True)


def test_a_finished_run_is_taken_once_and_said(prepared: Prepared, tmp_path: Path) -> None:
    one = ran(prepared, tmp_path)
    other = replace(SPEC, seed=1, repeat=1)
    there = finished(tmp_path, [SPEC, other, SPEC])
    assert there.left([SPEC, other, SPEC]) == [other, SPEC]
    taken = there.take(SPEC)
    assert taken is not None
    assert taken.path == one.path
    assert (there.take(SPEC), there.take(other)) == (None, None)
    assert there.lines == [f"1 run is finished in {one.path}: read, not run again (--again runs them)"]


def test_of_several_the_latest_is_taken(prepared: Prepared, tmp_path: Path) -> None:
    runs = [ran(prepared, tmp_path) for _ in range(3)]
    assert [one.path for one in finished_runs(tmp_path, SPEC)] == [one.path for one in reversed(runs)]
    there = finished(tmp_path, [SPEC])
    taken = there.take(SPEC)
    assert taken is not None
    assert taken.path == runs[-1].path


def test_what_is_not_whole_is_no_finished_run(prepared: Prepared, tmp_path: Path) -> None:
    partial, failed, without, torn = (ran(prepared, tmp_path).path for _ in range(4))
    partial.rename(f"{partial}.partial")
    manifest = json.loads((failed / "run.json").read_text())
    (failed / "run.json").write_text(json.dumps(manifest | {"status": "failed", "reason": "its disk"}))
    (without / "summary.json").unlink()
    (torn / "run.json").write_text("{")
    assert list(finished_runs(tmp_path, SPEC)) == []
    assert list(finished_runs(tmp_path / "none", SPEC)) == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, None),
        ({"command": ["bench", "grid"], "host": {"cores": 96}, "python": "3.99"}, None),
        ({"harness": {"version": "0.0.1", "commit": None}}, "by another version of bench"),
        # As a server tells it, and as its package does.
        ({"engine_version": f"schedbench {__version__}+cpu"}, None),
        ({"engine_version": "schedbench 0.0.1"}, "with another engine version"),
        ({"trace_digest": "0" * 64}, "with another trace digest"),
        ({"cost_model": {"name": "linear"}}, "with another cost model"),
        ({"packages": {"numpy": "1.0"}}, "with other packages"),
        # Chosen with the results in view it would not be what was named before.
        ({"headline": ["ttft_s.p99"]}, "with another headline"),
    ],
)
def test_what_decides_a_run_must_be_the_same(
    prepared: Prepared, tmp_path: Path, changed: dict[str, Any], why: str | None
) -> None:
    one = edited(ran(prepared, tmp_path), **changed)
    assert why_again(one, prepared, {}, alone=True) == why
    lines = finished(tmp_path, [SPEC]).lines
    assert lines[0].endswith("read, not run again (--again runs them)" if why is None else f", but {why}: run again")


def test_a_headline_named_now_was_not_named_before(prepared: Prepared, tmp_path: Path) -> None:
    one = ran(prepared, tmp_path)
    assert why_again(one, prepared, {"headline": ["ttft_s.p99"]}, alone=True) == "with another headline"
    named = ran(prepared, tmp_path, named={"headline": ["ttft_s.p99"]})
    assert why_again(named, prepared, {"headline": ["ttft_s.p99"]}, alone=True) is None


def test_a_run_that_was_to_stay_alone_does_not_stand_for_one_held_against_others(
    prepared: Prepared, tmp_path: Path
) -> None:
    alone, beside = ran(prepared, tmp_path), ran(prepared, tmp_path, alone=False)
    assert why_again(alone, prepared, {}, alone=False) == "not held against the other cost models"
    assert why_again(beside, prepared, {}, alone=False) is None
    assert why_again(beside, prepared, {}, alone=True) is None


def test_a_server_that_bench_did_not_start_is_measured_again(prepared: Prepared, tmp_path: Path) -> None:
    there = replace(prepared, spec=replace(SPEC, engine="endpoint"))
    assert why_again(ran(prepared, tmp_path), there, {}, alone=True) == (
        "a server that bench did not start may be another today"
    )


def test_a_run_without_its_tables_runs_again(prepared: Prepared, tmp_path: Path) -> None:
    one = ran(prepared, tmp_path)
    make_thin(one.path, {})
    assert why_again(one, prepared, {}, alone=True) == "without tables"


def test_changes_that_no_commit_names_run_again(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f"#!/bin/sh\necho {'a' * 40}-dirty\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(git.parent))
    commit.cache_clear()
    assert why_again(ran(prepared, tmp_path), prepared, {}, alone=True) == "bench has changes that no commit names"
