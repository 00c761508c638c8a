"""The plugin beside vLLM: the scenarios of inside_*.py in the engine's environment, a test each."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.emulated_engine import EmulatedEngine
from tests.support.places import ROOT

SCENARIOS = [
    node.name
    for module in sorted(Path(__file__).parent.glob("inside_*.py"))
    for node in ast.parse(module.read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("it_")
]


@pytest.fixture(scope="module")
def results(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    out = tmp_path_factory.mktemp("inside") / "results.json"
    done = subprocess.run(
        [engine_python, "-m", "tests.conformance.inside", str(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    heard: dict[str, str | None] = json.loads(out.read_text())
    return heard


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_beside_vllm(results: dict[str, str | None], scenario: str) -> None:
    assert results[scenario] is None, results[scenario]


def job(name: str, options: dict[str, str]) -> dict[str, object]:
    return {
        "prompt": [5],
        "output": [5],
        "concurrency": 1,
        "limits": {"slots": 4, "token_budget": 64, "kv_blocks": 20, "block_size": 16, "max_model_len": 100},
        "policy": {"name": name, "options": options, "costs": None},
        "cost": 1,
    }


def test_a_job_that_cannot_be_done_says_so_in_a_line_and_the_next_goes_on(engine: EmulatedEngine) -> None:
    assert engine.refuses(job("ebb", {})) == (
        "PolicyError: unknown policy 'ebb': did you mean eb? "
        "known are v0, v0-engine, v1, eb, ebplus, mb, adaptive, sjf, ljf, isjl, stock, v1-interval, pd, erratic, fcfs"
    )
    assert engine.refuses(job("eb", {})).startswith("PolicyError: this policy needs the step costs")
    assert "k=9 is above the 4 slots" in engine.refuses(job("eb", {"k": "9"}))
    replayed = engine.run(job("eb", {"k": "2"}))
    assert [end[5] for end in replayed.ends] == [5]
    header = replayed.log.header
    assert header["policy"] == "eb:k=2"
    assert header["vllm"] == engine.version
    assert (header["slots"], header["token_budget"], header["blocks"], header["block_size"]) == (4, 64, 19, 16)
    assert header["async"] is False
    assert header["scheduler"] == "policies.vllm_plugin.PolicyScheduler"
