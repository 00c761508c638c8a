"""v1-interval in the virtual engine makes the steps of vLLM's own prefill_schedule_interval (vLLM 0.33 or newer)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from harness.engines.serving.environments import INTERVAL_FROM, examine
from policies.core import STEP_COLUMNS
from tests.support.conformance_cases import (
    TRACES,
    WITHOUT_STATE,
    Nanosecond,
    check_ends,
    check_steps,
    random_case,
    simulated,
)
from tests.support.emulated_engine import EmulatedEngine


@pytest.fixture
def stock(engine_python: str, tmp_path: Path) -> EmulatedEngine:
    """vLLM's own scheduler and setting."""
    if examine(Path(engine_python)).numbers < INTERVAL_FROM:
        pytest.skip("this vLLM has the setting for data parallelism alone")
    return EmulatedEngine(engine_python, tmp_path, "tests.support.stock_interval")


@pytest.mark.timeout(100_000)
def test_the_rule_is_that_of_vllms_own_setting(stock: EmulatedEngine) -> None:
    counts: Counter[str] = Counter()
    for seed in range(300_000, 300_000 + TRACES):
        every = 2 + seed % 7
        case = random_case(seed)
        # Held prompts are paused in ours and give way in vLLM's, where the cache runs over; a prompt of one token is
        # none to vLLM.
        limits = dataclasses.replace(case.limits, kv_blocks=100_000)
        trace = dataclasses.replace(case.stream.trace, prompt_tokens=case.stream.trace.prompt_tokens + 1)
        stream = dataclasses.replace(case.stream, trace=trace)
        case = dataclasses.replace(case, name="v1", options={}, limits=limits, stream=stream)
        ours = dataclasses.replace(case, name="v1-interval", options={"n": str(every)})
        steps, requests, _ = simulated(ours, Nanosecond())
        replayed = stock.run({**case.job("arrival_steps", late=False, cost=1), "interval": every})
        check_steps(ours, steps[:, WITHOUT_STATE], replayed.log.rows[:, WITHOUT_STATE], STEP_COLUMNS.index("phase"))
        check_ends(ours, requests[:, [0, 6, 7]].tolist(), replayed)
        plain_steps, _, _ = simulated(case, Nanosecond())
        counts["traces"] += 1
        counts["other than v1"] += len(plain_steps) != len(steps) or bool((plain_steps[:, 3:] != steps[:, 3:]).any())
    stock.close()
    assert counts["other than v1"] > counts["traces"] / 4, counts
