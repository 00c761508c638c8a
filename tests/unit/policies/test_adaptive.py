"""mb and adaptive on the virtual engine: what they admit, and what they make of the costs that they meet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from harness.core.records import PHASES
from harness.profiles.cost import CostModel
from harness.profiles.linear import Linear
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import Rows, joined
from policies.catalog import make_policy, read_policy
from policies.core import PolicyError, PolicyState
from tests.support.batch_models import CHEAP_MIXED, DEAR_MIXED, Flat
from workloads.core.arrivals import Closed, Poisson
from workloads.core.stream import Stream
from workloads.core.trace import Trace


def stream(n: int, output: int, load: int | None, gap_ns: int = 0) -> Stream:
    rng = np.random.default_rng(3)
    prompts = rng.integers(20, 200, n)
    trace = Trace("drawn", prompts.astype(np.int64), (1 + rng.exponential(output, n)).astype(np.int64))
    if load is not None:
        return Stream(trace, Closed(load), None)
    return Stream(trace, Poisson(1.0), np.cumsum(rng.exponential(gap_ns, n)).astype(np.int64))


def play(policy: str, given: Stream, cost: CostModel, kv_blocks: int = 20_000, budget: int = 2048) -> Rows:
    slots = 64
    limits = EngineLimits(slots, budget, kv_blocks)
    parts: list[Rows] = []

    def sink(rows: Rows) -> bool:
        parts.append(rows)
        return True

    assert BatchLoop(given, make_policy(*read_policy(policy), slots, None), cost, limits).run(sink)
    return joined(parts)


def seconds(rows: Rows) -> float:
    return rows.now_ns / 1e9


def test_mb_with_k_1_and_ample_kv_is_v1() -> None:
    given = stream(300, 40, 100)
    ours, v1 = play("mb:k=1", given, Flat()), play("v1", given, Flat())
    assert (ours.steps[:, :-1] == v1.steps[:, :-1]).all()
    assert (ours.requests == v1.requests).all()


def test_a_budget_of_v1_is_a_smaller_budget_of_the_engine() -> None:
    given = stream(200, 40, 100)
    ours, small = play("v1:budget=512", given, Flat()), play("v1", given, Flat(), budget=512)
    assert (ours.steps == small.steps).all()


def test_mb_admits_at_least_k_at_once_while_anything_decodes() -> None:
    rows = play("mb:k=8", stream(300, 40, 100), Flat())
    running, decodes = rows.step_column("running"), rows.step_column("decode_requests")
    admitting = (rows.step_column("prefill_tokens") > 0) & (decodes > 0)
    admitting[:5] = False  # the first fill takes several steps
    assert admitting.sum() > 10
    assert (running - decodes)[admitting].min() >= 8


def modes(rows: Rows) -> Iterator[PolicyState]:
    return (rows.states[i] for i in rows.step_column("state").tolist() if i >= 0)


@pytest.mark.parametrize(("costs", "mode"), [(DEAR_MIXED, "EB"), (CHEAP_MIXED, "MB")])
def test_it_finds_the_mode_that_is_cheaper(costs: object, mode: str) -> None:
    cost = Linear.of(costs, "published")  # type: ignore[arg-type]
    given = stream(1500, 60, 128)
    rows = play("adaptive", given, cost)
    found = [state.mode for state in modes(rows)]
    late = found[len(found) // 2 :]
    assert late.count(mode) > 0.9 * len(late)
    others = {policy: seconds(play(policy, given, cost)) for policy in ("v1", "v0", "eb:k=4", "eb:k=16")}
    assert seconds(rows) <= 1.1 * min(others.values())
    assert seconds(rows) <= 1.04 * others["v1"]
    last = rows.states[-1]
    assert last.k is not None
    assert last.k >= 1
    assert last.probes is not None
    assert last.probes > 0
    assert last.cost_mixed_s is not None
    assert last.cost_exclusive_s is not None
    assert (last.cost_exclusive_s < last.cost_mixed_s) == (mode == "EB")


def test_what_is_plainly_cheaper_is_taken_after_a_few_steps() -> None:
    rows = play("adaptive", stream(300, 60, 128), Linear.of(DEAR_MIXED, "published"))
    phases = [PHASES[phase] for phase in rows.step_column("phase")[:60]]
    assert phases.count("mixed") < 10 < phases.count("prefill")


def test_below_saturation_nobody_waits_longer_for_others_than_half_the_ttft() -> None:
    given = stream(400, 40, None, gap_ns=60_000_000)
    cost = Linear.of(DEAR_MIXED, "published")
    rows = play("adaptive:ttft=0.4", given, cost)
    waits = rows.request_column("first") - rows.request_column("due")
    assert np.quantile(waits, 0.9) / 1e9 < 0.2 + 3 * 0.05


def test_equal_lengths_fill_the_cache_without_giving_way_much() -> None:
    n = 200
    trace = Trace("equal", np.full(n, 50, np.int64), np.full(n, 400, np.int64))
    given = Stream(trace, Closed(100), None)
    cost = Linear.of(DEAR_MIXED, "published")
    ours, v1 = (play(policy, given, cost, kv_blocks=700) for policy in ("adaptive", "v1"))
    assert ours.request_column("preemptions").sum() < 0.5 * v1.request_column("preemptions").sum()
    assert seconds(ours) <= 1.01 * seconds(v1)
    paper, forecast = (play(f"eb:k=4,gate={gate}", given, cost, kv_blocks=700) for gate in ("paper", "forecast"))
    assert seconds(forecast) <= 1.05 * seconds(v1)
    assert seconds(forecast) <= 1.01 * seconds(paper)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mb:k=65", "mb: k=65 is above the 64 slots"),
        ("mb:k=0", "mb: k=0 must be"),
        ("adaptive:ttft=0", "adaptive: ttft=0 must be above 0"),
        ("adaptive:ttft=nan", "adaptive: ttft=nan must be above 0"),
        ("adaptive:k=3", "adaptive: unknown option 'k'"),
        ("eb:gate=both", "eb: gate=both must be forecast or paper"),
    ],
)
def test_what_cannot_be_is_refused(text: str, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        make_policy(*read_policy(text), 64, None)


def test_who_is_left_when_the_queue_runs_dry_waits_for_nobody() -> None:
    rows = play("adaptive", stream(1500, 60, 128), Linear.of(DEAR_MIXED, "published"))
    waiting, running = rows.step_column("waiting"), rows.step_column("running")
    held = (waiting > 0) & (waiting <= 64 - running) & (rows.step_column("prefill_tokens") == 0)
    waited_s = longest_s = 0.0
    for is_held, duration in zip(held.tolist(), rows.step_column("duration").tolist(), strict=True):
        waited_s = waited_s + duration / 1e9 if is_held else 0.0
        longest_s = max(longest_s, waited_s)
    assert held.any()
    assert longest_s < 0.5 + 0.1


def test_prompts_that_leave_no_decode_step_do_not_keep_it_from_learning() -> None:
    rng = np.random.default_rng(3)
    n = 800
    trace = Trace("drawn", rng.integers(400, 900, n), rng.integers(2, 9, n))
    given, cost = Stream(trace, Closed(100), None), Linear.of(DEAR_MIXED, "published")
    rows = play("adaptive", given, cost, budget=1024)
    last = rows.states[-1]
    assert last.mode == "EB"
    assert last.cost_mixed_s is not None
    assert last.cost_exclusive_s is not None
    v1, exclusive = (seconds(play(policy, given, cost, budget=1024)) for policy in ("v1", "eb:k=4"))
    assert seconds(rows) <= 1.2 * exclusive < 0.5 * v1, "one step in seventeen is what it learned from"
