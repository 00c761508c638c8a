"""Each way an answer can be wrong has its own name, and changes nothing for the requests around it."""

from __future__ import annotations

import asyncio

import pytest

from harness.drive.driver import Driver
from harness.drive.settings import Settings
from tests.support.drive_servers import (
    DONE,
    STREAM_HEAD,
    TOKENS,
    Manners,
    Request,
    Server,
    answers,
    chunk,
    delta,
    driven,
    event,
    good,
    plain,
    plan_of,
    streamed,
    token,
    usage,
)

FINE = ("length", None)
ERROR = {"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}}


async def silent(request: Request) -> bool:
    await asyncio.Event().wait()
    return False


async def stalls(request: Request) -> bool:
    request.writer.write(STREAM_HEAD + chunk(token()))
    return await silent(request)


async def cut(request: Request) -> bool:
    request.writer.write(STREAM_HEAD + chunk(token()))
    return False


async def endless_event(request: Request) -> bool:
    request.writer.write(STREAM_HEAD + chunk(token()) + chunk(b'data: {"choices":[{"text":"'))
    for _ in range(100):
        request.writer.write(chunk(b"x" * (1 << 20)))
        await request.writer.drain()
    return False


async def endless_head(request: Request) -> bool:
    request.writer.write(b"HTTP/1.1 200 OK\r\n")
    for _ in range(1000):
        request.writer.write(b"X-More: " + b"x" * 4096 + b"\r\n")
        await request.writer.drain()
    return False


TWO = b"".join(token(index=i) for _ in range(TOKENS) for i in (0, 1))

FAULTS: dict[str, tuple[Manners, str, str]] = {
    "http 500": (answers(plain("500 Oops", b'{"error":{"message":"boom"}}')), "error", "http_500"),
    "http 400": (answers(plain("400 Bad Request", b"no json")), "error", "http_400"),
    "http 429": (answers(plain("429 Slow", b"{}", b"Retry-After: 7\r\n")), "error", "http_429 (Retry-After"),
    "redirect": (answers(plain("307 There", b"", b"Location: /x\r\n")), "error", "http_307"),
    "error event": (answers(streamed(token() + event(ERROR) + DONE)), "error", "error_event"),
    "error object": (answers(streamed(event({"object": "error", "message": "no"}) + DONE)), "error", "error_event"),
    "aborted": (answers(streamed(token(finish="abort") + usage(1) + DONE)), "error", "abort"),
    "no [DONE]": (answers(streamed(good().removesuffix(DONE))), "error", "no_done"),
    "no usage": (answers(streamed(token() * TOKENS + DONE)), "error", "no_usage"),
    "no tokens": (answers(streamed(delta({"role": "assistant", "content": ""}) + DONE)), "error", "no_tokens"),
    "empty body": (answers(streamed(b": nothing\n\n")), "error", "no_tokens"),
    "short": (answers(streamed(good(TOKENS - 1))), "short", "short"),
    "overlong": (answers(streamed(good(TOKENS + 1))), "error", "overlong"),
    "two choices": (answers(streamed(TWO + usage(2 * TOKENS) + DONE)), "error", "overlong"),
    "bad event": (answers(streamed(b"data: {nonsense}\n\n" + good())), "error", "bad_event"),
    "not a stream": (answers(plain("200 OK", b'{"choices":[]}')), "error", "not_a_stream"),
    "gzip": (
        answers(STREAM_HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n" + chunk(b"\x1f\x8b") + b"0\r\n\r\n"),
        "error",
        "content_encoding",
    ),
    "not http": (answers(b"SSH-2.0-OpenSSH\r\n"), "error", "bad_http"),
    "bad chunk": (answers(STREAM_HEAD + chunk(token()) + b"zz\r\n"), "error", "bad_http"),
    "cut": (cut, "error", "cut"),
    "silent": (silent, "timeout", "timeout_first_token"),
    "stalls": (stalls, "timeout", "timeout"),
    "endless event": (endless_event, "error", "event_too_large"),
    "endless head": (endless_head, "error", "bad_http"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_name_and_stays_alone(name: str) -> None:
    manners, finish, error = FAULTS[name]

    async def second(request: Request) -> bool:
        return await (manners if request.id == "1" else answers(streamed(good())))(request)

    # Long enough for the good ones on any machine; only a fault ever waits for them.
    silence = Settings(concurrency=1, timeout_s=1.5, first_token_timeout_s=1.0)
    done = driven(second, plan_of(3), silence)
    assert done.ends[1][0] == finish
    assert (done.ends[1][1] or "").startswith(error)
    assert [done.ends[0], done.ends[2]] == [FINE, FINE]
    assert [len(done.results[i].stamps) for i in (0, 2)] == [TOKENS, TOKENS]


def test_failures_keep_what_the_server_said() -> None:
    done = driven(
        answers(plain("429 Slow", b'{"error":{"message":"quota\\nspent"}}', b"Retry-After: 7\r\n")), plan_of(1)
    )
    assert done.results[0].error == "http_429 (Retry-After: 7): quota spent"
    assert len(done.server.requests) == 1
    done = driven(answers(plain("429 Slow", b'{"error":{"message":"quota spent"}}')), plan_of(1))
    assert done.results[0].error == "http_429: quota spent"


def test_a_429_is_tried_again_only_when_asked_and_counts_from_its_first_send() -> None:
    def once(times: int) -> Manners:
        refused = 0

        async def manners(request: Request) -> bool:
            nonlocal refused
            if refused < times:
                refused += 1
                return await answers(plain("429 Slow", b"{}", b"Retry-After: 0\r\n"))(request)
            return await answers(streamed(good()))(request)

        return manners

    done = driven(once(2), plan_of(1), Settings(retries_429=2))
    assert done.ends == [("length", None)]
    assert len(done.server.requests) == 3
    assert done.driver.retried == 2
    assert len({request.id for request in done.server.requests}) == 1
    refused = driven(once(2), plan_of(1), Settings(retries_429=1)).results[0]
    assert refused.finish == "error"
    assert (refused.error or "").startswith("http_429")


def test_a_run_waits_for_a_request_that_the_server_put_off() -> None:
    gate, refused, seen = asyncio.Event(), list[str](), list[int]()

    async def manners(request: Request) -> bool:
        if request.id == "0" and not refused:
            refused.append(request.id)
            return await answers(plain("429 Slow", b"{}", b"Retry-After-Ms: 200\r\n"))(request)
        await gate.wait()
        return await answers(streamed(good()))(request)

    async def others_end_meanwhile(driver: Driver, server: Server) -> None:
        while not driver._put_off or len(server.requests) < 2:
            await asyncio.sleep(0)
        seen.append(driver.in_flight)
        gate.set()

    settings = Settings(concurrency=2, retries_429=1, timeout_s=20)
    done = driven(manners, plan_of(2), settings, during=others_end_meanwhile)
    assert seen == [2]
    assert done.ends == [FINE] * 2
    assert (done.driver.in_flight, done.driver.retried) == (0, 1)


def test_a_long_head_and_a_long_way_to_the_first_byte_are_counted_apart() -> None:
    gate = asyncio.Event()
    head = STREAM_HEAD[:-2] + b"".join(b"X-More-%d: %b\r\n" % (i, b"x" * 4000) for i in range(10)) + b"\r\n"
    body = good()

    async def manners(request: Request) -> bool:
        # An extension of the first chunk: no body yet.
        request.writer.write(head + b"%x;" % len(body) + b"y" * 40_000)
        await gate.wait()
        request.writer.write(b"\r\n" + body + b"\r\n0\r\n\r\n")
        return True

    async def read_so_far(driver: Driver, server: Server) -> None:
        while not server.requests:
            await asyncio.sleep(0)
        while driver.in_flight and not any(connection._read > 80_000 for connection in driver._flights):
            await asyncio.sleep(0)
        gate.set()

    assert driven(manners, plan_of(1), during=read_so_far).ends == [FINE]


def test_a_put_off_request_is_cancelled_with_the_run() -> None:
    answer = answers(plain("429 Slow", b"{}", b"Retry-After: 3600\r\n"))
    done = driven(answer, plan_of(1), Settings(retries_429=5, max_duration_s=0.05))
    assert [finish for finish, _ in done.ends] == ["cancelled"]


def test_a_connection_is_used_again_after_an_error() -> None:
    for data in (plain("500 Oops", b"{}"), streamed(token() + event(ERROR) + DONE), streamed(good(1))):
        done = driven(answers(data), plan_of(4))
        assert {request.connection for request in done.server.requests} == {1}
        assert done.driver.connections == 1


def test_an_idle_connection_that_was_closed_is_replaced_once() -> None:
    async def closes_on_second(request: Request) -> bool:
        if request.connection == 1 and request.number == 1:
            return False
        request.writer.write(streamed(good()))
        return True

    done = driven(closes_on_second, plan_of(3))
    assert done.ends == [FINE] * 3
    assert done.driver.resent == 1
    assert [request.id for request in done.server.requests] == ["0", "1", "1", "2"]
    assert done.driver.sent == 3


def test_a_fresh_connection_that_closes_without_an_answer_is_a_failure() -> None:
    async def closes(request: Request) -> bool:
        return False

    done = driven(closes, plan_of(3))
    assert done.ends == [("error", "connection_closed")] * 3
    assert done.driver.resent == 0


def test_a_server_that_ends_every_connection() -> None:
    said = STREAM_HEAD[:-2] + b"Connection: close\r\n\r\n" + chunk(good()) + b"0\r\n\r\n"
    unframed = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + good()
    for data in (said, unframed):
        done = driven(answers(data, keep=False), plan_of(4))
        assert done.ends == [FINE] * 4
        assert done.driver.resent == 0


def test_content_length_and_continue() -> None:
    body = plain("200 OK", good(), b"content-type: TEXT/event-stream\r\n")
    done = driven(answers(b"HTTP/1.1 100 Continue\r\n\r\n" + body), plan_of(2))
    assert done.ends == [FINE] * 2


def test_a_server_that_dies_leaves_a_row_for_all_that_was_sent() -> None:
    async def dies_at_tenth(request: Request) -> bool:
        if request.number == 10:
            request.server.die()
            return False
        request.writer.write(streamed(good()))
        return True

    done = driven(dies_at_tenth, plan_of(1000), Settings(concurrency=4, gone_after_s=0.2, timeout_s=20))
    assert done.driver.reason is not None
    assert "refused" in done.driver.reason
    names = {error for _, error in done.ends} - {None}
    assert names <= {"connection_reset", "connection_closed", "connection_refused", "cut", "cancelled"}
    assert "connection_refused" in names
    assert [one.place for one in done.results] == list(range(len(done.results)))
    assert 10 <= len(done.results) < 1000


def test_an_open_loop_outlives_its_server() -> None:
    async def dies(request: Request) -> bool:
        request.server.die()
        return False

    due: list[int] = [i * 10_000_000 for i in range(1000)]
    done = driven(dies, plan_of(1000, due_ns=due), Settings(gone_after_s=0.1, timeout_s=20))
    assert done.driver.reason is not None
    assert all(finish in ("error", "cancelled") for finish, _ in done.ends)
    # Refused connections bring nothing forward: what went out did so when it was due, in its order.
    assert 2 <= len(done.results) < 1000
    assert [one.place for one in done.results] == list(range(len(done.results)))
    start = done.results[0].due_ns
    assert [one.due_ns - start for one in done.results] == due[: len(done.results)]
