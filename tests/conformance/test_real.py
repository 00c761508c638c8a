"""The virtual-time engine against real vLLM on the CPU: the same steps, from the arrivals in its step log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harness.runs.step_log import read_step_log
from harness.simulate.batch import BatchLoop
from harness.simulate.rows import Rows, joined
from policies.core import STEP_COLUMNS
from policies.own.load import make_own
from tests.support.conformance_cases import WITHOUT_STATE, Nanosecond, check_steps, plain, simulated
from tests.support.real_steps import LIMITS, OWN, OWN_OPTIONS, POLICIES, PROMPTS, as_logged, case_of, serve

# One start of vLLM, and an engine for each policy.
pytestmark = pytest.mark.timeout(1800)
PHASE = STEP_COLUMNS.index("phase")


@pytest.fixture(scope="module")
def step_logs(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The step logs that real vLLM wrote of the same requests, policy by policy, a user's own last."""
    return serve(engine_python, tmp_path_factory.mktemp("real"))


@pytest.mark.parametrize("policy", range(len(POLICIES)), ids=lambda policy: f"{POLICIES[policy]}")
def test_real_vllm_makes_the_same_steps(step_logs: list[Path], policy: int) -> None:
    name, options = POLICIES[policy]
    log = read_step_log(step_logs[policy], 0)
    events = Counter(log.events["event"].to_pylist())
    assert events["arrival"] == events["finish"] == len(PROMPTS)
    replayed = case_of(policy, as_logged(log))
    steps, _, states = simulated(replayed, Nanosecond())
    check_steps(replayed, steps[:, WITHOUT_STATE], log.rows[:, WITHOUT_STATE], PHASE)
    assert [states[i] for i in steps[:, -1].tolist()] == [log.states[i] for i in log.rows[:, -1].tolist()]
    if name not in ("v1", "ebplus"):
        assert not (log.rows[:, PHASE] == 0).any(), "a mixed step under exclusive batching"
    seen = plain(replayed, Nanosecond()).counts
    print(f"\n{name} {options}: {len(steps)} steps, {seen.chunked} chunked, {seen.preemptions} preemptions")
    assert len(steps) > 100
    assert seen.chunked > 10


def test_and_so_it_does_with_a_policy_of_a_users_own(step_logs: list[Path]) -> None:
    log = read_step_log(step_logs[-1], 0)
    parts: list[Rows] = []
    loop = BatchLoop(as_logged(log), make_own(OWN, OWN_OPTIONS, LIMITS.slots, None), Nanosecond(), LIMITS)
    loop.run(lambda one: not parts.append(one))  # type: ignore[func-returns-value] # None: go on
    ours = joined(parts)
    assert ours.steps[:, WITHOUT_STATE][:, PHASE:].tolist() == log.rows[:, WITHOUT_STATE][:, PHASE:].tolist()
    assert [ours.states[i].own for i in ours.steps[:, -1].tolist()] == [
        log.states[i].own for i in log.rows[:, -1].tolist()
    ]
    assert len(ours.steps) > 100
