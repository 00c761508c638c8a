"""What is published in results/ passes the check that a contribution has to pass; of simulated runs a sample.

All of them are made again by `make soak`: it takes minutes.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from harness.runs.run import find_runs
from harness.runs.tables import DIGESTS
from tests.support.commands import Bench
from tests.support.places import ROOT

RESULTS = ROOT / "results"
SAMPLE = 6


def test_published_runs_may_be_published(bench: Bench, tmp_path: Path) -> None:
    for name in ("cpu", "cpu-tiny", "published"):
        shutil.copytree(RESULTS / name, tmp_path / "results" / name)
    # Whoever built a site has made the tables, which git does not keep.
    thin = [path for path in find_runs(RESULTS) if (path / DIGESTS).is_file()]
    # The longest take longest; which ones is settled by the seed.
    small = [path for path in thin if not {"h200", "gb200", "gb300"} & set(path.parts)]
    for path in random.Random(0).sample(small, SAMPLE):
        shutil.copytree(path, tmp_path / path.relative_to(ROOT), ignore=shutil.ignore_patterns("*.parquet"))
    checked = bench("site", "check", "--replay", "--results", "results")
    assert checked.code == 0, checked.err + checked.out
    assert f"{SAMPLE} of {SAMPLE} simulated ones run again, no problem" in checked.out


def test_no_table_of_a_simulated_run_is_kept() -> None:
    kept = {path.parent for path in RESULTS.rglob("requests.parquet") if not (path.parent / "tables.json").exists()}
    assert {path.relative_to(RESULTS).parts[0] for path in kept} == {"cpu", "cpu-tiny"}
