"""A policy in a file of one's own, as users type it: run, compared, published, checked, run again, shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.pages.build import build
from harness.runs.run import find_runs, load_run
from tests.support.commands import Bench

MINE = """\
from policies.own import MIXED, OwnPolicy, StepPlan, View


class Mine(OwnPolicy):
    k: int = 8
    COLUMNS = ("queue",)

    def plan(self, view: View) -> StepPlan:
        self.queue = view.waiting
        return MIXED

    def columns(self):
        return (self.queue,)
"""
RUN = ("run", "--gpu", "l40s", "--engine", "simulated", "--alone", "--workload", "synthetic:mu_l=64,mu_o=16")
LOAD = ("--requests", "60", "--concurrency", "8", "--slots", "4")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_from_a_file_to_the_site(bench: Bench, tmp_path: Path, mine: Path) -> None:
    done = bench(*RUN, *LOAD, "--policy", "v1,./mine.py:Mine,k=9", "--repeat", "1")
    assert done.code == 0, done.err
    own = next(load_run(path) for path in find_runs(tmp_path / "runs") if load_run(path).spec.policy != "v1")
    assert own.spec.policy == f"Mine@{own.spec.policy_sha256[:12]}:k=9"
    assert (own.path / "policy.py").read_text() == MINE
    assert own.manifest["provenance"]["policy_columns"] == ["queue"]
    assert bench("compare", "runs").code == 0
    assert bench("publish", "runs").code == 0
    checked = bench("site", "check", "--replay")
    assert checked.code == 0, checked.out + checked.err
    assert "is its author's code: --trust-policies runs it" in checked.out
    assert "1 of 2 simulated ones run again" in checked.out
    trusted = bench("site", "check", "--replay", "--trust-policies")
    assert trusted.code == 0, trusted.out + trusted.err
    assert "2 of 2 simulated ones run again" in trusted.out
    build(tmp_path / "results", tmp_path / "site", None)
    policies = (tmp_path / "site/policies/index.html").read_text()
    assert own.spec.policy_sha256 in policies
    pages = [page.read_text() for page in (tmp_path / "site/runs").glob("*/index.html")]
    (page,) = [page for page in pages if "A submitted policy" in page]
    assert own.spec.policy_sha256 in page
    assert "class Mine(OwnPolicy)" in page
    assert "The policy&#39;s own queue" in page or "The policy's own queue" in page


def test_a_published_policy_that_was_changed_is_told(bench: Bench, tmp_path: Path, mine: Path) -> None:
    assert bench(*RUN, *LOAD, "--policy", "./mine.py:Mine").code == 0
    assert bench("publish", "runs").code == 0
    (run,) = find_runs(tmp_path / "results")
    kept = (run / "policy.py").read_text()
    for text, told in (
        (kept + "# edited\n", "policy.py: its sha256 is"),
        ("class Other: pass\n", "policy.py: no policy's file"),
        (None, "policy.py: not there"),
    ):
        (run / "policy.py").unlink(missing_ok=True)
        if text is not None:
            (run / "policy.py").write_text(text)
        checked = bench("site", "check", "--replay", "--trust-policies")
        assert checked.code == 1
        assert told in checked.out


def test_repeats_after_an_edit_are_refused_and_two_files_of_one_class_are_two_arms(
    bench: Bench, tmp_path: Path, mine: Path
) -> None:
    other = tmp_path / "other.py"
    other.write_text(MINE + "# another\n")
    done = bench(*RUN, *LOAD, "--policy", "./mine.py:Mine,./other.py:Mine", "--json")
    assert done.code == 0, done.err
    names = [run["policy"] for run in json.loads(done.out)["runs"]]
    assert len(set(names)) == 2
    edits = "import pathlib\nFILE = pathlib.Path(__file__)\nFILE.write_text(FILE.read_text() + '# edited\\n')\n"
    mine.write_text(MINE + edits)
    refused = bench(*RUN, *LOAD, "--policy", "./mine.py:Mine", "--repeat", "2")
    assert refused.code == 2
    assert "another policy: run again" in refused.err


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("./none.py:Mine", "./none.py: cannot be read (No such file or directory)"),
        ("./mine.py:Mine,k=x", "Mine: k=x must be a whole number"),
        ("Mine@0123456789ab", "name its file: --policy ./FILE.py:CLASS"),
    ],
)
def test_what_cannot_be_run_is_one_line(bench: Bench, mine: Path, policy: str, told: str) -> None:
    done = bench(*RUN, *LOAD, "--policy", policy)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err


def test_a_policy_that_fails_keeps_what_ran_and_is_no_fault_of_bench(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(MINE.replace("        self.queue = view.waiting\n", "        self.gone\n"))
    done = bench(*RUN, *LOAD, "--policy", "./bad.py:Mine")
    assert done.code == 3
    assert "raised AttributeError" in done.err
    assert "at step 0 in plan, line 9 of bad.py" in done.err
    assert "fault of bench" not in done.err


def test_what_a_policy_prints_is_no_part_of_the_answer(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        MINE.replace("        return MIXED\n", "        print('hello')\n        return MIXED\n")
    )
    done = bench(*RUN, *LOAD, "--policy", "./loud.py:Mine", "--json")
    assert done.code == 0
    assert json.loads(done.out)["runs"]
    assert "hello" in done.err
