"""When requests go out, over which connections, and what is recorded of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from harness.drive.clock import Clock
from harness.drive.driver import Driver
from harness.drive.plan import busiest
from harness.drive.settings import Settings
from tests.support.drive_servers import (
    FINE,
    MS,
    STREAM_HEAD,
    TOKENS,
    Request,
    Server,
    answer_well,
    answers,
    chunk,
    delta,
    driven,
    good,
    plain,
    plan_of,
    streamed,
    usage,
)


def all_at_once(count: int) -> Callable[[Request], object]:
    """Answers nothing before `count` requests are in flight."""
    gate = asyncio.Event()

    async def manners(request: Request) -> bool:
        if request.server.in_flight == count:
            gate.set()
        await gate.wait()
        return await answer_well(request)

    return manners


def test_an_open_loop_sends_what_is_due_whatever_is_in_flight() -> None:
    due: list[int] = [i * MS // 10 for i in range(60)]
    done = driven(all_at_once(60), plan_of(60, due_ns=due), Settings(timeout_s=20))  # type: ignore[arg-type]
    assert done.ends == [FINE] * 60
    start = done.results[0].due_ns
    assert [one.due_ns - start for one in done.results] == due
    assert all(one.sent_ns is not None and one.sent_ns >= one.due_ns for one in done.results)
    assert done.server.most_in_flight == 60


def test_an_open_loop_sends_in_the_order_of_due_times() -> None:
    due: list[int] = [(7 * i % 20) * MS // 4 for i in range(20)]
    done = driven(answer_well, plan_of(20, due_ns=due))
    assert done.ends == [FINE] * 20
    sent = sorted(range(20), key=lambda i: done.results[i].sent_ns or 0)
    assert [due[i] for i in sent] == sorted(due)


def test_a_closed_loop_keeps_its_slots_full_and_no_more() -> None:
    done = driven(all_at_once(5), plan_of(40), Settings(concurrency=5, timeout_s=20))  # type: ignore[arg-type]
    assert done.ends == [FINE] * 40
    assert done.server.most_in_flight == 5
    assert done.server.connections == done.driver.connections == 5


def test_a_closed_loop_request_is_due_when_its_slot_became_free() -> None:
    done = driven(answer_well, plan_of(5))
    assert done.ends == [FINE] * 5
    for before, after in pairwise(done.results):
        assert after.due_ns == before.done_ns
        assert after.sent_ns is not None
        assert after.sent_ns >= after.due_ns


def test_times_are_in_order() -> None:
    done = driven(answer_well, plan_of(5))
    assert done.ends == [FINE] * 5
    for one in done.results:
        assert len(one.stamps) == TOKENS
        assert one.sent_ns is not None
        assert one.done_ns is not None
        assert one.due_ns <= one.sent_ns <= one.stamps[0] <= one.stamps[-1] <= one.done_ns
    driver = done.driver
    assert (driver.sent, driver.output_tokens, driver.resent, driver.retried) == (5, 5 * TOKENS, 0, 0)
    assert driver.max_lag_ns == max((one.sent_ns or 0) - one.due_ns for one in done.results)


@pytest.mark.parametrize("concurrency", [None, 1, 3])
def test_a_turn_waits_for_the_answer_before_it_and_its_think_time(concurrency: int | None) -> None:
    session, turn, think = [5, 5, 5, 6, 6], [0, 1, 2, 0, 1], [0, 3 * MS, 0, 0, MS]
    due = [None if concurrency else 0, None, None, None if concurrency else MS, None]
    requests = plan_of(5, session=session, turn=turn, think_ns=think, due_ns=due)
    done = driven(answer_well, requests, Settings(concurrency=concurrency, timeout_s=20))
    assert done.ends == [FINE] * 5
    one = done.results
    assert all(one[i].due_ns == (one[i - 1].done_ns or 0) + think[i] for i in (1, 2, 4))


def test_a_failed_turn_does_not_hold_up_its_session() -> None:
    async def fails_first(request: Request) -> bool:
        request.writer.write(plain("500 Oops") if request.id == "0" else streamed(good()))
        return True

    done = driven(fails_first, plan_of(2, session=[1, 1], turn=[0, 1]))
    assert done.ends == [("error", "http_500"), FINE]


def test_stopping_sends_nothing_more_and_records_what_is_in_flight() -> None:
    async def first_only(request: Request) -> bool:
        if request.number:
            await asyncio.Event().wait()
        return await answer_well(request)

    async def stop(driver: Driver, server: Server) -> None:
        while len(server.requests) < 3:
            await asyncio.sleep(0)
        driver.stop()

    done = driven(first_only, plan_of(50), Settings(concurrency=2, timeout_s=20), during=stop)
    assert sorted(done.ends, key=str) == sorted([FINE, *[("cancelled", "cancelled")] * 2], key=str)
    assert len(done.server.requests) == 3


def test_nothing_is_sent_after_the_longest_duration_and_what_is_in_flight_ends() -> None:
    gate = asyncio.Event()

    async def held(request: Request) -> bool:
        await gate.wait()
        return await answer_well(request)

    async def open_late(driver: Driver, server: Server) -> None:
        while driver.in_flight != 2 or driver._ending is False:
            await asyncio.sleep(0)
        gate.set()

    done = driven(held, plan_of(50), Settings(concurrency=2, max_duration_s=0.05, timeout_s=20), during=open_late)
    assert done.ends == [FINE] * 2
    assert len(done.server.requests) == 2


def test_a_large_body_goes_out_whole() -> None:
    async def check(request: Request) -> bool:
        assert len(request.body) == 3_000_000
        return await answer_well(request)

    assert driven(check, plan_of(3, body=b" " * 3_000_000)).ends == [FINE] * 3


def test_chat_with_roles_reasoning_and_tools() -> None:
    calls = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}
    parts = [delta({"role": "assistant", "content": ""}), delta({"reasoning_content": "hm"}), delta(calls)]
    body = b"".join(parts) + delta({"content": "x"}, "stop") + usage(TOKENS) + b"data: [DONE]\n\n"
    done = driven(answers(streamed(body)), plan_of(1), chat=True)
    assert done.ends == [("stop", None)]
    assert len(done.results[0].stamps) == TOKENS
    assert done.server.requests[0].head.startswith(b"POST /v1/chat/completions ")


def test_an_early_role_event_starts_no_clock() -> None:
    role = asyncio.Event()

    async def early(request: Request) -> bool:
        request.writer.write(STREAM_HEAD + chunk(delta({"role": "assistant", "content": ""})))
        await role.wait()
        request.writer.write(chunk(good()) + b"0\r\n\r\n")
        return True

    seen: list[int] = []

    async def wait(driver: Driver, server: Server) -> None:
        while not any(connection.t_ns for connection in driver._flights):
            await asyncio.sleep(0)
        seen.append(Clock().now_ns())
        role.set()

    done = driven(early, plan_of(1), during=wait)
    assert done.results[0].stamps[0] > seen[0]


def test_the_busiest_window() -> None:
    assert busiest([0, 1, 2, 10, 11, 12, 13, 30], 4) == 4
    assert busiest([], 4) == 0


def watching(levels: list[int]) -> Callable[[Request], object]:
    """Answers well, and writes down how many are in flight as each request comes."""

    async def manners(request: Request) -> bool:
        levels.append(request.server.in_flight)
        await asyncio.sleep(0)
        return await answer_well(request)

    return manners


@pytest.mark.parametrize("drain", [True, False])
def test_a_schedule_of_concurrency_keeps_each_level(drain: bool) -> None:
    seen: list[int] = []
    settings = Settings(concurrency=6, levels=((0, 2), (10, 6), (40, 1)), drain=drain, timeout_s=20)
    done = driven(watching(seen), plan_of(50), settings)  # type: ignore[arg-type]
    assert done.ends == [FINE] * 50
    one = done.results
    assert max(seen) <= 6
    # Overlaps at the client: at no send are more in flight than the level of its phase allows.
    for first, last, level in ((0, 10, 2), (10, 40, 6), (40, 50, 1)):
        for i in range(first, last):
            sent = one[i].sent_ns or 0
            others = [other for other in one if (other.sent_ns or 0) < sent < (other.done_ns or 0)]
            assert len(others) < level or not drain
        if drain and last < 50:
            assert min(other.sent_ns or 0 for other in one[last:]) >= max(other.done_ns or 0 for other in one[:last])
    assert max(sum((a.sent_ns or 0) <= (b.sent_ns or 0) < (a.done_ns or 0) for a in one) for b in one) == 6


def test_a_phase_with_drain_is_due_when_the_one_before_it_has_ended() -> None:
    done = driven(answer_well, plan_of(8), Settings(concurrency=3, levels=((0, 1), (4, 3)), drain=True, timeout_s=20))
    assert done.ends == [FINE] * 8
    assert [one.due_ns for one in done.results[4:7]] == [done.results[3].done_ns] * 3
