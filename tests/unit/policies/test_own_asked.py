"""A user's policy in the virtual engine: what it sees, its times, its columns, and how its mistakes are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import Rows, joined
from policies.core import PolicyFault
from policies.own import watch
from policies.own.checked import Checked
from policies.own.file import of_bytes
from policies.own.load import make_own
from tests.unit.simulate.test_batch import Millisecond
from workloads.core.arrivals import Closed, Constant
from workloads.core.stream import Stream
from workloads.core.trace import Trace

HEAD = "from policies.own import *\nclass Mine(OwnPolicy):\n"
LIMITS = EngineLimits(4, 64, 100)


def made(body: str, **options: str) -> Checked:
    return make_own(of_bytes("mine.py", "Mine", (HEAD + body).encode()), options, LIMITS.slots, None)


def trace_of(lengths: list[tuple[int, int]]) -> Trace:
    return Trace("t", np.array([p for p, _ in lengths]), np.array([o for _, o in lengths]))


def closed(lengths: list[tuple[int, int]], concurrency: int = 8) -> Stream:
    return Stream(trace_of(lengths), Closed(concurrency), None)


def at(due_ms: list[int], lengths: tuple[int, int] = (4, 5)) -> Stream:
    return Stream(trace_of([lengths] * len(due_ms)), Constant(1.0), np.array(due_ms, dtype=np.int64) * 1_000_000)


def run(policy: Any, stream: Stream, **settings: Any) -> Rows:
    parts: list[Rows] = []
    loop = BatchLoop(stream, policy, Millisecond(), LIMITS, **settings)
    assert loop.run(lambda rows: not parts.append(rows))  # type: ignore[func-returns-value] # None: go on
    return joined(parts)


MIXED_PLAN = "    def plan(self, view): return MIXED\n"


def test_the_policy_of_ten_lines_is_v1() -> None:
    from policies.catalog import make_policy

    stream = closed([(4, 50)] * 30)
    ours, v1 = run(made(MIXED_PLAN), stream), run(make_policy("v1", {}, 4, None), stream)
    assert (ours.steps[:, :-1] == v1.steps[:, :-1]).all()
    assert (ours.requests == v1.requests).all()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("    def plan(self, view): return {}['x']\n", "raised KeyError ('x') at step 0 in plan, line 3 of mine.py"),
        ("    def plan(self, view): return None\n", "returned None in plan: it must be a StepPlan"),
        ("    def plan(self, view): return StepPlan(Phase.MIXED, -1)\n", "admit=-1"),
        ("    def plan(self, view): return StepPlan(Phase.MIXED, 1.5)\n", "admit=1.5"),
        ("    def plan(self, view): return StepPlan(Phase.MIXED, 1, 0)\n", "steps=0"),
        ("    def plan(self, view): return StepPlan(0, 1)\n", "phase=0"),
        ("    def plan(self, view): return StepPlan(Phase.MIXED, 1, again_at_s=float('nan'))\n", "again_at_s=nan"),
        ("    def plan(self, view): return StepPlan(Phase.MIXED, 1, tokens=0)\n", "tokens=0"),
        ("    def plan(self, view): raise SystemExit\n", "raised SystemExit at step 0 in plan"),
        ("    def plan(self, view): return DECODE\n", "holds 8 requests back at step 0 while nothing can decode"),
        ("    def plan(self, view): view.max_tokens\n", "no attribute 'max_tokens'"),
        (f"{MIXED_PLAN}    def on_admit(self, n): 1 / 0\n", "at step 0 in on_admit, line 4"),
        (f"{MIXED_PLAN}    def on_finish(self, n): 1 / 0\n", "in on_finish, line 4"),
        (f"{MIXED_PLAN}    def on_steps(self, *n): 1 / 0\n", "in on_steps, line 4"),
        (f"{MIXED_PLAN}    def state(self): return 3\n", "returned 3 in state"),
        (f"{MIXED_PLAN}    COLUMNS = ('a',)\n    def columns(self): return 'x'\n", "must be 1 finite numbers"),
        (f"{MIXED_PLAN}    COLUMNS = ('a',)\n", "must be 1 finite numbers"),
    ],
)
def test_a_mistake_is_the_policys_and_says_where(body: str, told: str) -> None:
    with pytest.raises(PolicyFault) as fault:
        run(made(body), closed([(4, 50)] * 30))
    assert told in str(fault.value)


def test_every_thousandth_step() -> None:
    body = (
        "    calls = 0\n    def plan(self, view):\n        self.calls += 1\n"
        "        if self.calls == 1000: raise ValueError('every so often')\n        return StepPlan(Phase.MIXED, 4)\n"
    )
    with pytest.raises(PolicyFault, match=r"ValueError \(every so often\) at step 999 in plan, line 6"):
        run(made(body), closed([(4, 50)] * 200))


def test_a_policy_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SLOWEST_S", 0.05)
    monkeypatch.setattr(watch, "LOOKS_EVERY_S", 0.02)
    with pytest.raises(PolicyFault, match=r"has not come back for 0.05 s at step 0 in plan, line [34] of mine.py"):
        run(made("    def plan(self, view):\n        while True: pass\n"), closed([(4, 50)] * 9))


def test_a_policy_that_fills_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LEAST_BYTES", 64 << 20)
    monkeypatch.setattr(watch, "_memory_bytes", lambda: 0)
    monkeypatch.setattr(watch, "LOOKS_EVERY_S", 0.02)
    body = (
        "    def plan(self, view):\n        x = []\n        while len(x) < 999: x.append(bytearray(b'1') * (1 << 20))\n"
    )
    with pytest.raises(PolicyFault, match=r"has taken 0\.\d GiB of memory at step 0 in plan"):
        run(made(body), closed([(4, 50)] * 9))


def test_it_sees_the_time_and_since_when_each_request_waits() -> None:
    body = (
        "    def __init__(self, **given):\n        super().__init__(**given)\n        self.seen = []\n"
        "    def plan(self, view):\n"
        "        self.seen.append((view.now_s, [(r.arrival_s, r.deadline_s) for r in view.waiting_requests()]))\n"
        "        return StepPlan(Phase.MIXED, 1)\n"
    )
    policy = made(body)
    run(policy, at([0, 0, 3]), ttft_s=0.5)
    seen = policy.policy.seen
    assert seen[0] == (0.0, [(0.0, 0.5), (0.0, 0.5)])
    assert [now for now, _ in seen] == sorted(now for now, _ in seen)
    assert [waits for now, waits in seen if now == 0.003] == [[(0.003, 0.503)]]


def test_it_may_hold_all_back_until_a_time() -> None:
    body = (
        "    def plan(self, view):\n"
        "        if view.now_s < 0.01 and not view.decoding:\n"
        "            return StepPlan(Phase.DECODE, 0, UNLIMITED, again_at_s=0.01)\n"
        "        return MIXED\n"
    )
    rows = run(made(body), at([0, 2, 30]))
    assert rows.step_column("t")[0] == 10_000_000
    assert rows.step_column("running")[0] == 2
    assert rows.request_column("sent").tolist() == [0, 2_000_000, 30_000_000]


@pytest.mark.parametrize("again", [0.007, 0.0123456, 0.02])
def test_a_time_to_be_asked_again_is_the_same_whether_or_not_steps_are_leapt_over(again: float) -> None:
    body = (
        "    asked = 0\n"
        "    COLUMNS = ('asked', 'now')\n"
        "    def plan(self, view):\n"
        "        self.asked += 1\n"
        "        self.now = view.now_s\n"
        f"        return StepPlan(Phase.MIXED, UNLIMITED, UNLIMITED, again_at_s=view.now_s + {again})\n"
        "    def columns(self): return self.asked, self.now\n"
    )
    stream = closed([(4, 400), (9, 300), (2, 77)], 3)
    leapt, stepped = run(made(body), stream, leap=True), run(made(body), stream, leap=False)
    assert (leapt.steps == stepped.steps).all()
    assert leapt.states == stepped.states
    times = [state.own[1] for state in leapt.states if state.own is not None]
    assert len(times) > 10
    assert max(np.diff(times)) <= again + 0.001 + 1e-9


def test_its_own_columns_are_in_the_steps() -> None:
    from harness.simulate.rows import step_batch

    body = (
        "    COLUMNS = ('waiting', 'twice')\n"
        "    def plan(self, view):\n        self.w = view.waiting\n        return StepPlan(Phase.MIXED, 1)\n"
        "    def columns(self): return self.w, 2 * self.w\n"
        "    def state(self): return PolicyState(mode='MB', k=3)\n"
    )
    batch = step_batch(run(made(body), closed([(4, 5)] * 6)))
    own = batch.column("policy_own").to_pylist()
    assert own[0] == [6.0, 12.0]
    assert all(twice == 2 * waiting for waiting, twice in own)
    assert set(batch.column("policy_k").to_pylist()) == {3}


ORDERED = (
    "    def __init__(self, **given):\n        super().__init__(**given)\n        self.order = Ranked({rank})\n"
    f"{MIXED_PLAN}"
)


def test_it_hears_what_its_steps_took_where_it_wants_to() -> None:
    body = (
        "    def __init__(self, **given):\n        super().__init__(**given)\n        self.told = []\n"
        f"{MIXED_PLAN}    def on_timed_step(self, *told): self.told.append(told)\n"
    )
    policy = made(body)
    rows = run(policy, closed([(4, 50)] * 30))
    assert sum(told[0] for told in policy.policy.told) in range(len(rows.steps) - 50, len(rows.steps) + 1)
    assert not hasattr(made(MIXED_PLAN), "on_timed_step")


def test_an_order_of_its_own() -> None:
    policy = made(ORDERED.format(rank="lambda r: -r.arrival_s"))
    rows = run(policy, at([0, 0, 0, 0, 1, 1, 2], (40, 3)))
    # The latest first: the third and the fourth, which had to wait from the start, come last.
    assert rows.request_column("row").tolist() == [0, 1, 4, 5, 6, 2, 3]


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ("def peek(self, view): return WaitingRequest(99, 1)", "names a request in order.peek that does not wait"),
        ("def pop(self, view): return self.rest.pop()", "names one request in order.peek and takes out another"),
        ("def peek(self, view): 1 / 0", "raised ZeroDivisionError (division by zero) at step 0 in order.peek"),
        ("def peek(self, view): return None", "holds 8 requests back at step 0"),
    ],
)
def test_an_order_that_is_none(order: str, told: str) -> None:
    text = (
        "from policies.own import *\n"
        "class Order:\n"
        "    def __init__(self): self.rest = []\n"
        "    def push(self, r): self.rest.append(r)\n"
        "    def push_front(self, r): self.rest.insert(0, r)\n"
        "    def peek(self, view): return self.rest[0]\n"
        "    def pop(self, view): return self.rest.pop(0)\n"
        "    def remove(self, i): pass\n"
        "    def __len__(self): return len(self.rest)\n"
        "    def __iter__(self): return iter(self.rest)\n"
        f"    {order}\n"
        f"class Mine(OwnPolicy):\n    def __init__(self, **g):\n        self.order = Order()\n{MIXED_PLAN}"
    )
    policy = make_own(of_bytes("mine.py", "Mine", text.encode()), {}, 4, None)
    with pytest.raises(PolicyFault) as fault:
        run(policy, closed([(4, 50)] * 9))
    assert told in str(fault.value)
