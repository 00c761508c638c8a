"""Publishing a run: the same numbers at its new place, and nothing of the machine's own places."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.published.publish import publish
from harness.runs.run import load_run
from tests.support.runfactory import toy_run, write_run


def test_a_published_run_has_the_same_numbers_and_no_place_of_the_machine(tmp_path: Path) -> None:
    path = write_run(tmp_path / "runs", *toy_run())
    manifest = json.loads((path / "run.json").read_text())
    command = [f"{tmp_path}/env/bin/python", "-m", "vllm", "--model", f"{tmp_path}/models/tiny", "--port", "1"]
    manifest["provenance"]["engine_command"] = command
    manifest["notes"] = [f"written to {path}/steps.log by {os.getcwd()}"]
    (path / "run.json").write_text(json.dumps(manifest))
    (path / "engine.log").write_text(f"{tmp_path}/env/lib/x.py:3: warning\nmodel={tmp_path}/models/tiny\n")
    (path / "metrics.jsonl").write_text("{}")
    results = tmp_path / "results"

    one = publish(path, results)

    assert one.left_out == ("metrics.jsonl",)
    assert one.masked == 6
    there = load_run(one.path)
    assert there.spec == load_run(path).spec
    assert there.summary == load_run(path).summary
    assert there.requests().equals(load_run(path).requests())
    assert there.manifest["provenance"]["engine_command"][0] == "ENGINE/bin/python"
    assert there.manifest["notes"] == [f"written to RUN/{path.name}/steps.log by HERE"]
    assert (one.path / "engine.log").read_text() == "ENGINE/lib/x.py:3: warning\nmodel=MODELS/tiny\n"
    for file in ("run.json", "engine.log"):
        assert str(tmp_path) not in (one.path / file).read_text()
    with pytest.raises(UserError, match="there already: nothing published is ever overwritten"):
        publish(path, results)
