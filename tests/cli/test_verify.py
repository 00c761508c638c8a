"""`bench verify`: a run that was edited is named with the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Bench
from tests.support.runfactory import write_toy


def edit(path: Path, change: Callable[[Any], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "runs", policy="v1", n=60)


def test_a_run_as_it_was_written_is_what_its_tables_give(bench: Bench, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.iterdir()}
    result = bench("verify", "runs")
    assert result.code == 0, result
    assert "as its tables give it" in result.out
    assert {path: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("summary.json", lambda one: one["metrics"]["ttft_s"].update(p99=0.001), "summary.metrics.ttft_s.p99 is 0.001"),
        ("summary.json", lambda one: one["metrics"].pop("itl_s"), "summary.metrics lacks itl_s"),
        ("summary.json", lambda one: one["metrics"].update(mine={"value": 1, "unit": ""}), "summary.metrics.mine"),
        ("run.json", lambda one: one["verdict"].update(level="INVALID"), "verdict.level is INVALID"),
        ("run.json", lambda one: one["counts"].update(failed=3), "counts.failed is 3, the tables give 0"),
        ("run.json", lambda one: one["spec"].update(slots=7), "its spec does not match its digest"),
        ("run.json", lambda one: one.update(schema=99), "has schema 99"),
    ],
)
def test_an_edited_field_is_named(
    bench: Bench, run: Path, name: str, change: Callable[[Any], object], field: str
) -> None:
    edit(run / name, change)
    result = bench("verify", str(run))
    assert result.code == 1, result
    assert field in result.out
    assert "1 of 1 runs differ" in result.err
    assert "Traceback" not in result.err


def test_one_bad_run_does_not_hide_the_others(bench: Bench, run: Path, tmp_path: Path) -> None:
    other = write_toy(tmp_path / "runs", policy="eb", n=60)
    (other / "requests.parquet").write_bytes(b"PAR1")
    result = bench("verify", "runs")
    assert result.code == 1
    assert "1 of 2 runs differ" in result.err
    assert [line.endswith("as its tables give it") for line in result.out.splitlines()].count(True) == 1


def test_a_place_without_a_run_is_no_difference_but_a_mistake(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = bench("verify", "empty")
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
