"""The virtual-time engine and vLLM's own scheduler make the same steps on the same trace.

Synchronous form: BatchLoop, every integer of every step. Asynchronous form: the plain oracle with a step's
lateness (late_oracle.py), since BatchLoop has no asynchronous scheduling. BENCH_CONFORMANCE_TRACES sets how many random
traces each form replays (`make soak`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from policies.core import STEP_COLUMNS
from tests.support.conformance_cases import (
    TRACES,
    WITHOUT_STATE,
    Nanosecond,
    Told,
    check_counts,
    check_ends,
    check_requests,
    check_states,
    check_steps,
    count,
    plain,
    random_case,
    simulated,
    told_ns,
)
from tests.support.emulated_engine import EmulatedEngine
from tests.support.late_oracle import LateOracle


@pytest.mark.timeout(100_000)
def test_the_virtual_engine_makes_vllms_steps(engine: EmulatedEngine) -> None:
    counts: Counter[str] = Counter()
    for seed in range(TRACES):
        case = random_case(seed)
        steps, requests, states = simulated(case, Nanosecond())
        replayed = engine.run(case.job("arrival_steps", late=False, cost=1))
        # An idle engine makes no steps: what is due in steps has no times to compare.
        check_steps(case, steps[:, WITHOUT_STATE], replayed.log.rows[:, WITHOUT_STATE], STEP_COLUMNS.index("phase"))
        check_states(case, steps, states, replayed)
        check_ends(case, requests[:, [0, 6, 7]].tolist(), replayed)
        count(case, replayed, plain(case, Nanosecond()).counts, counts)
    check_counts("virtual engine = vLLM, synchronous, arrivals in steps", counts)


@pytest.mark.timeout(100_000)
def test_with_a_cost_that_tells_every_content(engine: EmulatedEngine) -> None:
    counts: Counter[str] = Counter()
    for seed in range(100_000, 100_000 + max(36, TRACES // 4)):
        case = random_case(seed, spread=500)
        steps, requests, states = simulated(case, Told())
        replayed = engine.run(case.job("due_ns", late=False, cost="ask"), told_ns)
        check_steps(case, steps[:, WITHOUT_STATE], replayed.log.rows[:, WITHOUT_STATE])
        check_states(case, steps, states, replayed)
        check_requests(case, requests, replayed)
        count(case, replayed, plain(case, Told()).counts, counts)
    check_counts("virtual engine = vLLM, synchronous, arrivals in time", counts)


@pytest.mark.timeout(100_000)
def test_with_asynchronous_scheduling_vllm_is_one_step_late(engine: EmulatedEngine) -> None:
    counts: Counter[str] = Counter()
    seed = 200_000
    while counts["traces"] < TRACES:
        seed += 1
        case = random_case(seed)
        if case.stream.due_ns is None:
            continue  # a closed loop answers outputs, which come late: its arrivals are no longer given in steps
        oracle = LateOracle(case.stream, case.policy(), Nanosecond(), case.limits).run()
        replayed = engine.run(case.job("arrival_steps", late=True, cost=1))
        ours = np.array([list(asdict(step).values()) for step in oracle.steps])
        check_steps(case, ours, replayed.log.rows[:, WITHOUT_STATE], STEP_COLUMNS.index("phase"))
        check_ends(case, [[r.row, r.output, r.preemptions] for r in oracle.ended], replayed)
        count(case, replayed, oracle.counts, counts)
    check_counts("late oracle = vLLM, asynchronous, arrivals in steps", counts)
