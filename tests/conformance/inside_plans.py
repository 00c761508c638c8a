"""Any plan and any order beside vLLM: nothing is lost, counted wrongly or told twice."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from policies.core import PolicyFault, WaitingRequest
from policies.online.mixed import Mixed
from policies.plugin import narrow as plugin_narrow
from policies.vllm_emulated import Replay, make_scheduler
from tests.support.inside_vllm import BASE, Erratic, LongestFirst, a_job, fails, using, watched


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
