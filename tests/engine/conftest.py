"""Real vLLM on a CPU: the Python that BENCH_ENGINE_PYTHON names, and a small model made on the spot."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engines.serving.tiny_model import make_tiny_model
from tests.support.commands import Bench, bench_in
from tests.support.real_vllm import PROFILE, engine_python_or_skip


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The engine's Python."""
    return engine_python_or_skip()


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
    """Servers start here one after the other, within one fixture up to six: on a slow machine that takes its time."""
    for item in items:
        if item.get_closest_marker("timeout") is None and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))
