"""What can only be tried beside vLLM: run by the engine's Python, prints {scenario: null or what went wrong}."""

from __future__ import annotations

import copy
import json
import random
import sys
import tempfile
import traceback
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request, RequestStatus

from policies import vllm_plugin
from policies.core import DECODE, MIXED, STEP_COLUMNS, UNLIMITED, Phase, PolicyError, StepPlan, View, WaitingRequest
from policies.online.mixed import Mixed
from policies.plugin import narrow as plugin_narrow
from policies.plugin.asked import PolicyFault
from policies.plugin.narrow import merge_one_shot
from policies.plugin.queue import OrderedQueue, as_waiting, hint_of
from policies.plugin.requirements import SCHEDULER_NAMES, check_names, check_queue
from policies.plugin.setup import read_setup
from policies.vllm_emulated import Replay, engine_config, make_scheduler

BASE = engine_config()


class Erratic(Mixed):
    """Any phase and any admission at any time, but always something where nothing decodes."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.admitted: list[int] = []
        self.finished: list[int] = []

    def plan(self, view: View) -> StepPlan:
        assert view.prefilling == len(view.partial_prefills())
        assert len(view.num_output_tokens()) == len(view.footprints()) == view.decoding
        assert len(list(view.waiting_tokens())) == view.waiting
        if not view.decoding:
            return MIXED
        phase = self.rng.choice([Phase.MIXED, Phase.PREFILL, Phase.DECODE])
        return StepPlan(phase, self.rng.choice([0, 1, 3, UNLIMITED]))

    def on_admit(self, prompt_tokens: int, /) -> None:
        self.admitted.append(prompt_tokens)

    def on_finish(self, output_tokens: int, /) -> None:
        self.finished.append(output_tokens)


class LongestFirst:
    """The largest `high` first; `hold` lets nobody start."""

    def __init__(self) -> None:
        self.front: list[WaitingRequest] = []
        self.rest: list[WaitingRequest] = []
        self.popped: list[WaitingRequest] = []
        self.hold = False

    def push(self, request: WaitingRequest) -> None:
        self.rest.append(request)
        self.rest.sort(key=lambda waiting: -(waiting.hint_high or 0))

    def push_front(self, request: WaitingRequest) -> None:
        self.front.insert(0, request)

    def peek(self, view: View) -> WaitingRequest | None:
        return None if self.hold else next(iter(self), None)

    def pop(self, view: View) -> WaitingRequest:
        request = next(iter(self))
        (self.front or self.rest).remove(request)
        self.popped.append(request)
        return request

    def remove(self, request_id: Hashable) -> None:
        self.front = [request for request in self.front if request.request_id != request_id]
        self.rest = [request for request in self.rest if request.request_id != request_id]

    def __len__(self) -> int:
        return len(self.front) + len(self.rest)

    def __iter__(self) -> Iterator[WaitingRequest]:
        return iter([*self.front, *self.rest])


@contextmanager
def using(policy: Any) -> Iterator[None]:
    """Every scheduler made within has this policy."""
    plugin: Any = vllm_plugin
    stock = plugin.make_policy
    plugin.make_policy = lambda *_: policy
    try:
        yield
    finally:
        plugin.make_policy = stock


def a_job(seed: int, late: bool = False, **other: Any) -> dict[str, Any]:
    """Sixty requests with hints, a small budget and a small cache."""
    rng = random.Random(seed)
    outputs = [rng.randint(1, 60) for _ in range(60)]
    return {
        "prompt": [rng.randint(1, 90) for _ in range(60)],
        "output": outputs,
        "hints": [[max(0, n - 5), n + 5] for n in outputs],
        "arrival_steps": sorted(rng.randint(0, 100) for _ in range(60)),
        "limits": {
            "slots": 12,
            "token_budget": 64,
            "kv_blocks": 34,
            "block_size": 16,
            "max_model_len": 4096,
            "watermark": 0.0,
        },
        "policy": {"name": "v1", "options": {}, "costs": None},
        "async": late,
        "cost": 1,
        **other,
    }


class Watched(Replay):
    """A replay that counts each step again from the requests themselves, and aborts some of them."""

    def __init__(self, job: dict[str, Any], scheduler: Any, abort: random.Random | None) -> None:
        self.ends: list[list[Any]] = []
        super().__init__(job, scheduler, lambda said: self.ends.append(said["end"]), lambda: 1)
        self.abort = abort
        self.told: list[str] = []
        self.aborted: list[str] = []
        self.sent_ids: set[str] = set()
        self.stock = scheduler.schedule
        self.output: Any = None
        scheduler.schedule = self.schedule

    def schedule(self) -> Any:
        if self.abort is not None and self.abort.random() < 0.05 and self.scheduler.requests:
            name = self.abort.choice(sorted(self.scheduler.requests))
            self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            self.aborted.append(name)
            self.ended += 1
        self.output = self.stock()
        self.told += self.output.finished_req_ids
        if self.output.num_scheduled_tokens:
            self.check()
        return self.output

    def check(self) -> None:
        """The row of this step against a count of everything."""
        scheduler, scheduled = self.scheduler, self.output.num_scheduled_tokens
        scheduler.rows.catch_up()
        row = dict(zip(STEP_COLUMNS[2:], scheduler.rows.pending[-1][1], strict=True))
        producing = [scheduler.requests[name] for name in scheduled if not scheduler.requests[name].is_prefill_chunk]
        generated = [len(r._output_token_ids) + r.num_output_placeholders for r in producing] or [0]
        held = [r.num_prompt_tokens + n for r, n in zip(producing, generated, strict=False)] or [0]
        expected = {
            "producing": len(producing),
            "generated_sum": sum(generated),
            "generated_min": min(generated),
            "generated_max": max(generated),
            "footprint_sum": sum(held),
            "footprint_min": min(held),
            "footprint_max": max(held),
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting) + len(scheduler.kv_holding_waiting),
        }
        wrong = {name: (row[name], n) for name, n in expected.items() if row[name] != n}
        assert not wrong, f"step {scheduler.steps}: (written, counted) {wrong}"
        assert row["prefill_tokens"] + row["decode_requests"] == sum(scheduled.values())
        assert len(scheduler.running) == len({r.request_id for r in scheduler.running}) <= scheduler.view.slots

    def check_end(self) -> None:
        """Nothing is left anywhere, and the workers were told of each end once."""
        scheduler = self.scheduler
        scheduler.rows.catch_up()
        assert not scheduler.requests
        assert not scheduler.running
        assert not len(scheduler.waiting)
        assert not len(scheduler.rows.progress)
        assert not scheduler.rows.progress.lagging
        assert not scheduler.view.partly_prefilled
        assert not scheduler.rows.pending
        assert scheduler.view.free_blocks == scheduler.view.total_blocks
        names = [str(end[0]) for end in self.ends if end[7] == "length"]
        assert sorted(self.told) == sorted([*names, *self.aborted]), "finished ids told once each"
        assert len(self.ends) + len(self.aborted) == len(self.job["prompt"])
        for end in self.ends:
            assert end[5] == self.job["output"][end[0]], "a request has all its tokens"


def watched(policy: Any, job: dict[str, Any], abort: random.Random | None = None) -> Watched:
    with using(policy):
        scheduler = make_scheduler(BASE, job)
    run = Watched(job, scheduler, abort)
    run.run()
    run.check_end()
    scheduler.shutdown()
    return run


def fails(error: type[Exception], do: Callable[[], Any]) -> str:
    try:
        do()
    except error as raised:
        return str(raised)
    raise AssertionError(f"no {error.__name__}")


# Scenarios: functions whose names begin with `it_`.


def it_survives_any_plan() -> None:
    counts: Counter[str] = Counter()
    stock = plugin_narrow.merge_one_shot

    def merge(empty: Any, output: Any) -> None:
        counts["merged"] += 1
        counts["merged with something told"] += bool(empty.finished_req_ids or empty.preempted_req_ids)
        stock(empty, output)

    plugin_narrow.merge_one_shot = merge
    try:
        for seed in range(40):
            policy = Erratic(random.Random(seed))
            job = a_job(seed, late=bool(seed % 2))
            run = watched(policy, job, random.Random(seed) if seed % 4 > 1 else None)
            assert len(policy.finished) == len([end for end in run.ends if end[7] == "length"])
            counts["preemptions"] += sum(end[6] for end in run.ends)
            counts["aborted"] += len(run.aborted)
    finally:
        plugin_narrow.merge_one_shot = stock
    for what in ("merged", "merged with something told", "preemptions", "aborted"):
        assert counts[what] > 20, f"{counts}: too few to show anything"


def it_aborts_under_v1_as_stock_does() -> None:
    for seed in range(6):
        run = watched(Mixed(), a_job(seed, late=bool(seed % 2)), random.Random(seed))
        assert run.aborted


def it_takes_an_order_of_the_policys() -> None:
    for late in (False, True):
        order = LongestFirst()
        job = a_job(5, late)
        job["arrival_steps"] = [0] * 60
        run = watched(Mixed(order), job)
        first: list[WaitingRequest] = []
        for one in order.popped:
            if one.num_output_tokens == 0 and one.request_id not in [other.request_id for other in first]:
                first.append(one)
        highs = [one.hint_high or 0 for one in first]
        assert len(highs) == 60
        assert highs == sorted(highs, reverse=True)
        resumed = [one for one in order.popped if one.num_output_tokens]
        assert resumed, "no request was preempted and resumed"
        assert sum(end[6] for end in run.ends) + 60 >= len(order.popped)


def it_removes_an_aborted_request_from_the_order() -> None:
    for seed in range(6):
        order = LongestFirst()
        run = watched(Mixed(order), a_job(seed, late=bool(seed % 2)), random.Random(seed))
        assert run.aborted
        assert not len(order)


def it_counts_all_that_wait_though_nobody_may_start() -> None:
    order = LongestFirst()
    with using(Mixed(order)):
        scheduler = make_scheduler(BASE, a_job(1))
    run = Replay(a_job(1), scheduler, lambda _: None, lambda: 1)
    run.send(0, 0)
    run.send(1, 0)
    order.hold = True
    assert len(scheduler.waiting) == 2
    assert not scheduler.waiting
    assert scheduler.has_requests()
    assert [request.request_id for request in scheduler.waiting] == [str(one.request_id) for one in order]
    told = fails(PolicyFault, scheduler.schedule)
    assert told == ("policy v1 holds 2 requests back at step 0 while nothing can decode: the engine would spin"), told


def it_names_policy_and_step_of_a_fault() -> None:
    class Faulty(Mixed):
        steps = 0

        def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
            self.steps += 1

        def plan(self, view: View) -> StepPlan:
            if self.steps == 7:
                raise ZeroDivisionError("division by zero")
            return MIXED

    told = fails(PolicyFault, lambda: watched(Faulty(), a_job(1)))
    assert told == "policy v1 failed at step 7 in plan: ZeroDivisionError: division by zero", told

    class Deaf(Mixed):
        def on_admit(self, prompt_tokens: int, /) -> None:
            raise KeyError("k")

    told = fails(PolicyFault, lambda: watched(Deaf(), a_job(1)))
    assert told.startswith("policy v1 failed at step 0 when told of it: KeyError"), told

    class Broken(LongestFirst):
        def peek(self, view: View) -> WaitingRequest | None:
            raise IndexError("empty")

    told = fails(PolicyFault, lambda: watched(Mixed(Broken()), a_job(1)))
    assert told == "policy v1 failed at step 0 in order.peek: IndexError: empty", told


def it_does_not_spin() -> None:
    class Idle(Mixed):
        def plan(self, view: View) -> StepPlan:
            return DECODE

    told = fails(PolicyFault, lambda: watched(Idle(), a_job(1)))
    assert "requests back at step 0 while nothing can decode" in told, told


def it_puts_the_view_back_after_a_failure() -> None:
    with using(Erratic(random.Random(0))):
        scheduler = make_scheduler(BASE, a_job(2))
    run = Replay(a_job(2), scheduler, lambda _: None, lambda: 1)
    for row in range(20):
        run.send(row, 0)
    for _ in range(3):
        output = scheduler.schedule()
        run.apply(output, scheduler.view.partly_prefilled.keys() & output.num_scheduled_tokens.keys())
    names = [request.request_id for request in scheduler.running]
    assert len(names) > 1
    stock = scheduler.kv_cache_manager.allocate_slots
    scheduler.kv_cache_manager.allocate_slots = None
    scheduler.asked.policy.plan = lambda _: StepPlan(Phase.PREFILL, 1)
    fails(TypeError, scheduler.schedule)
    scheduler.kv_cache_manager.allocate_slots = stock
    assert [request.request_id for request in scheduler.running] == names
    assert scheduler.max_num_active_reqs == scheduler.view.slots == 12


def it_keeps_what_an_empty_output_says_once() -> None:
    empty = SimpleNamespace(
        finished_req_ids={"a"}, preempted_req_ids={"b"}, free_encoder_mm_hashes=["h"], new_block_ids_to_zero=[3]
    )
    output = SimpleNamespace(
        finished_req_ids=set(), preempted_req_ids=None, free_encoder_mm_hashes=["i"], new_block_ids_to_zero=None
    )
    merge_one_shot(empty, output)
    assert vars(output) == {
        "finished_req_ids": {"a"},
        "preempted_req_ids": {"b"},
        "free_encoder_mm_hashes": ["h", "i"],
        "new_block_ids_to_zero": [3],
    }


def it_reads_hints() -> None:
    def request(hint: Any) -> Any:
        extra = None if hint is None else {"out_hint": hint}
        return SimpleNamespace(
            request_id="r",
            num_prompt_tokens=9,
            _output_token_ids=[1, 2],
            sampling_params=SimpleNamespace(extra_args=extra),
        )

    for hint, bounds in (
        (None, (None, None)),
        (12, (12, 12)),
        ([3, 9], (3, 9)),
        (4.0, (4, 4)),
        ([9, 3], (None, None)),
        (-1, (None, None)),
        ("many", (None, None)),
        ([1, 2, 3], (None, None)),
        (float("nan"), (None, None)),
        (float("inf"), (None, None)),
    ):
        assert hint_of(request(hint)) == bounds, hint
    assert as_waiting(request([3, 9])) == WaitingRequest("r", 9, 2, 3, 9)


def it_refuses_what_it_does_not_know() -> None:
    def made(**changes: Any) -> Callable[[], Any]:
        base = copy.deepcopy(BASE)
        for name, value in changes.items():
            setattr(base.scheduler_config, name, value)
        return lambda: make_scheduler(base, a_job(1))

    assert fails(PolicyError, made(prefill_schedule_interval=3)) == (
        "prefill_schedule_interval is 3: with a policy of ours it must be 1"
    )
    assert "scheduler_reserve_full_isl is off" in fails(PolicyError, made(scheduler_reserve_full_isl=False))
    assert "--scheduling-policy priority" in fails(PolicyError, made(policy="priority"))
    with using(Mixed()):
        scheduler = make_scheduler(BASE, a_job(1))
    check_names(scheduler, Request, "0.99")
    lacking = SimpleNamespace(**{name: 0 for name in SCHEDULER_NAMES if name != "requests"})
    assert "has no Scheduler.requests: the policies know vLLM 0.24 to 0.33" in fails(
        PolicyError, lambda: check_names(lacking, Request, "0.99")
    )
    del scheduler.max_num_active_reqs, scheduler.max_num_running_reqs
    assert "has no Scheduler.max_num_active_reqs or Scheduler.max_num_running_reqs" in fails(
        PolicyError, lambda: check_names(scheduler, Request, "0.99")
    )
    check_queue(OrderedQueue, RequestQueue, "0.99")
    told = fails(PolicyError, lambda: check_queue(deque, RequestQueue, "0.99"))
    assert told.startswith("vLLM 0.99 has RequestQueue.__bool__: the policies know vLLM 0.24 to 0.33"), told


def it_refuses_a_bad_setup() -> None:
    def told(setup: Any) -> str:
        return fails(PolicyError, lambda: read_setup(SimpleNamespace(additional_config={"bench_policy": setup})))

    for setup in (None, {}, "eb", {"name": 3}):
        assert told(setup).startswith("PolicyScheduler needs to know its policy"), setup
    assert told({"name": "eb", "k": 3}) == "bench_policy: unknown key 'k': it has name, options, costs, step_log"
    assert told({"name": "eb", "options": [1]}) == "bench_policy: options is [1]: it must be names and values"
    assert told({"name": "eb", "costs": {"alpha_p_s": 1}}).startswith("bench_policy: costs must have alpha_p_s, beta")


def it_writes_no_log_where_it_cannot() -> None:
    with tempfile.TemporaryDirectory() as folder:
        missing = Path(folder) / "none" / "steps.bin"
        told = fails(PolicyError, lambda: make_scheduler(BASE, a_job(1, step_log=str(missing))))
        assert told == f"step log {missing}: No such file or directory: name a new file in a folder that is there", told
        there = Path(folder) / "steps.bin"
        there.touch()
        assert "File exists" in fails(PolicyError, lambda: make_scheduler(BASE, a_job(1, step_log=str(there))))


def it_fails_when_the_log_cannot_be_written_any_more() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scheduler = make_scheduler(BASE, a_job(1, step_log=str(Path(folder) / "steps.bin")))
        scheduler.rows.log.fault = OSError(28, "No space left on device")
        assert "No space left on device" in fails(PolicyFault, scheduler.schedule)
        scheduler.shutdown()


def main() -> None:
    results: dict[str, str | None] = {}
    for name, scenario in globals().items():
        if name.startswith("it_"):
            try:
                scenario()
                results[name] = None
            except Exception:
                results[name] = traceback.format_exc()
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
