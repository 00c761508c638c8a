"""`bench run` twice: what is finished is read, and said."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.commands import Bench

RUN = (
    "run", "--gpu", "l40s", "--policy", "v1,eb:k=4", "--workload", "synthetic:mu_l=64,mu_o=16", "--requests", "60",
    "--concurrency", "8", "--repeat", "2", "--alone",
)  # fmt: skip


def test_a_finished_run_is_read_and_not_run_again(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where bench was installed: without git no file of this checkout counts as changed.
    monkeypatch.setenv("PATH", "")
    first = bench(*RUN)
    assert first.code == 0, first.err
    assert "finished" not in first.err
    second = bench(*RUN)
    assert (second.code, second.out) == (0, first.out)
    place = "runs/l40s/qwen-qwen3-8b/synthetic-mu_l=64-mu_o=16"
    assert f"4 runs are finished in {place}: read, not run again (--again runs them)" in second.err
    # What was lost runs, and is compared with what is there.
    directories = re.findall(rf"^{place}/\S+$", first.out, re.M)
    shutil.rmtree(tmp_path / directories[0])
    third = bench(*RUN)
    assert "3 runs are finished in" in third.err
    assert third.out.split("\nruns/")[0] == first.out.split("\nruns/")[0]
    assert len(list((tmp_path / "runs").rglob("run.json"))) == 4
    again = bench(*RUN, "--again", "--repeat", "1")
    assert "finished" not in again.err
    assert len(list((tmp_path / "runs").rglob("run.json"))) == 6
