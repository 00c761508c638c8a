"""What a hostile pull request brings: a line that names the run, never a fault, and a build that goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.pages.build import MARK, build
from tests.support.runfactory import write_toy


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "results", policy="v1", n=60)


def test_two_builds_into_one_directory_do_not_meet(run: Path, tmp_path: Path) -> None:
    import fcntl

    build(run.parents[4], tmp_path / "site")
    with (tmp_path / "site" / MARK).open("rb") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another build writes there"):
            build(run.parents[4], tmp_path / "site")
    assert build(run.parents[4], tmp_path / "site").written == 0


def test_a_hostile_run_hides_no_other(run: Path) -> None:
    results = run.parents[4]
    shutil.copytree(run, results / "x" / run.relative_to(results))
    (results / "x" / run.relative_to(results) / "requests.parquet").write_bytes(b"PAR1")
    assert build(results, results.parent / "site").runs == 1
