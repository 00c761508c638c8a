"""The same requests served by real vLLM on this CPU under one policy after the other, in one process of the engine."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.runs.step_log import StepLog
from harness.simulate.limits import EngineLimits
from policies.core import StepCosts
from policies.own.file import read_file
from tests.support.conformance_cases import Case
from tests.support.places import ROOT
from tests.support.real_vllm import LEAN
from workloads.core.arrivals import Constant
from workloads.core.stream import Stream
from workloads.core.trace import Trace

# Mixed steps cost enough that EB+ turns to exclusive batching.
COSTS = StepCosts(1e-3, 1e-4, 1e-3, 1e-4, 1e-3, 1e-2, 1e-4, 0.0)
# vLLM attends in blocks of 32 on a CPU.
LIMITS = EngineLimits(slots=16, token_budget=64, kv_blocks=26, block_size=32, max_model_len=512, watermark=0.0)
POLICIES: tuple[tuple[str, dict[str, str]], ...] = (
    ("v1", {}),
    ("v0", {}),
    ("eb", {"k": "6"}),
    ("eb", {"update_every": "1000000000"}),
    ("ebplus", {"update_every": "10", "window": "40", "cooldown": "1"}),
)
# A user's own, which parts from itself where two engines ask or tell it otherwise.
OWN = read_file(str(ROOT / "tests/support/own_erratic.py"), "Erratic")
OWN_OPTIONS = {"ordered": "true", "salt": "3"}
RNG = np.random.default_rng(7)
PROMPTS, OUTPUTS = RNG.integers(1, 150, 100), RNG.integers(1, 80, 100)


def stream_of(rows: slice | list[int], due: npt.NDArray[np.int64] | None) -> Stream:
    """The requests of these rows, due at these steps."""
    return Stream(Trace("real", PROMPTS[rows], OUTPUTS[rows]), Constant(1.0), due)


def as_logged(log: StepLog) -> Stream:
    """The requests in the order and at the steps in which a log has their arrivals."""
    arrivals = [event for event in log.events.to_pylist() if event["event"] == "arrival"]
    rows = [int(event["request"].removeprefix("row-")) for event in arrivals]
    assert [event["tokens"] for event in arrivals] == PROMPTS[rows].tolist()
    return stream_of(rows, np.array([event["step"] for event in arrivals], dtype=np.int64))


def case_of(policy: int, stream: Stream) -> Case:
    """A stream under one of the policies."""
    name, options = POLICIES[policy]
    return Case(7, stream, LIMITS, name, options, COSTS)


def serve(python: str, folder: Path) -> list[Path]:
    """The step logs of the policies and, last, of a user's own."""
    logs = [folder / f"steps-{number}.bin" for number in range(len(POLICIES) + 1)]
    jobs = [
        case_of(number, stream_of(slice(None), None)).job("", late=False, cost=1) for number in range(len(POLICIES))
    ]
    own = {"name": OWN.name, "options": OWN_OPTIONS, "costs": None, "file": OWN.path, "sha256": OWN.sha256}
    jobs.append({"prompt": PROMPTS.tolist(), "output": OUTPUTS.tolist(), "limits": asdict(LIMITS), "policy": own})
    (folder / "jobs.json").write_text(
        json.dumps([{**job, "seed": 7, "step_log": str(log)} for job, log in zip(jobs, logs, strict=True)])
    )
    own_env = {"PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1"}
    done = subprocess.run(
        [python, "-m", "tests.conformance.serve", str(folder / "jobs.json")],
        cwd=ROOT,
        env={**os.environ, **LEAN, **own_env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return logs
