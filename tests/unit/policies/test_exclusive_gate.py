"""The KV gate of exclusive batching: what it holds back, what a fill that ended at it changes, its reserve."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.core import Phase, StepPlan
from policies.online.controller import UNSEEN_GROWTH_SHARE, ControlOptions, FixedController, OnlineController
from policies.online.exclusive import Exclusive
from policies.online.threshold import growth_reserve
from tests.support.scripted_engine import H200, Engine, fill, machine

# "KV gate: enter a prefill phase only while the free KV holds the prompts to be admitted plus a reserve for the growth
# to the peak; a single request that fits the cache alone is always admitted in the end. Under the gate the phase may
# start with fewer than k requests."


@pytest.mark.parametrize("free", range(60))
def test_the_gate_holds_prompts_and_growth_in_whole_blocks(free: int) -> None:
    """The free blocks hold the prompts, and ceil(growth of all that then run), the watermark and the floor."""
    policy = machine(2, growth_tokens=20.0, floor_blocks=3)
    engine = Engine(total_blocks=100, free_blocks=free, watermark_blocks=2, decoding=3)
    prompts = [40, 17, 1, 16, 100, 30]
    engine.arrive(*prompts)
    plan = policy.plan(engine)
    most = 0
    for n in range(1, 7):
        need = sum(-(-tokens // 16) for tokens in prompts[:n]) + math.ceil((3 + n) * 20 / 16) + 2 + 3
        if need <= free:
            most = n
    assert plan.admit == most
    assert plan.phase is (Phase.PREFILL if most else Phase.DECODE)


def test_the_phase_may_start_with_fewer_than_k_under_the_gate() -> None:
    engine = Engine(total_blocks=30, free_blocks=4, decoding=2)
    engine.arrive(*[32] * 8)
    assert machine(5).plan(engine) == StepPlan(Phase.PREFILL, 2)


def test_one_request_is_admitted_whatever_the_gate_says_when_nothing_runs() -> None:
    policy, engine = machine(5, growth_tokens=1e9, floor_blocks=9), Engine(total_blocks=10, free_blocks=10)
    engine.arrive(160, 16)
    assert policy.plan(engine) == StepPlan(Phase.PREFILL, 1)


def test_the_gate_is_for_admission_only_and_growth_asks_nothing() -> None:
    engine = Engine(total_blocks=30, free_blocks=0, decoding=5)
    assert machine(1).plan(engine).phase is Phase.DECODE


# "Where KV and not N limits the batch […] the threshold is θ·N_eff, with N_eff the batch size that the last fill
# reached if that fill ended at the gate, else N."


def gated(k: int = 5) -> tuple[Exclusive, Engine]:
    """After a fill of 6 of 10 slots that ended at the gate."""
    policy, engine = machine(k), Engine(total_blocks=12, free_blocks=12)
    engine.arrive(*[32] * 40)
    assert fill(policy, engine) == [6 * 32]
    return policy, engine


def test_after_a_fill_that_ended_at_the_gate_slots_count_as_free_from_where_it_ended() -> None:
    policy, engine = gated(k=5)
    assert policy.state().n == 6
    # θ·N_eff = 0.5 · 6 = 3: not with 4 slots free of 10, nor with 5 or 6, though k = 5.
    for decoding in (6, 5, 4):
        assert policy.plan(engine).phase is Phase.DECODE, decoding
        engine.finish(1, blocks_each=2)
    assert engine.decoding == 3
    assert policy.plan(engine) == StepPlan(Phase.PREFILL, 3)


def test_the_waiting_requests_asked_for_shrink_with_the_batch() -> None:
    policy, engine = gated(k=5)
    engine.finish(3, blocks_each=2)
    engine.queue, engine.waiting = [32] * 2, 2
    assert policy.plan(engine).phase is Phase.DECODE
    engine.arrive(32)
    assert policy.plan(engine) == StepPlan(Phase.PREFILL, 3)


def test_a_fill_that_ends_at_the_slots_or_the_queue_counts_all_slots_again() -> None:
    policy, engine = gated(k=5)
    engine.finish(6, blocks_each=2)
    engine.free_blocks = 1000
    engine.queue, engine.waiting = [32] * 30, 30
    fill(policy, engine)
    assert engine.decoding == 10
    assert policy.state().n == 10
    engine.finish(4)
    assert policy.plan(engine).phase is Phase.DECODE
    engine.finish(1)
    assert policy.plan(engine).phase is Phase.PREFILL
    policy, engine = gated(k=5)
    engine.finish(3, blocks_each=2)
    engine.queue, engine.waiting = [32] * 3, 3
    fill(policy, engine)
    assert (engine.waiting, policy.state().n) == (0, 10)


def test_v0_under_the_gate_goes_on_as_soon_as_one_ends() -> None:
    policy, engine = gated(k=1)
    assert policy.plan(engine).phase is Phase.DECODE
    engine.finish(1, blocks_each=2)
    assert policy.plan(engine) == StepPlan(Phase.PREFILL, 1)


def test_reset_forgets_the_last_fill() -> None:
    policy, engine = gated(k=5)
    policy.reset()
    policy.plan(engine)
    assert policy.state().n == 10


def test_the_threshold_is_the_floor_of_theta_times_n_eff() -> None:
    """θ = k/N exactly; with k* = floor(θ*·N*) the threshold is at most one below floor(θ*·N_eff)."""
    for slots in (1, 2, 7, 10, 103, 512, 1024):
        for k in {1, 2, slots // 3, slots // 2, 7 * slots // 10, slots - 1, slots} - {0, -1}:
            if k > slots:
                continue
            for batch in {1, 2, slots // 10, slots // 2, slots - 1, slots} - {0}:
                if batch > slots:
                    continue
                threshold = max(1, _trigger(k, slots, batch))
                assert threshold == max(1, k * batch // slots)
    rng = np.random.default_rng(1)
    for _ in range(500):
        slots, theta = int(rng.integers(1, 2049)), float(rng.uniform(0.01, 0.8))
        batch = int(rng.integers(1, slots + 1))
        threshold = _trigger(max(1, int(theta * slots)), slots, batch)
        assert 0 <= max(1, int(theta * batch)) - threshold <= 1


def _trigger(k: int, slots: int, batch: int) -> int:
    """The fewest free slots at which a machine triggers whose last fill ended at the gate with `batch` running."""
    policy = machine(k, slots)
    policy._n_eff = batch if batch < slots else None
    low, high = 1, batch
    while low < high:
        free = (low + high) // 2
        engine = Engine(slots=slots, decoding=batch - free, waiting=slots)
        if free == batch or policy._triggered(engine, policy.controller.target(engine)):
            high = free
        else:
            low = free + 1
    return low


def test_fewer_slots_than_run_stop_admission_and_count_no_slot_as_free() -> None:
    """N* can fall below what runs already."""
    engine = Engine(decoding=8, waiting=5, queue=[10] * 5)
    assert machine(2, slots=5).plan(engine).phase is Phase.DECODE
    engine.decoding = 4
    assert machine(2, slots=5).plan(engine).phase is Phase.DECODE
    engine.decoding = 3
    assert machine(2, slots=5).plan(engine) == StepPlan(Phase.PREFILL, 2)


# The fixed controller's reserve.


def test_until_thirty_have_completed_a_share_of_the_cache_is_left_free_and_then_the_estimated_growth() -> None:
    engine = Engine(total_blocks=1000, free_blocks=1000)
    controller = FixedController(5, ControlOptions())
    first = controller.target(engine)
    assert (first.k, first.slots, first.theta) == (5, 10, 0.5)
    assert (first.growth_tokens, first.floor_blocks) == (0.0, int(UNSEEN_GROWTH_SHARE * 1000))
    assert controller.target(engine) is first
    controller.estimator.on_admit(100)
    controller.estimator.on_steps(300, 10, 0)
    for _ in range(29):
        controller.estimator.on_finish(100)
    assert controller.target(engine) is first
    controller.estimator.on_finish(100)
    second = controller.target(engine)
    assert (second.k, second.slots, second.floor_blocks) == (5, 10, 0)
    assert second.growth_tokens == growth_reserve(0.5, 0.01, 100.0)
    for _ in range(99):
        controller.estimator.on_finish(100)
        assert controller.target(engine) is second
    controller.estimator.on_finish(100)
    assert controller.target(engine) is not second


def test_v0_needs_no_reserve_before_lengths_are_known() -> None:
    assert FixedController(1, ControlOptions()).target(Engine()).floor_blocks == 0


def test_k_of_all_slots_keeps_a_reserve_too() -> None:
    engine = Engine()
    controller = FixedController(10, ControlOptions())
    controller.estimator.on_admit(100)
    controller.estimator.on_steps(3000, 10, 0)
    for _ in range(30):
        controller.estimator.on_finish(1000)
    assert controller.target(engine).growth_tokens == pytest.approx(math.exp(-0.9) * 1000 - 100)


@pytest.mark.parametrize(
    ("low", "high", "theta"), [(0.01, 0.8, 0.7), (0.01, 0.5, 0.5), (0.75, 0.8, 0.75), (0.3, 0.3, 0.3)]
)
def test_the_first_online_threshold_keeps_the_limits_too(low: float, high: float, theta: float) -> None:
    controller = OnlineController(ControlOptions(theta_min=low, theta_max=high), H200)
    target = controller.target(Engine(slots=100))
    assert (target.theta, target.k, target.slots) == (theta, int(theta * 100), 100)
