"""The virtual-time engine against real vLLM on the CPU: the same steps, from the arrivals in its step log."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from harness.runs.step_log import read_step_log
from harness.simulate.limits import EngineLimits
from policies.core import STEP_COLUMNS, StepCosts
from tests.support.conformance_cases import WITHOUT_STATE, Case, Nanosecond, check_steps, plain, simulated
from tests.support.emulated_engine import EmulatedEngine
from tests.support.places import ROOT
from workloads.core.arrivals import Constant
from workloads.core.stream import Stream
from workloads.core.trace import Trace

# Each starts a server.
pytestmark = pytest.mark.timeout(1800)

# Mixed steps cost enough that EB+ turns to exclusive batching.
COSTS = StepCosts(1e-3, 1e-4, 1e-3, 1e-4, 1e-3, 1e-2, 1e-4, 0.0)
# vLLM attends in blocks of 32 on a CPU.
LIMITS = EngineLimits(slots=16, token_budget=64, kv_blocks=26, block_size=32, max_model_len=512, watermark=0.0)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("v1", {}),
        ("v0", {}),
        ("eb", {"k": "6"}),
        ("eb", {"update_every": "1000000000"}),
        ("ebplus", {"update_every": "10", "window": "40", "cooldown": "1"}),
    ],
)
def test_real_vllm_makes_the_same_steps(
    engine: EmulatedEngine, tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    assert engine.version
    rng = np.random.default_rng(7)
    prompts, outputs = rng.integers(1, 150, 160), rng.integers(1, 80, 160)
    case = Case(7, Stream(Trace("real", prompts, outputs), Constant(1.0), None), LIMITS, name, options, COSTS)
    job = {**case.job("", late=False, cost=1), "seed": 7, "step_log": str(tmp_path / "steps.bin")}
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [os.environ["BENCH_ENGINE_PYTHON"], "-m", "tests.conformance.serve", str(tmp_path / "job.json")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    log = read_step_log(tmp_path / "steps.bin", 0)
    events = Counter(log.events["event"].to_pylist())
    assert events["arrival"] == events["finish"] == len(prompts)
    arrivals = [event for event in log.events.to_pylist() if event["event"] == "arrival"]
    rows = [int(event["request"].removeprefix("row-")) for event in arrivals]
    assert [event["tokens"] for event in arrivals] == prompts[rows].tolist()
    due = np.array([event["step"] for event in arrivals], dtype=np.int64)
    replayed = Case(
        7, Stream(Trace("real", prompts[rows], outputs[rows]), Constant(1.0), due), LIMITS, name, options, COSTS
    )
    steps, _, states = simulated(replayed, Nanosecond())
    check_steps(replayed, steps[:, WITHOUT_STATE], log.rows[:, WITHOUT_STATE], STEP_COLUMNS.index("phase"))
    assert [states[i] for i in steps[:, -1].tolist()] == [log.states[i] for i in log.rows[:, -1].tolist()]
    if name not in ("v1", "ebplus"):
        assert not (log.rows[:, STEP_COLUMNS.index("phase")] == 0).any(), "a mixed step under exclusive batching"
    seen = plain(replayed, Nanosecond()).counts
    print(f"\n{name} {options}: {len(steps)} steps, {seen.chunked} chunked, {seen.preemptions} preemptions")
    assert len(steps) > 100
    assert seen.chunked > 10
