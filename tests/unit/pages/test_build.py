"""Building the site: the same bytes whatever happened before, and nothing of what cannot be trusted."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.pages import parallel
from harness.pages.build import MARK, build
from harness.pages.numbers import change, number, seconds
from harness.pages.render import Writer
from harness.published.cache import JsonCache
from harness.published.corpus import LARGEST_JSON, collect_corpus
from tests.support.runfactory import SPEC, toy_run, write_run, write_toy


def write_some(results: Path) -> list[Path]:
    return [write_toy(results, policy=policy, speed=speed, n=60) for policy, speed in (("v1", 1.0), ("eb", 1.2))]


def contents(site: Path) -> dict[str, bytes]:
    return {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}


def test_builds_are_the_same_bytes_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_some(tmp_path / "here/results")
    first = build(tmp_path / "here/results", tmp_path / "one")
    assert (first.runs, first.problems, first.cache_error) == (2, 0, None)
    # Copied in another order, with other times, from another directory, in which it is named relatively.
    runs = sorted((tmp_path / "here/results").rglob("run.json"), reverse=True)
    for run in runs:
        shutil.copytree(run.parent, tmp_path / "there/results" / run.parent.relative_to(tmp_path / "here/results"))
        os.utime(run, (1, 1))
    monkeypatch.chdir(tmp_path / "there")
    build(Path("results"), Path("two"))
    assert contents(tmp_path / "one") == contents(Path("two"))
    again = build(Path("results"), Path("two"))
    assert again.written == 0
    # A cache that is cut, one that is rubbish, and none.
    for i, path in enumerate(sorted(Path("two.cache").rglob("*.json"))):
        path.write_bytes(path.read_bytes()[: 20 * (i % 2)])
    assert build(Path("results"), Path("two")).written == 0
    shutil.rmtree("two.cache")
    assert build(Path("results"), Path("two")).written == 0


def test_a_cache_that_cannot_be_written_is_said_and_does_no_harm(tmp_path: Path) -> None:
    write_some(tmp_path / "results")
    (tmp_path / "cache").write_text("no directory")
    built = build(tmp_path / "results", tmp_path / "one", tmp_path / "cache")
    assert built.cache_error is not None
    assert str(tmp_path / "cache") in built.cache_error
    build(tmp_path / "results", tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_what_no_run_stands_behind_any_more_goes(tmp_path: Path) -> None:
    first, _ = write_some(tmp_path / "results")
    build(tmp_path / "results", tmp_path / "site")
    (tmp_path / "site/half.html.part").write_text("of a build that was killed")
    shutil.rmtree(first)
    build(tmp_path / "results", tmp_path / "site")
    build(tmp_path / "results", tmp_path / "fresh")
    assert contents(tmp_path / "site") == contents(tmp_path / "fresh")


def test_a_build_that_was_killed_can_be_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_some(tmp_path / "results")
    build(tmp_path / "results", tmp_path / "fresh")
    written = 0

    def killed(writer: Writer, name: str, data: bytes, file: Callable[..., None] = Writer.file) -> None:
        nonlocal written
        written += 1
        if written > 12:
            raise KeyboardInterrupt
        file(writer, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "file", killed)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "results", tmp_path / "site")
    assert not (tmp_path / "site/problems.html").exists()
    build(tmp_path / "results", tmp_path / "site")
    assert contents(tmp_path / "site") == contents(tmp_path / "fresh")


@pytest.mark.parametrize(
    ("results", "out", "cache", "match"),
    [
        ("results", "results/site", None, "--out .*: lies in --results"),
        ("results", "results", None, "lies in"),
        ("site/results", "site", None, "--results .*: lies in --out"),
        ("results", "site", "results/cache", "--cache .*: lies in --results"),
        ("results", "site", "site/cache", "--cache .*: lies in --out"),
        ("results", "full", None, "no site of ours"),
        ("results", "full/file", None, "not a directory"),
        ("none", "site", None, "no such directory"),
    ],
)
def test_places_that_would_be_harmed_are_refused(
    tmp_path: Path, results: str, out: str, cache: str | None, match: str
) -> None:
    for name in ("results", "site/results", "full"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "full/file").write_text("mine")
    (tmp_path / "site" / MARK).touch()
    with pytest.raises(UserError, match=match) as error:
        build(tmp_path / results, tmp_path / out, tmp_path / cache if cache else None)
    assert "\n" not in str(error.value)
    assert (tmp_path / "full/file").read_text() == "mine"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def _throughput(summary: dict[str, Any]) -> None:
    summary["metrics"]["output_throughput"]["value"] *= 1.01


def spoil(run: Path, how: str) -> None:
    if how == "json":
        (run / "run.json").write_text("{")
    elif how == "table":
        (run / "requests.parquet").write_bytes(b"PAR1")
    elif how == "digest":
        edit(run / "run.json", lambda one: one["spec"].update(gpu="h100-sxm"))
    elif how == "summary":
        edit(run / "summary.json", _throughput)
    elif how == "verdict":
        edit(run / "run.json", lambda one: one["verdict"].update(level="INVALID"))
    elif how == "check":
        edit(run / "run.json", lambda one: one["verdict"]["checks"].append({"name": "mine"}))
    elif how == "link":
        (run / "steps.parquet").rename(run.parents[4] / "steps.parquet")
        (run / "steps.parquet").symlink_to(run.parents[4] / "steps.parquet")
    elif how == "huge":
        (run / "summary.json").write_text(" " * (LARGEST_JSON + 1))
    elif how == "pipe":
        (run / "engine.log").unlink(missing_ok=True)
        os.mkfifo(run / "engine.log")
    else:
        assert how == "unfinished"
        run.rename(f"{run}.partial")


SPOILT = {
    "json": "cannot be read",
    "table": "damaged",
    "digest": "edited",
    "summary": "output_throughput.value is .* the tables give",
    "verdict": "verdict.level is INVALID, the tables give",
    "check": "not whole",
    "link": "no plain file",
    "huge": "MiB",
    "pipe": "no plain file",
    "unfinished": "did not finish",
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_run_that_cannot_be_trusted_is_named_and_left_out(tmp_path: Path, how: str) -> None:
    bad, _ = write_some(tmp_path / "results")
    spoil(bad, how)
    corpus = collect_corpus(tmp_path / "results", JsonCache(tmp_path / "kept"))
    assert [entry.run.spec.policy for entry in corpus.runs] == ["eb"]
    (problem,) = corpus.problems
    assert "/v1/" in problem.where
    assert str(tmp_path) not in problem.why
    assert re.search(SPOILT[how], problem.why)


def test_links_that_leave_results_are_named_and_not_followed(tmp_path: Path) -> None:
    write_some(tmp_path / "elsewhere")
    (tmp_path / "results").mkdir()
    (tmp_path / "results/linked").symlink_to(tmp_path / "elsewhere")
    corpus = collect_corpus(tmp_path / "results", JsonCache(tmp_path / "kept"))
    assert corpus.runs == ()
    assert [(one.where, "link" in one.why) for one in corpus.problems] == [("linked", True)]


def test_a_run_that_lies_there_twice_is_shown_once(tmp_path: Path) -> None:
    run, _ = write_some(tmp_path / "results")
    shutil.copytree(run, tmp_path / "results/again" / run.name)
    corpus = collect_corpus(tmp_path / "results", JsonCache(tmp_path / "kept"))
    assert len(corpus.runs) == 2
    assert [one.why.partition(" again/")[0] for one in corpus.problems] == ["the same run as"]


def test_processes_keep_what_one_alone_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu in ("l40s", "h100-sxm"):
        requests, steps = toy_run(60)
        for policy in ("v1", "eb"):
            write_run(tmp_path / "results", requests, steps, spec=dataclasses.replace(SPEC, policy=policy, gpu=gpu))
    monkeypatch.setattr(parallel, "WORTHWHILE", 1)
    found = {}
    for jobs in (1, 2):
        cache = JsonCache(tmp_path / f"kept-{jobs}")
        with parallel.Workers(cache, jobs) as workers:
            collect_corpus(tmp_path / "results", cache, workers.compute)
        found[jobs] = {path.name: path.read_bytes() for path in cache.root.rglob("*.json")}
    assert found[1] == found[2]
    assert len(found[1]) == 6


def test_the_keep_gives_again_what_was_made_and_forgets_what_nobody_asked_for(tmp_path: Path) -> None:
    cache = JsonCache(tmp_path)
    assert cache.get_or_make("aa", lambda: {"x": (1, 2)}) == {"x": [1, 2]}
    cache.put("bb", 1)
    later = JsonCache(tmp_path)
    assert later.get_or_make("aa", lambda: pytest.fail("made again")) == {"x": [1, 2]}
    (tmp_path / "code-0/aa").mkdir(parents=True)
    later.sweep()
    assert JsonCache(tmp_path).look_up("bb") == (False, None)
    assert JsonCache(tmp_path).look_up("aa")[0]
    assert not (tmp_path / "code-0").exists()


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.012346, "0.01235"), (1234.5, "1,234"), (1e9, "1,000,000,000"), (0, "0")]
)
def test_numbers_are_written_one_way(value: float | None, text: str) -> None:
    assert number(value) == text


def test_times_and_changes_carry_their_units() -> None:
    assert [seconds(one) for one in (None, 0.0123, 12.34)] == ["–", "12.3 ms", "12.3 s"]
    assert [change(one) for one in (None, 0.9, 1.123, 20.0)] == ["–", "-10.0 %", "+12.3 %", "×20"]
    assert [change(one) for one in (1.0, 1 - 4e-7, 1.0001)] == ["0.0 %", "0.0 %", "+0.01 %"]
