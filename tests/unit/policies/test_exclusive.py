"""The phase machine of exclusive batching, sentence by sentence, through a small scripted engine."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.profiles.linear import Linear
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import Rows
from policies.catalog import make_policy
from policies.core import Phase, Policy, StepPlan
from policies.online.threshold import throughput_eb
from tests.support.scripted_engine import H200, Engine, fill, machine
from workloads.core.arrivals import Closed
from workloads.core.stream import Stream
from workloads.core.trace import Trace

# "Decode phase: no prompt token is scheduled. It ends when at least k slots are free AND at least k requests wait,
# or when nothing is left to decode and requests wait."


@pytest.mark.parametrize("k", [1, 2, 3, 7, 10])
def test_a_decode_phase_ends_at_k_free_slots_and_k_waiting_and_not_before(k: int) -> None:
    for decoding in range(1, 11):
        for waiting in range(15):
            engine = Engine(waiting=waiting, queue=[10] * waiting, decoding=decoding)
            plan = machine(k).plan(engine)
            starts = 10 - decoding >= k and waiting >= k
            assert plan.phase is (Phase.PREFILL if starts else Phase.DECODE), (decoding, waiting)
            assert plan.admit == (min(10 - decoding, waiting) if starts else 0)


@pytest.mark.parametrize("waiting", [1, 2, 30])
def test_with_nothing_left_to_decode_any_waiting_request_starts_a_phase(waiting: int) -> None:
    plan = machine(7).plan(Engine(waiting=waiting, queue=[10] * waiting))
    assert plan == StepPlan(Phase.PREFILL, min(waiting, 10))


def test_under_light_traffic_it_waits_until_nothing_is_left_to_decode() -> None:
    policy, engine = machine(5), Engine()
    engine.arrive(10)
    assert fill(policy, engine) == [10]
    engine.arrive(10, 10)
    for _ in range(50):
        assert policy.plan(engine).phase is Phase.DECODE
    engine.finish(1)
    assert fill(policy, engine) == [20]


def test_v0_goes_at_once() -> None:
    policy = make_policy("v0", {}, 10, None)
    engine = Engine(waiting=1, queue=[10], decoding=9)
    assert policy.plan(engine) == StepPlan(Phase.PREFILL, 1)
    engine.decoding = 10
    assert policy.plan(Engine(waiting=1, queue=[10], decoding=10)).phase is Phase.DECODE


def test_with_nobody_waiting_it_decodes() -> None:
    for decoding in range(11):
        assert machine(1).plan(Engine(decoding=decoding)).phase is Phase.DECODE


# "Prefill phase: no decode token is scheduled. Waiting requests (first come, first served) are prefilled, in several
# steps where the token budget or a chunk limit asks for it, until the free slots are filled, the queue is empty, or
# the KV gate closes."


def test_a_phase_goes_on_until_the_slots_are_filled() -> None:
    policy, engine = machine(2), Engine(token_budget=30, decoding=4)
    engine.arrive(*[10] * 20)
    assert fill(policy, engine) == [30, 30]
    assert (engine.decoding, engine.waiting) == (10, 14)


def test_a_phase_goes_on_until_the_queue_is_empty() -> None:
    policy, engine = machine(2), Engine(token_budget=25, decoding=1)
    engine.arrive(*[10] * 4)
    assert fill(policy, engine) == [25, 15]
    assert (engine.decoding, engine.waiting) == (5, 0)


def test_who_arrives_during_a_phase_still_joins_it() -> None:
    policy, engine = machine(2), Engine(token_budget=20, decoding=1)
    engine.arrive(10, 10)
    engine.step(policy.plan(engine))
    engine.arrive(10)
    assert policy.plan(engine) == StepPlan(Phase.PREFILL, 1), "one request, fewer than k: the phase is still on"


def test_slots_freed_during_a_phase_are_filled_in_it() -> None:
    policy, engine = machine(3), Engine(token_budget=30, decoding=7)
    engine.arrive(*[10] * 5)
    engine.step(policy.plan(engine))
    engine.finish(1)
    assert policy.plan(engine) == StepPlan(Phase.PREFILL, 1)


def test_a_phase_goes_on_until_the_gate_closes() -> None:
    policy, engine = machine(2, growth_tokens=16.0), Engine(total_blocks=20, free_blocks=20)
    engine.arrive(*[32] * 9)
    # 2 blocks of prompt and 1 of growth each, and growth again for those that run already: 3 n ≤ 20.
    assert fill(policy, engine) == [6 * 32]
    assert (engine.decoding, engine.free_blocks) == (6, 8)


def test_order_is_first_come_first_served_also_where_a_later_one_would_fit() -> None:
    engine = Engine(total_blocks=20, free_blocks=10, decoding=2)
    engine.arrive(16 * 11, 16, 16, 16)
    assert machine(2).plan(engine).phase is Phase.DECODE
    engine.queue = [16, 16 * 11, 16, 16]
    assert machine(2).plan(engine) == StepPlan(Phase.PREFILL, 1)


# "A chunked prompt finishes its prefill before the phase ends. Then back to decode."


@pytest.mark.parametrize("slots", [1, 10])
def test_a_chunked_prompt_finishes_before_the_phase_ends(slots: int) -> None:
    policy, engine = machine(1, slots), Engine(slots=slots, token_budget=100)
    engine.arrive(1050)
    assert fill(policy, engine) == [100] * 10 + [50]
    assert (engine.decoding, engine.prefilling) == (1, 0)


def test_a_chunked_prompt_finishes_also_when_the_gate_has_closed() -> None:
    policy, engine = machine(1, growth_tokens=16.0), Engine(token_budget=100, total_blocks=30, free_blocks=30)
    engine.arrive(250, 250)
    engine.free_blocks = 17
    assert fill(policy, engine) == [100, 100, 50]
    assert (engine.decoding, engine.waiting) == (1, 1)


def test_a_partly_computed_prompt_found_at_the_start_is_finished_first() -> None:
    policy, engine = machine(5), Engine(prefilling=1, partial=150, token_budget=100, decoding=6)
    assert fill(policy, engine) == [100, 50]


# Saturation against form 1.


def saturated(policy: Policy, p0: float, slots: int, prompt: int = 128) -> tuple[float, float]:
    """Requests/s over whole cycles of 30,000 geometric requests in a closed loop of 2N, and 1 ÷ their mean length."""
    rng = np.random.default_rng(11)
    trace = Trace("geometric", np.full(30_000, prompt), rng.geometric(p0, 30_000))
    limits = EngineLimits(slots, token_budget=prompt * slots, kv_blocks=10_000_000)
    loop = BatchLoop(Stream(trace, Closed(2 * slots), None), policy, Linear.of(H200, "published"), limits)
    chunks: list[Rows] = []

    def sink(chunk: Rows) -> bool:
        chunks.append(chunk)
        return True

    loop.run(sink)
    steps = np.concatenate([chunk.steps for chunk in chunks])
    done = np.concatenate([chunk.requests for chunk in chunks])[:, 5]
    assert not (steps[:, 2] == 0).any(), "no mixed step"
    # A cycle starts at a prefill step after a decode step; the first fill and the drain are left out.
    prefill = steps[:, 2] == 1
    starts = steps[1:][prefill[1:] & ~prefill[:-1] & (steps[1:, 6] >= slots), 0]
    begin, end = int(starts[1]), int(starts[-2])
    return int(((done > begin) & (done <= end)).sum()) / (end - begin) * 1e9, 1 / trace.mean_output_tokens


def throughput_of_whole_tokens(theta: float, slots: int, p0: float, mu_l: float) -> float:
    """Form 1 for lengths in whole tokens whose first comes out of the prefill.

    A request of o tokens takes o − 1 decodes; S(t) = (1−p0)^t; of the k admitted p0·k are done at their
    first token, so more than k go through a cycle and further prefill steps follow until all slots decode.
    """
    k = theta * slots
    refills = 1 + max(0.0, math.log(k) / math.log(1 / p0)) if k * p0 > 1 else 1 + (1 - (1 - p0) ** k)
    fixed = refills * H200.alpha_p_s + H200.alpha_d_s * -math.log1p(-theta) / -math.log1p(-p0)
    return 1 / (fixed * (1 - p0) / k + H200.beta_p_s * mu_l + H200.beta_d_s * (1 / p0 - 1))


@pytest.mark.parametrize("p0", [1 / 256, 1 / 64])
@pytest.mark.parametrize("slots", [512, 1024])
@pytest.mark.parametrize("theta", [0.02, 0.1, 0.3, 0.6, 0.8])
def test_saturated_throughput_is_form_1(p0: float, slots: int, theta: float) -> None:
    """Within 2 %, and the rest is known: form 1 counts a decode step for the first token too."""
    k = int(theta * slots)
    got, drawn = saturated(make_policy("eb", {"k": str(k)}, slots, None), p0, slots)
    error = got / throughput_eb(k / slots, slots, drawn, 128.0, H200) - 1
    corrected = got / throughput_of_whole_tokens(k / slots, slots, drawn, 128.0) - 1
    print(f"p0 1/{1 / p0:.0f} N {slots} θ {theta}: form 1 {error:+.2%}, in whole tokens {corrected:+.2%}")
    assert abs(error) < 0.02
    assert abs(corrected) < 0.006
