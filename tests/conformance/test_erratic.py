"""Engines agree for every policy: one that counts what it is asked and told meets the same steps in both.

The forms are those of test_emulated.py; the policy is tests/support/erratic_policy.py, which says for how many steps
each plan holds, and would part from itself at the first ask that one engine makes and the other does not.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from policies.core import STEP_COLUMNS
from tests.support.conformance_cases import (
    TRACES,
    WITHOUT_STATE,
    Case,
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

pytestmark = [pytest.mark.timeout(100_000), pytest.mark.usefixtures("erratic")]


def erratic_case(seed: int, spread: int = 1, timed: bool = True) -> Case:
    options = {"salt": str(seed), "ordered": str(seed % 2), "timed": str(int(timed))}
    return dataclasses.replace(random_case(seed, spread), name="erratic", options=options)


def test_the_virtual_engine_makes_vllms_steps(engine: EmulatedEngine) -> None:
    counts: Counter[str] = Counter()
    for seed in range(300_000, 300_000 + TRACES):
        case = erratic_case(seed)
        steps, requests, states = simulated(case, Nanosecond())
        replayed = engine.run(case.job("arrival_steps", late=False, cost=1))
        check_steps(case, steps[:, WITHOUT_STATE], replayed.log.rows[:, WITHOUT_STATE], STEP_COLUMNS.index("phase"))
        check_states(case, steps, states, replayed)
        check_ends(case, requests[:, [0, 6, 7]].tolist(), replayed)
        count(case, replayed, plain(case, Nanosecond()).counts, counts)
    check_counts("erratic: virtual engine = vLLM, arrivals in steps", counts)


def test_with_a_cost_that_tells_every_content(engine: EmulatedEngine) -> None:
    counts: Counter[str] = Counter()
    for seed in range(400_000, 400_000 + max(36, TRACES // 4)):
        case = erratic_case(seed, spread=500)
        steps, requests, states = simulated(case, Told())
        replayed = engine.run(case.job("due_ns", late=False, cost="ask"), told_ns)
        check_steps(case, steps[:, WITHOUT_STATE], replayed.log.rows[:, WITHOUT_STATE])
        check_states(case, steps, states, replayed)
        check_requests(case, requests, replayed)
        count(case, replayed, plain(case, Told()).counts, counts)
    check_counts("erratic: virtual engine = vLLM, arrivals in time", counts)


def test_with_asynchronous_scheduling_vllm_is_one_step_late(engine: EmulatedEngine) -> None:
    counts: Counter[str] = Counter()
    seed = 500_000
    while counts["traces"] < TRACES:
        seed += 1
        case = erratic_case(seed, timed=False)
        if case.stream.due_ns is None:
            continue
        oracle = LateOracle(case.stream, case.policy(), Nanosecond(), case.limits).run()
        replayed = engine.run(case.job("arrival_steps", late=True, cost=1))
        ours = np.array([list(asdict(step).values()) for step in oracle.steps])
        check_steps(case, ours, replayed.log.rows[:, WITHOUT_STATE], STEP_COLUMNS.index("phase"))
        check_ends(case, [[r.row, r.output, r.preemptions] for r in oracle.ended], replayed)
        count(case, replayed, oracle.counts, counts)
    check_counts("erratic: late oracle = vLLM, asynchronous", counts)
