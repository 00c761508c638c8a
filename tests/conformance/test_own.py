"""A user's policy makes the same steps everywhere: on the virtual engine, on vLLM's scheduler, and on real vLLM.

The policy is tests/support/own_erratic.py, which parts from itself where two engines ask or tell it otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.engines.policy_check import hold_against_vllm, try_policy
from harness.engines.serving.scheduler_process import SchedulerProcess
from harness.runs.step_log import read_step_log
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import Rows, joined
from policies.core import STEP_COLUMNS
from policies.own.file import read_file
from policies.own.load import make_own
from tests.support.conformance_cases import TRACES, WITHOUT_STATE, Nanosecond
from tests.support.places import ROOT
from workloads.core.arrivals import Constant
from workloads.core.stream import Stream
from workloads.core.trace import Trace

FILE = read_file(str(ROOT / "tests/support/own_erratic.py"), "Erratic")
TEMPLATE = read_file(str(ROOT / "policies/own/template.py"), "Mine")
LIMITS = EngineLimits(slots=16, token_budget=64, kv_blocks=26, block_size=32, max_model_len=512, watermark=0.0)
RNG = np.random.default_rng(11)
PROMPTS, OUTPUTS = RNG.integers(1, 150, 100), RNG.integers(1, 60, 100)
# One start of vLLM.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def process(engine_python: str) -> Iterator[SchedulerProcess]:
    """vLLM's scheduler, started once."""
    process = SchedulerProcess(Path(engine_python))
    yield process
    process.close()


@pytest.mark.parametrize(
    "given",
    [{}, {"ordered": "true"}, {"timed": "true"}, {"timed": "true", "ordered": "true", "salt": "7"}],
    ids=["plain", "ordered", "timed", "both"],
)
def test_vllms_scheduler_makes_the_virtual_engines_steps(process: SchedulerProcess, given: dict[str, str]) -> None:
    cases = max(6, TRACES // 4)
    tried = try_policy((FILE, given, cases))
    assert tried.problems == ()
    assert tried.step_count > 100 * cases
    assert tried.preemptions > 10
    assert hold_against_vllm(FILE, given, tried, cases, process) == []
    print(
        f"\nvLLM {process.version}, {given}: {cases} traces, {tried.step_count:,} steps, {tried.preemptions} preempted"
    )


def test_the_template_too(process: SchedulerProcess) -> None:
    tried = try_policy((TEMPLATE, {}, 6))
    assert tried.problems == ()
    assert hold_against_vllm(TEMPLATE, {}, tried, 6, process) == []


def test_real_vllm_makes_the_virtual_engines_steps(engine_python: str, tmp_path: Path) -> None:
    options = {"ordered": "true", "salt": "3"}
    log_path = tmp_path / "steps.bin"
    job = {
        "prompt": PROMPTS.tolist(),
        "output": OUTPUTS.tolist(),
        "limits": {name: getattr(LIMITS, name) for name in LIMITS.__dataclass_fields__},
        "policy": {
            "name": FILE.name,
            "options": options,
            "costs": None,
            "file": FILE.path,
            "sha256": FILE.sha256,
        },
        "seed": 7,
        "step_log": str(log_path),
    }
    (tmp_path / "jobs.json").write_text(json.dumps([job]))
    done = subprocess.run(
        [engine_python, "-m", "tests.conformance.serve", str(tmp_path / "jobs.json")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    log = read_step_log(log_path, 0)
    arrivals = [event for event in log.events.to_pylist() if event["event"] == "arrival"]
    rows = [int(event["request"].removeprefix("row-")) for event in arrivals]
    due = np.array([event["step"] for event in arrivals], dtype=np.int64)
    stream = Stream(Trace("real", PROMPTS[rows], OUTPUTS[rows]), Constant(1.0), due)
    parts: list[Rows] = []
    loop = BatchLoop(stream, make_own(FILE, options, LIMITS.slots, None), Nanosecond(), LIMITS)
    loop.run(lambda one: not parts.append(one))  # type: ignore[func-returns-value] # None: go on
    ours = joined(parts)
    first = STEP_COLUMNS.index("phase")
    assert ours.steps[:, WITHOUT_STATE][:, first:].tolist() == log.rows[:, WITHOUT_STATE][:, first:].tolist()
    assert [ours.states[i].own for i in ours.steps[:, -1].tolist()] == [
        log.states[i].own for i in log.rows[:, -1].tolist()
    ]
    assert len(ours.steps) > 100
