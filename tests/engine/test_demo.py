"""`make demo-vllm`, the README's third command, with fewer requests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from harness.runs.run import find_runs, load_run
from tests.support.real_vllm import PROFILE

SCRIPT = Path(__file__).parents[2] / "scripts" / "demo_vllm.sh"
REQUESTS = 80


def demo(place: Path, engine_python: str) -> subprocess.CompletedProcess[str]:
    own = {"BENCH_ENGINE_PYTHON": engine_python, "BENCH_CACHE": str(place / "cache"), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [str(SCRIPT), str(place), str(REQUESTS)], env=os.environ | own, capture_output=True, text=True, check=False
    )


def test_its_last_step_runs_three_policies_on_the_profile_beside_them(tmp_path: Path, engine_python: str) -> None:
    (tmp_path / "cpu-tiny.toml").write_text(PROFILE, encoding="utf-8")
    done = demo(tmp_path, engine_python)
    assert done.returncode == 0, done.stderr
    runs = [load_run(path) for path in find_runs(tmp_path)]
    assert {run.spec.policy for run in runs} == {"v1", "eb", "ebplus"}
    assert {run.spec.gpu for run in runs} == {"CPU, a model of two layers"}
    assert {run.manifest["counts"]["completed"] for run in runs} == {REQUESTS}
