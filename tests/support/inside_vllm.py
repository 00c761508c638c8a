"""Beside vLLM's own scheduler, in the engine's Python: policies that do anything, and a replay that counts again."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from vllm.v1.request import RequestStatus

from policies import vllm_plugin
from policies.core import MIXED, STEP_COLUMNS, UNLIMITED, Phase, StepPlan, View, WaitingRequest
from policies.online.mixed import Mixed
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
