"""EB+: when it changes its mode, what it smooths, and where it ends up on the virtual-time engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from harness.profiles.linear import Linear
from harness.profiles.pair import load_pair
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import Rows
from policies.catalog import make_policy
from policies.core import MIXED, PartialPrefill, Phase, StepCosts, StepPlan
from policies.online.controller import ControlOptions, OnlineController
from policies.online.ebplus import EBPlus
from policies.online.threshold import crossover
from workloads.core.arrivals import Closed
from workloads.core.stream import Stream
from workloads.core.trace import Trace

COSTS = StepCosts(0.0013, 2.5e-5, 0.0089, 4.6e-5, 0.0013, 2.5e-5, 5.2e-5, 1.5e-5)


@dataclass(slots=True)
class Counts:
    """A View that stands still."""

    slots: int = 64
    token_budget: int = 1000
    block_size: int = 16
    total_blocks: int = 10_000
    free_blocks: int = 10_000
    watermark_blocks: int = 0
    waiting: int = 0
    prefilling: int = 0
    decoding: int = 40
    queue: list[int] = field(default_factory=list)

    def waiting_tokens(self) -> Iterator[int]:
        return iter(self.queue)

    def num_output_tokens(self) -> list[int]:
        return list(range(self.decoding, 0, -1))

    def footprints(self) -> list[int]:
        return []

    def partial_prefills(self) -> list[PartialPrefill]:
        return []


def ebplus(delta_s: float = 0.0, cooldown: int = 3, smoothing: float = 0.1, costs: StepCosts = COSTS) -> EBPlus:
    return EBPlus(OnlineController(ControlOptions(), costs), costs, delta_s, smoothing, cooldown)


def complete(policy: EBPlus, requests: int, running: int = 40) -> None:
    """`requests` of 50 tokens complete, with `running` slots held."""
    for _ in range(requests):
        policy.on_admit(100)
        policy.on_steps(1, running, running, 0)
        policy.on_finish(50)


def turn(policy: EBPlus, delta_s: float) -> None:
    """What pulls the inequality the other way from now on."""
    policy._delta_s = delta_s


def test_mixed_until_thirty_have_completed_whatever_delta_says() -> None:
    policy, view = ebplus(-1.0, cooldown=1), Counts()
    for _ in range(29):
        complete(policy, 1)
        assert policy.plan(view) is MIXED
        assert policy.state().crossover_left is None
    complete(policy, 1)
    assert policy.plan(view).phase is Phase.DECODE
    assert policy.state().mode == "EB"


def test_the_mode_changes_after_cooldown_updates_in_a_row_and_not_before() -> None:
    policy, view = ebplus(-1.0), Counts()
    modes = []
    for completions in (30, 100, 100, 100):
        complete(policy, completions)
        policy.plan(view)
        modes.append(policy.state().mode)
    assert modes == ["MB", "MB", "EB", "EB"]
    turn(policy, 1.0)
    modes = []
    for _ in range(4):
        complete(policy, 100)
        policy.plan(view)
        modes.append(policy.state().mode)
    assert modes == ["EB", "EB", "MB", "MB"]


def test_an_update_that_agrees_starts_the_count_again() -> None:
    policy, view = ebplus(-1.0), Counts()
    modes = []
    for delta_s in (-1.0, -1.0, 1.0, -1.0, -1.0, 1.0, -1.0, -1.0, -1.0):
        turn(policy, delta_s)
        complete(policy, 100)
        policy.plan(view)
        modes.append(policy.state().mode)
    assert modes == ["MB"] * 8 + ["EB"]


def test_between_updates_plans_do_not_count() -> None:
    policy, view = ebplus(-1.0), Counts()
    complete(policy, 30)
    for _ in range(50):
        assert policy.plan(view) is MIXED
    complete(policy, 99)
    for _ in range(50):
        assert policy.plan(view) is MIXED


@pytest.mark.parametrize(("delta_s", "mode"), [(1.0, "MB"), (-1.0, "EB")])
def test_delta_above_0_pushes_to_mixed_and_below_to_exclusive(delta_s: float, mode: str) -> None:
    policy, view = ebplus(delta_s), Counts()
    for _ in range(6):
        complete(policy, 100)
        policy.plan(view)
    assert policy.state().mode == mode


def test_the_state_shows_both_sides_as_form_6_gives_them() -> None:
    policy, view = ebplus(2e-6), Counts()
    complete(policy, 230)
    policy.plan(view)
    state = policy.state()
    assert state.theta is not None
    assert state.p0 is not None
    assert state.mu_l == 100.0
    assert state.n_obs == policy.n_obs
    expected = crossover(state.theta, 100.0, 1 / state.p0, policy.n_obs, 2e-6, COSTS)
    assert (state.crossover_left, state.crossover_right) == expected
    assert policy.state() is state, "the same object until something changes"


def test_after_a_change_to_exclusive_a_partly_computed_prompt_is_finished_first() -> None:
    policy, view = ebplus(-1.0, cooldown=1), Counts(prefilling=1)
    complete(policy, 30)
    assert policy.plan(view) == StepPlan(Phase.PREFILL, 0)
    assert policy.plan(view) == StepPlan(Phase.PREFILL, 0)
    view.prefilling, view.decoding = 0, 41
    assert policy.plan(view).phase is Phase.DECODE


def test_a_change_starts_the_phases_afresh() -> None:
    policy, view = ebplus(-1.0, cooldown=1), Counts(prefilling=1, queue=[16 * 20_000], waiting=1)
    complete(policy, 30)
    policy.plan(view)
    view.prefilling = 0
    policy.plan(view)
    assert policy.state().n == 40, "the gate ended the fill at 40"
    for delta_s in (1.0, -1.0):
        turn(policy, delta_s)
        complete(policy, 100)
        policy.plan(view)
    assert policy.state().mode == "EB"
    assert policy.state().n == policy._controller.target(view).slots


@pytest.mark.parametrize("smoothing", [1.0, 0.1, 1e-3, 1e-18])
def test_n_obs_is_the_smoothed_number_of_running_requests(smoothing: float) -> None:
    policy, expected = ebplus(smoothing=smoothing), 0.0
    rng = np.random.default_rng(2)
    for _ in range(300):
        running, steps = int(rng.integers(1, 2000)), int(rng.integers(1, 30))
        policy.on_steps(steps, running, running, 0)
        for _ in range(steps):
            expected += smoothing * (running - expected)
        assert policy.n_obs == pytest.approx(expected, rel=1e-12, abs=1e-9)


def test_a_smoothing_too_small_for_a_double_divides_by_nothing() -> None:
    policy, view = ebplus(smoothing=1e-18), Counts()
    complete(policy, 30)
    assert policy.n_obs == 0.0
    assert policy.plan(view) is MIXED


# On the virtual-time engine.


def modes_of(concurrency: int, given: dict[str, str], requests: int = 6000) -> list[str]:
    """The mode in force at each step that was taken in the second half of a run on the RTX PRO 6000."""
    pair = load_pair("rtxpro6000", "Qwen/Qwen3-8B")
    cost = pair.cost("linear")
    assert isinstance(cost, Linear)
    rng = np.random.default_rng(7)
    trace = Trace("lengths", rng.geometric(1 / 220, requests), rng.geometric(1 / 200, requests))
    policy = make_policy("ebplus", given, 1024, StepCosts(**cost.parameters()))
    limits = EngineLimits(1024, 14336, pair.kv_tokens // 16)
    loop = BatchLoop(Stream(trace, Closed(concurrency), None), policy, cost, limits)
    chunks: list[Rows] = []

    def sink(chunk: Rows) -> bool:
        chunks.append(chunk)
        return True

    assert loop.run(sink)
    assert loop.finished == requests
    states = chunks[-1].states
    steps = np.concatenate([chunk.steps for chunk in chunks])
    for phase, state in steps[:, [2, -1]].tolist():
        assert phase != 0 or state < 0 or states[state].mode == "MB", "no mixed step in exclusive mode"
    return [states[state].mode or "" for state in steps[len(steps) // 2 :, -1].tolist()]


def test_at_low_concurrency_it_stays_mixed() -> None:
    assert set(modes_of(32, {}, 3000)) == {"MB"}


def test_in_saturation_on_the_rtx_pro_6000_it_goes_exclusive() -> None:
    modes = modes_of(2048, {})
    assert modes.count("EB") > 0.9 * len(modes)


def test_delta_decides_against_the_crossover_on_the_engine_too() -> None:
    assert set(modes_of(2048, {"delta": "1"}, 3000)) == {"MB"}
    assert modes_of(32, {"delta": "-1"}, 2000).count("EB") > 1000


def test_costs_without_a_gain_from_exclusive_batching_keep_it_mixed() -> None:
    costs = replace(COSTS, mixed_a_s=1e-6, mixed_b_s=0.0, mixed_c_s=0.0)
    policy, view = ebplus(costs=costs), Counts()
    for _ in range(6):
        complete(policy, 100)
        policy.plan(view)
    assert policy.state().mode == "MB"
