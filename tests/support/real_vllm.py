"""Runs of real vLLM on this CPU: their command line, a profile for it, and the processes that work for one."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.engines.serving.tiny_model import FLAGS

# A start of vLLM takes two thirds of the time with engine and worker in one process and a thread for the model, which
# has two layers. What it does besides is the same; tests/engine/test_runs.py starts one server as users do.
LEAN = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


def engine_python_or_skip() -> str:
    """The engine's Python; without one nothing of real vLLM can run, which in CI is a failure."""
    python = os.environ.get("BENCH_ENGINE_PYTHON")
    if not python:
        why = "BENCH_ENGINE_PYTHON names no Python with vLLM (`make test` makes one): nothing was compared with vLLM"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(why)
        pytest.skip(why)
    return python


# Of the demonstration's runs; `make soak` has the 2,000 with which "nothing is lost" was first shown.
DEMO_REQUESTS = int(os.environ.get("BENCH_ENGINE_REQUESTS", "200"))


@dataclass(frozen=True, slots=True)
class Demo:
    """What `scripts/demo_vllm.sh` left: how it ended, and the directory of each policy's run."""

    done: subprocess.CompletedProcess[str]
    directories: dict[str, Path]


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


def engines(place: Path) -> list[int]:
    """Processes of vLLM, or guardians of one, that work for a run in this place."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
            log = os.readlink(f"/proc/{name}/fd/2")
        except OSError:
            continue
        if log.startswith(str(place)) and words:
            found.append(int(name))
    return found


def wait_for(what: Any, seconds: float = 300.0) -> Any:
    """What `what` gives once it gives something."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value
