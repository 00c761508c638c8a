"""The virtual-time engine against real vLLM on the CPU: the same steps, from the arrivals in its step log."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from harness.runs.step_log import read_step_log
from harness.simulate.limits import EngineLimits
from policies.core import STEP_COLUMNS, StepCosts
from tests.support.conformance_cases import WITHOUT_STATE, Case, Nanosecond, check_steps, plain, simulated
from tests.support.places import ROOT
from tests.support.real_vllm import LEAN
from workloads.core.arrivals import Constant
from workloads.core.stream import Stream
from workloads.core.trace import Trace

# One start of vLLM, and an engine for each policy.
pytestmark = pytest.mark.timeout(1800)

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
RNG = np.random.default_rng(7)
PROMPTS, OUTPUTS = RNG.integers(1, 150, 100), RNG.integers(1, 80, 100)


def case_of(policy: int, rows: slice | list[int], due: npt.NDArray[np.int64] | None) -> Case:
    """The requests of these rows under a policy, due at these steps."""
    name, options = POLICIES[policy]
    stream = Stream(Trace("real", PROMPTS[rows], OUTPUTS[rows]), Constant(1.0), due)
    return Case(7, stream, LIMITS, name, options, COSTS)


@pytest.fixture(scope="module")
def step_logs(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The step logs that real vLLM wrote of the same requests, policy by policy."""
    folder = tmp_path_factory.mktemp("real")
    logs = [folder / f"steps-{policy}.bin" for policy in range(len(POLICIES))]
    jobs = [
        {**case_of(policy, slice(None), None).job("", late=False, cost=1), "seed": 7, "step_log": str(log)}
        for policy, log in enumerate(logs)
    ]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run(
        [engine_python, "-m", "tests.conformance.serve", str(folder / "jobs.json")],
        cwd=ROOT,
        env={
            **os.environ,
            **LEAN,
            "PYTHONPATH": str(ROOT),
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_CPU_KVCACHE_SPACE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return logs


@pytest.mark.parametrize("policy", range(len(POLICIES)), ids=lambda policy: f"{POLICIES[policy]}")
def test_real_vllm_makes_the_same_steps(step_logs: list[Path], policy: int) -> None:
    name, options = POLICIES[policy]
    log = read_step_log(step_logs[policy], 0)
    events = Counter(log.events["event"].to_pylist())
    assert events["arrival"] == events["finish"] == len(PROMPTS)
    arrivals = [event for event in log.events.to_pylist() if event["event"] == "arrival"]
    rows = [int(event["request"].removeprefix("row-")) for event in arrivals]
    assert [event["tokens"] for event in arrivals] == PROMPTS[rows].tolist()
    due = np.array([event["step"] for event in arrivals], dtype=np.int64)
    replayed = case_of(policy, rows, due)
    steps, _, states = simulated(replayed, Nanosecond())
    check_steps(replayed, steps[:, WITHOUT_STATE], log.rows[:, WITHOUT_STATE], STEP_COLUMNS.index("phase"))
    assert [states[i] for i in steps[:, -1].tolist()] == [log.states[i] for i in log.rows[:, -1].tolist()]
    if name not in ("v1", "ebplus"):
        assert not (log.rows[:, STEP_COLUMNS.index("phase")] == 0).any(), "a mixed step under exclusive batching"
    seen = plain(replayed, Nanosecond()).counts
    print(f"\n{name} {options}: {len(steps)} steps, {seen.chunked} chunked, {seen.preemptions} preemptions")
    assert len(steps) > 100
    assert seen.chunked > 10
