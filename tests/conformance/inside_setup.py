"""What the plugin reads of vLLM and of its setup, and what it refuses."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request

from policies.core import PolicyError, WaitingRequest
from policies.online.mixed import Mixed
from policies.plugin.narrow import merge_one_shot
from policies.plugin.queue import OrderedQueue, as_waiting, hint_of
from policies.plugin.requirements import SCHEDULER_NAMES, check_names, check_queue
from policies.plugin.setup import read_setup
from policies.vllm_emulated import make_scheduler
from tests.support.inside_vllm import BASE, a_job, fails, using


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
    known = "name, options, costs, step_log, file, sha256, ttft_s"
    assert told({"name": "eb", "k": 3}) == f"bench_policy: unknown key 'k': it has {known}"
    assert told({"name": "eb", "options": [1]}) == "bench_policy: options is [1]: it must be names and values"
    assert told({"name": "eb", "costs": {"alpha_p_s": 1}}).startswith("bench_policy: costs must have alpha_p_s, beta")
