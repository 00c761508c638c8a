"""A user's policy makes the same steps on the virtual engine and on vLLM's scheduler; test_real.py has real vLLM.

The policy is tests/support/own_erratic.py, which parts from itself where two engines ask or tell it otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.engines.policy_check import hold_against_vllm, try_policy
from harness.engines.serving.scheduler_process import SchedulerProcess
from policies.own.file import read_file
from tests.support.conformance_cases import TRACES
from tests.support.places import ROOT
from tests.support.real_steps import OWN

TEMPLATE = read_file(str(ROOT / "policies/own/template.py"), "Mine")
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
    tried = try_policy((OWN, given, cases))
    assert tried.problems == ()
    assert tried.step_count > 100 * cases
    assert tried.preemptions > 10
    assert hold_against_vllm(OWN, given, tried, cases, process) == []
    print(
        f"\nvLLM {process.version}, {given}: {cases} traces, {tried.step_count:,} steps, {tried.preemptions} preempted"
    )


def test_the_template_too(process: SchedulerProcess) -> None:
    tried = try_policy((TEMPLATE, {}, 6))
    assert tried.problems == ()
    assert hold_against_vllm(TEMPLATE, {}, tried, 6, process) == []
