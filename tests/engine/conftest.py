"""Real vLLM on a CPU: the Python that BENCH_ENGINE_PYTHON names, and a small model made on the spot."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.engines.serving.tiny_model import make_tiny_model
from harness.runs.run import find_runs, load_run
from tests.support.commands import Bench, bench_in
from tests.support.places import ROOT
from tests.support.real_vllm import DEMO_REQUESTS, LEAN, PROFILE, Demo, engine_python_or_skip


@pytest.fixture(scope="session", autouse=True)
def _lean() -> Iterator[None]:
    """Servers of these tests start in two processes and not in three."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LEAN.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The engine's Python."""
    return engine_python_or_skip()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, engine_python: str) -> Demo:
    """`make demo-vllm` with fewer requests: v1, EB and EB+ on real vLLM, which the tests of runs look at too."""
    place = tmp_path_factory.mktemp("demo")
    (place / "cpu-tiny.toml").write_text(PROFILE, encoding="utf-8")
    own = {"BENCH_ENGINE_PYTHON": engine_python, "BENCH_CACHE": str(place / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [str(ROOT / "scripts/demo_vllm.sh"), str(place), str(DEMO_REQUESTS)]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
    runs = [load_run(path) for path in find_runs(place)]
    return Demo(done, {run.spec.policy: run.path for run in runs})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, engine_python: str) -> Path:
    """A directory with the model `tiny` and the profile `cpu-tiny.toml`."""
    directory = tmp_path_factory.mktemp("engine")
    make_tiny_model(directory / "tiny")
    (directory / "cpu-tiny.toml").write_text(PROFILE)
    return directory


@pytest.fixture(scope="module")
def bench(place: Path) -> Bench:
    """`bench` in that directory."""
    return bench_in(place)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Servers start here one after the other, within one fixture up to three: on a slow machine that takes its time."""
    for item in items:
        if item.get_closest_marker("timeout") is None and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))
