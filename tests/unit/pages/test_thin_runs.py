"""A site of simulated runs that keep no tables: their figures give the same numbers, where repeats tell them."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from harness.pages.build import build
from harness.published.figures import figures_of
from harness.published.tables import RunTables
from harness.runs.run import find_runs, load_run
from harness.runs.thin import make_thin
from tests.support.runfactory import SPEC, toy_run, write_run


def write_arm(results: Path, policy: str, repeats: int) -> list[Path]:
    """Runs of the toy engine, whose steps say how far apart their requests are."""
    made = []
    for repeat in range(repeats):
        requests, steps = toy_run(60, 10 * len(policy) + repeat, stream_seed=repeat)
        told = {"producing": 2, "generated_sum": 50, "generated_min": 5}
        steps = [one | told | {"generated_max": 45 + 3 * len(policy) + at % 7} for at, one in enumerate(steps)]
        spec = dataclasses.replace(SPEC, policy=policy, seed=repeat, repeat=repeat)
        made.append(write_run(results, requests, steps, spec=spec))
    return made


def make_all_thin(results: Path) -> None:
    for path in find_runs(results):
        run = load_run(path)
        make_thin(path, figures_of(run, RunTables.of(run)))


def numbers(site: Path) -> dict[str, bytes]:
    found = [site / "leaderboard.json", *site.glob("boards/*.csv"), *site.glob("compare/*.js")]
    return {path.relative_to(site).as_posix(): path.read_bytes() for path in found}


def test_figures_give_every_number_that_tables_do(tmp_path: Path) -> None:
    for policy in ("v1", "eb", "isjl:alpha=40"):
        write_arm(tmp_path / "whole", policy, 3)
    shutil.copytree(tmp_path / "whole", tmp_path / "thin")
    make_all_thin(tmp_path / "thin")
    wanted: list[Path] = []
    assert build(tmp_path / "thin", tmp_path / "a", make_tables=wanted.extend).problems == 0
    assert wanted == []
    build(tmp_path / "whole", tmp_path / "b")
    assert b"violation_share" in (tmp_path / "a/leaderboard.csv").read_bytes()
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")
    page = next((tmp_path / "a/runs").glob("*/index.html")).read_text()
    assert "bench expand" in page


def test_of_an_arm_of_one_run_the_tables_are_asked_for(tmp_path: Path) -> None:
    write_arm(tmp_path / "results", "v1", 2)
    (alone,) = write_arm(tmp_path / "results", "eb", 1)
    (bare, _) = write_arm(tmp_path / "results", "v0", 2)
    make_all_thin(tmp_path / "results")
    (bare / "figures.json").unlink()
    wanted: list[Path] = []
    build(tmp_path / "results", tmp_path / "site", make_tables=wanted.extend)
    assert set(wanted) == {alone, bare}
