"""The file of a submitted policy against the run's spec."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from harness.core.runspec import RunSpec
from harness.published.check import check
from harness.published.submitted import columns_of, fault_of, submission_of
from harness.runs.run import load_run
from tests.support.runfactory import SPEC, toy_run, write_run

TEXT = "from policies.own import *\nclass Mine(OwnPolicy):\n    def plan(self, view): return MIXED\n"
SHA256 = hashlib.sha256(TEXT.encode()).hexdigest()
NAME = f"Mine@{SHA256[:12]}:k=3"


def written(out: Path, text: str | None = TEXT, **spec: str) -> Path:
    requests, steps = toy_run(40, 0)
    values = {"policy": NAME, "policy_sha256": SHA256} | spec
    made: RunSpec = dataclasses.replace(SPEC, **values)  # type: ignore[arg-type] # texts all
    path = write_run(out, requests, steps, spec=made, provenance={"policy_columns": ["oldest_s"]})
    if text is not None:
        (path / "policy.py").write_text(text)
    return path


def test_what_a_page_tells_of_it(tmp_path: Path) -> None:
    run = load_run(written(tmp_path))
    assert fault_of(run) is None
    told = submission_of(run)
    assert told is not None
    assert (told.class_name, told.options, told.sha256, told.text) == ("Mine", {"k": "3"}, SHA256, TEXT)
    assert told.columns == ("oldest_s",)


@pytest.mark.parametrize(
    ("text", "spec", "told"),
    [
        (None, {}, "policy.py: not there"),
        (TEXT + "#\n", {}, "policy.py: its sha256 is"),
        ("import numpy\n" + TEXT, {}, "imports numpy"),
        ("#" * 300_000, {}, "more than 256 KiB"),
        (TEXT, {"policy": f"Other@{SHA256[:12]}"}, "no class Other"),
        (TEXT, {"policy": "Mine@000000000000"}, "the policy goes by Mine@000000000000"),
        (TEXT, {"policy": "v1"}, "no policy's file"),
        (TEXT, {"policy": "v1", "policy_sha256": ""}, "the spec names no policy in a file: delete it"),
        (None, {"policy_sha256": ""}, "has no policy_sha256"),
    ],
)
def test_a_file_that_is_not_the_specs(tmp_path: Path, text: str | None, spec: dict[str, str], told: str) -> None:
    assert told in str(fault_of(load_run(written(tmp_path, text, **spec))))


def test_at_an_endpoint_a_policy_is_a_label(tmp_path: Path) -> None:
    spec = {"policy": "ours@home", "policy_sha256": "", "engine": "endpoint"}
    assert fault_of(load_run(written(tmp_path, None, **spec))) is None


def test_a_check_tells_of_what_is_private_in_it(tmp_path: Path) -> None:
    text = f"{TEXT}# see /home/someone/notes\n"
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    written(tmp_path / "results", text, policy=f"Mine@{sha256[:12]}", policy_sha256=sha256)
    lines = [problem.why for problem in check(tmp_path / "results").problems]
    assert [line for line in lines if line.startswith("policy.py")] == [
        "policy.py: line 4 tells a private path: run again with a file without it"
    ]


@pytest.mark.parametrize("columns", [None, 3, ["a b"], ["x" * 41], [f"c{i}" for i in range(17)], [1]])
def test_columns_that_are_no_names_are_none(tmp_path: Path, columns: object) -> None:
    run = load_run(written(tmp_path))
    run.manifest["provenance"]["policy_columns"] = columns
    assert columns_of(run) == []
