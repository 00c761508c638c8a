"""Real vLLM on a CPU: the Python that BENCH_ENGINE_PYTHON names, and a small model made on the spot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.engines.serving.tiny_model import FLAGS, make_tiny_model
from tests.support.commands import Bench, bench_in

# Step costs of the size that this model has on a CPU; what they are decides nothing here.
PROFILE = """
label = "CPU, a model of two layers"
aliases = []
memory_gb = { value = 4, source = "test" }
bandwidth_tb_s = { value = 0.01, source = "test" }
dense_bf16_tflops = { value = 0.1, source = "test" }
attention = { value = "fa2", source = "test" }
attention_efficiency = { value = 0.5, source = "test" }

[pairs.tiny.steps]
basis = "calibrated"
alpha_p_s = 2e-3
beta_p_s_per_token = 1e-5
alpha_d_s = 2e-3
beta_d_s_per_request = 3e-5
source = "test"
flags = []

[pairs.tiny.mixed]
form = "fitted"
a_s_per_token = 1e-5
b_s_per_token = 1e-5
c_s_per_token = 0.0
source = "test"
flags = []
"""


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The engine's Python; without one nothing here can run, which in CI is a failure."""
    python = os.environ.get("BENCH_ENGINE_PYTHON")
    if not python:
        why = "BENCH_ENGINE_PYTHON names no Python with vLLM (`make test` makes one): real vLLM was not started"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return python


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


# fmt: off
RUN = (
    "run", "--engine", "vllm", "--gpu", "cpu-tiny.toml", "--model", "tiny", "--engine-args", FLAGS,
    "--workload", "synthetic:mu_l=60,mu_o=12", "--concurrency", "32", "--slots", "16", "--token-budget", "256",
    "--max-model-len", "2048",
)
# fmt: on


def with_options(*options: str) -> list[str]:
    """RUN with these options in the place of its own."""
    words = list(RUN)
    for name in options[::2]:
        if name in words:
            at = words.index(name)
            del words[at : at + 2]
    return [*words, *options]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Servers start here one after the other, within one fixture up to six: on a slow machine that takes its time."""
    for item in items:
        if item.get_closest_marker("timeout") is None and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))
