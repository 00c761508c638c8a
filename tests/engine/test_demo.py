"""`make demo-vllm`, the README's third command, with fewer requests."""

from __future__ import annotations

from harness.runs.run import load_run
from tests.support.real_vllm import DEMO_REQUESTS, Demo


def test_its_last_step_runs_three_policies_on_the_profile_beside_them(demo: Demo) -> None:
    assert demo.done.returncode == 0, demo.done.stderr
    runs = [load_run(path) for path in demo.directories.values()]
    assert {run.spec.policy for run in runs} == {"v1", "eb", "ebplus"}
    assert {run.spec.gpu for run in runs} == {"CPU, a model of two layers"}
    assert {run.manifest["counts"]["completed"] for run in runs} == {DEMO_REQUESTS}
