"""Who starts next: the ranked queue, and the guard's cases by hand, on both sides and in both footprints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from policies.core import DECODE, MIXED, PartialPrefill, Phase, WaitingRequest
from policies.online.guard import GuardOptions
from policies.online.guarded_queue import GuardedQueue
from policies.online.isjl import Isjl
from policies.online.orders import Ranked, expected


@dataclass(slots=True)
class Batch:
    """What runs: (prompt, output so far) of each request that decodes, and those still prefilled."""

    held: list[tuple[int, int]] = field(default_factory=list)
    parts: list[PartialPrefill] = field(default_factory=list)
    slots: int = 4
    token_budget: int = 1000
    block_size: int = 16
    total_blocks: int = 1000
    free_blocks: int = 1000
    watermark_blocks: int = 0
    waiting: int = 0
    prefilling: int = 0
    decoding: int = 0

    def __post_init__(self) -> None:
        self.decoding, self.prefilling = len(self.held), len(self.parts)

    def waiting_tokens(self) -> Iterator[int]:
        return iter(())

    def num_output_tokens(self) -> list[int]:
        return sorted((age for _, age in self.held), reverse=True)

    def footprints(self) -> list[int]:
        return sorted((prompt + age for prompt, age in self.held), reverse=True)

    def partial_prefills(self) -> list[PartialPrefill]:
        return self.parts


def started(order: GuardedQueue, view: Batch) -> list[object]:
    """Who starts in the next step, in order, were there no other limits."""
    order.look(view)
    return [order.pop(view).request_id for _ in iter(lambda: order.peek(view) is not None, False)]


def job(name: str, high: int | None = None, prompt: int = 1, generated: int = 0) -> WaitingRequest:
    return WaitingRequest(name, prompt, generated, high, high)


def guarded(
    alpha: int, *jobs: WaitingRequest, preempted: tuple[WaitingRequest, ...] = (), **options: object
) -> GuardedQueue:
    order = GuardedQueue(GuardOptions(alpha, **options))  # type: ignore[arg-type]
    for request in jobs:
        order.push(request)
    for request in preempted:
        order.push_front(request)
    return order


def test_ranked_goes_by_rank_then_arrival_and_preempted_ones_go_first() -> None:
    view, order = Batch(), Ranked(expected)
    for name, high in (("a", 5), ("b", 3), ("c", None), ("d", 3), ("e", 1)):
        order.push(job(name, high))
    order.push_front(job("p", 99))
    order.push_front(job("q", 99))
    order.remove("e")
    order.remove("q")
    assert len(order) == 5
    expected_order = ["p", "b", "d", "a", "c"]
    assert [one.request_id for one in order] == expected_order
    assert [order.pop(view).request_id for _ in range(5)] == expected_order
    assert order.peek(view) is None
    order.push(job("e", 7))  # aborted once, sent again
    order.push(job("f", 6))
    assert [order.pop(view).request_id for _ in range(2)] == ["f", "e"]


@pytest.mark.parametrize(("oldest", "starts"), [(9, ["a"]), (10, ["a"]), (11, [])])
def test_a_fresh_one_starts_beside_one_of_at_most_alpha_tokens(oldest: int, starts: list[str]) -> None:
    """After the step the oldest has one token more and the fresh one its first."""
    assert started(guarded(10, job("a", 5)), Batch([(1, oldest), (1, 3)])) == starts


@pytest.mark.parametrize(("youngest", "starts"), [(19, []), (20, ["p"]), (39, ["p"]), (40, ["p"]), (41, [])])
def test_one_that_was_preempted_is_held_against_the_youngest_too(youngest: int, starts: list[str]) -> None:
    order = guarded(10, preempted=(job("p", 99, generated=30),))
    assert started(order, Batch([(1, youngest), (1, 40 if youngest <= 40 else 41)])) == starts


@pytest.mark.parametrize(("prompt", "starts"), [(1, ["a"]), (24, ["a"]), (27, ["a"]), (28, [])])
def test_each_chunk_of_a_prompt_is_a_step_that_the_others_advance(prompt: int, starts: list[str]) -> None:
    """Budget 5, two decode: 3 tokens of the prompt a step; the ninth such step finds the others at 11."""
    view = Batch([(1, 2), (1, 2)], token_budget=5)
    assert started(guarded(10, job("a", 5, prompt)), view) == starts


@pytest.mark.parametrize(("youngest", "starts"), [(4, []), (5, ["p"])])
def test_a_prompt_that_others_leaving_would_hasten_is_held_against_the_fewest_steps(
    youngest: int, starts: list[str]
) -> None:
    """40 tokens at a budget of 8 take 6 steps more beside two decodes, 5 if those end: 21 against 5 + 1 + 5."""
    order = guarded(10, preempted=(job("p", 99, prompt=20, generated=20),))
    assert started(order, Batch([(1, youngest), (1, 20)], token_budget=8)) == starts


def test_what_a_half_computed_prompt_leaves_of_the_budget_is_all_there_is() -> None:
    part = PartialPrefill(tokens_left=7, num_prompt_tokens=50, num_output_tokens=0)
    order = guarded(100, job("a", 5, 3), job("b", 4, 3))
    assert started(order, Batch([(1, 1)], [part], token_budget=8)) == []
    assert started(order, Batch([(1, 1)], [part], token_budget=9)) == ["a"]


def test_a_half_computed_prompt_counts_as_running() -> None:
    part = PartialPrefill(tokens_left=2, num_prompt_tokens=50, num_output_tokens=30)
    assert started(guarded(10, job("a", 5)), Batch([], [part])) == []
    assert started(guarded(30, job("a", 5)), Batch([], [part])) == ["a"]


@pytest.mark.parametrize(("prompt", "starts"), [(88, []), (89, ["a"]), (119, ["a"]), (120, [])])
def test_the_kv_footprint_is_guarded_on_both_sides(prompt: int, starts: list[str]) -> None:
    """Beside 99 and 109 tokens, after the step 100 and 110, and its own prompt and a token."""
    assert started(guarded(20, job("a", 5, prompt), kv=True), Batch([(95, 4), (100, 9)])) == starts


def test_those_that_start_together_are_held_against_each_other() -> None:
    order = guarded(20, job("a", 9, 100), job("b", 8, 121), job("c", 7, 79), job("d", 6, 115), kv=True)
    assert started(order, Batch()) == ["a", "d"]
    assert [one.request_id for one in order] == ["b", "c"]


def test_exclusive_prefill_lets_nobody_advance_meanwhile() -> None:
    assert started(guarded(0, job("a", 5, 999), exclusive=True), Batch([(1, 1)], token_budget=5)) == ["a"]
    assert started(guarded(0, job("a", 5), exclusive=True), Batch([(1, 2)])) == []


def test_a_batch_opens_with_the_longest_and_puts_shorts_before_the_others() -> None:
    """α = 10, plan 1: leaders 40, 35 and 20 on three slots, due at 0, 5 and 10; the short of 9 fits the third only."""
    jobs = (job("s", 9), job("l3", 20), job("l1", 40), job("x", 2), job("l2", 35), job("y", 10))
    order = guarded(10, *jobs, plan=1.0)
    assert started(order, Batch(slots=3)) == ["l1", "x", "y"]
    assert len(order) == 3


def test_without_a_plan_leaders_start_at_once() -> None:
    jobs = (job("s", 9), job("l2", 20), job("l1", 40))
    assert started(guarded(10, *jobs, plan=0.0), Batch(slots=3)) == ["l1", "l2", "s"]
    unknown = (job("a"), job("b"), job("c"))
    assert started(guarded(10, *unknown, plan=0.7), Batch(slots=2)) == ["a", "b"]


def test_a_leader_starts_when_its_short_has_ended_and_goes_back_when_it_is_too_late() -> None:
    for oldest, lenient, starts in ((4, False, ["l2"]), (11, False, []), (11, True, ["l2"])):
        order = guarded(10, job("l1", 99), job("l2", 50), job("s", 4), plan=1.0, lenient=lenient)
        assert started(order, Batch(slots=2)) == ["l1", "s"]
        order.clock = oldest
        assert started(order, Batch([(1, oldest)], slots=2)) == starts
        assert [one.request_id for one in order] == ([] if starts else ["l2"])


def test_who_is_overdue_goes_first_and_lets_nobody_past() -> None:
    def waiting() -> GuardedQueue:
        order = guarded(10, job("old", 1), max_wait=50)
        order.clock = 50
        order.push(job("new", 99))
        return order

    order = waiting()
    assert started(order, Batch(slots=1)) == ["new"]
    order = waiting()
    order.clock = 51
    assert started(order, Batch(slots=1)) == ["old"]
    order = guarded(10, job("old", 1, prompt=500), max_wait=50, kv=True)
    order.clock = 51
    order.push(job("new", 99, prompt=5))
    assert started(order, Batch([(5, 1)])) == []
    assert started(order, Batch()) == ["old"]


def test_aborted_requests_are_gone_wherever_they_wait() -> None:
    order = guarded(10, job("l1", 99), job("l2", 50), job("l3", 40), job("s", 4), job("t", 1), plan=1.0)
    order.push_front(job("p", 5))
    order.remove("p")
    assert started(order, Batch(slots=3)) == ["l1", "s", "t"]
    order.remove("l2")
    order.remove("l3")
    assert len(order) == 0
    assert list(order) == []
    order.clock = 4
    assert started(order, Batch([(1, 4)], slots=3)) == []


def test_ljf_takes_the_longest_together_and_nobody_beside_them() -> None:
    policy = Isjl(GuardOptions(0, plan=0.0, exclusive=True))
    for one in (job("a", 3), job("b", 9), job("c", 5)):
        policy.order.push(one)
    view = Batch(slots=2)
    assert policy.plan(view).phase is Phase.PREFILL
    assert [policy.order.pop(view).request_id for _ in range(2)] == ["b", "c"]
    assert policy.plan(Batch([(1, 1)], slots=2)).phase is Phase.PREFILL, "the fill may go on before anyone decodes"
    assert policy.plan(Batch([(1, 2)], slots=2)) is DECODE
    assert Isjl(GuardOptions(5)).plan(view) is MIXED


@pytest.mark.parametrize(("exclusive", "clock"), [(False, 8 + 8 + 8), (True, 8 + 8)])
def test_the_clock_counts_the_steps_by_which_those_that_run_advance(exclusive: bool, clock: int) -> None:
    policy = Isjl(GuardOptions(5, exclusive=exclusive))
    for steps, decodes, first in itertools.product((1, 7), (0, 3), (0, 2)):
        policy.on_steps(steps, decodes, 3, first)
    assert policy.order.clock == clock


def test_a_leader_starts_though_its_short_ended_before_anyone_thought() -> None:
    order = guarded(10, job("l1", 99), job("l2", 50), job("s", 4), plan=1.0)
    assert started(order, Batch(slots=2)) == ["l1", "s"]
    order.clock = 1
    assert started(order, Batch(slots=2)) == ["l2"], "both ended after a token"


@pytest.mark.parametrize(("prompt", "starts"), [(12, ["l1", "s"]), (22, ["l1", "l2"])])
def test_a_short_counts_its_chunks_against_the_time_of_its_leader(prompt: int, starts: list[str]) -> None:
    """9 of the step's 10 tokens are left; a rest of 3 takes one step more at 9 a step, one of 13 takes two."""
    order = guarded(10, job("l1", 99), job("l2", 50), job("s", 9, prompt), plan=1.0)
    assert started(order, Batch(slots=2, token_budget=10))[:2] == starts


def test_who_comes_after_the_look_waits_for_the_next_step() -> None:
    view, order = Batch([(1, 1)]), guarded(10, job("a", 5))
    assert started(order, view) == ["a"]
    order.look(Batch([(1, 50)]))
    order.push(job("b", 5))
    assert order.peek(view) is None
