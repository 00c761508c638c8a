"""Files of a hostile pull request: a line that names the run, never a fault, and a build that goes on."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.pages.build import build
from harness.published import corpus
from harness.published.cache import JsonCache
from harness.published.check import check
from harness.published.corpus import Problem, printable
from harness.runs.run import load_run
from tests.support.hostile_runs import edit, edit_spec, left_out, problem_lines, put_column


@pytest.mark.parametrize("column", ["t_s", "duration_s"])
@pytest.mark.parametrize("value", [None, -1.0, -8e9, float("nan"), float("inf")])
def test_a_step_without_a_time_is_refused_and_stops_no_build(run: Path, column: str, value: float | None) -> None:
    put_column(run, "steps", column, lambda old: [value] * len(old))
    (found,) = problem_lines(run)
    assert f"steps.parquet: damaged (its column {column} holds a time" in found
    assert left_out(run)


def test_any_fault_of_one_runs_files_is_a_line_that_names_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("first line\nsecond")

    monkeypatch.setattr("harness.published.check.detail_of", broken)
    monkeypatch.setattr("harness.published.corpus.examine", broken)
    told = f"{run.relative_to(run.parents[4])}: cannot be read: ValueError first line"
    assert problem_lines(run) == [told]
    found = corpus.collect_corpus(run.parents[4], JsonCache(Path(os.devnull)))
    assert [f"{one.where}: {one.why}" for one in found.problems] == [told]


@pytest.mark.parametrize(
    "started",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-11-29T22:15:01", "2026-11-30T00:15:01+02:00"],
)
def test_a_start_that_is_no_time_in_utc_is_told(run: Path, started: str) -> None:
    edit(run / "run.json", lambda one: one.update(started_utc=started))
    (found,) = problem_lines(run)
    assert "started_utc is no" in found
    assert left_out(run)


def test_a_start_in_the_future_is_told_by_check_alone(run: Path) -> None:
    results = run.parents[4]
    started = load_run(run).started
    assert check(results, (), started - timedelta(hours=23)).problems == ()
    (found,) = check(results, (), started - timedelta(hours=25)).problems
    assert "in the future" in found.why
    assert build(results, results.parent / "site").problems == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prefix_cache", {"declared": 1e308, "observed": -1e308}),
        ("client", {"cpu_share": -5}),
        ("client", {"wait_share": -0.1}),
        ("machine", {"elsewhere": 1e308}),
    ],
)
def test_a_share_below_0_or_beyond_all_bounds_is_refused(run: Path, key: str, value: dict[str, float]) -> None:
    edit(run / "run.json", lambda one: one.update({key: value}))
    assert "it must be a share, 0 or more" in problem_lines(run)[0]


@pytest.mark.parametrize("limit", [1e308, -1e308])
def test_a_limit_beyond_all_times_is_a_limit(run: Path, limit: float) -> None:
    assert problem_lines(edit_spec(run, slo={"ttft_s": limit})) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a\nb\x1b[31m", r"a\x0ab\x1b[31m"),
        (b"a\xffb", r"a\xffb"),
        ("lab\u202ex".encode(), r"lab\u202ex"),
    ],
)
def test_a_name_that_cannot_be_shown_is_shown_escaped(run: Path, name: bytes, shown: str) -> None:
    results = run.parents[4]
    run.rename(os.fsdecode(os.path.join(os.fsencode(run.parent), name)))
    place = f"{run.parent.relative_to(results)}/{shown}"
    assert problem_lines(run) == [f"{place}: a name that cannot be shown: rename it"]
    built = build(results, results.parent / "site")
    assert (built.runs, built.problems) == (0, 1)
    assert shown in (results.parent / "site/problems.html").read_text()
    (results / os.fsdecode(name)).write_text("x")
    assert any(one.startswith(f"{shown}: ") for one in problem_lines(run))


def test_no_line_is_a_command_to_who_reads_it() -> None:
    assert printable("::error file=x::y") == r"\x3a:error file=x::y"
    assert printable("a ##[error]b") == r"a #\x23[error]b"
    assert Problem("a\n::error::b", "\U000e0001").why == r"\U000e0001"
    assert printable("plain/ä=1:b") == "plain/ä=1:b"
