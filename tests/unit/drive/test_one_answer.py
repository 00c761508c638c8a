"""One answer, one request: what follows an answer, or is none, never becomes part of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from harness.drive.clock import Clock
from harness.drive.openai_stream import Answer
from harness.drive.settings import Settings
from harness.drive.wire import MAX_HEAD_BYTES, Connection
from tests.support.drive_servers import (
    STREAM_HEAD,
    Manners,
    Request,
    answers,
    chunk,
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
WELL = streamed(good())
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def second_only(manners: Manners) -> Manners:
    async def chosen(request: Request) -> bool:
        return await (manners if request.id == "1" else answers(WELL))(request)

    return chosen


@pytest.mark.parametrize(
    "after",
    [
        WELL,
        WELL * 3,
        streamed(good(1)),
        b"HTTP/1.1 ",
        b"garbage",
        b"\0",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        plain("500 No"),
    ],
)
def test_bytes_after_an_answers_end_close_its_connection(after: bytes) -> None:
    done = driven(second_only(answers(WELL + after)), plan_of(4))
    assert done.ends == [FINE] * 4
    assert [request.connection for request in done.server.requests] == [1, 1, 2, 2]
    assert done.driver.resent == 0


def test_an_empty_line_after_an_answer_is_nothing() -> None:
    done = driven(answers(WELL + b"\r\n"), plan_of(3))
    assert done.ends == [FINE] * 3
    assert done.driver.connections == 1


def test_an_answer_that_nobody_asked_for_closes_its_connection() -> None:
    async def late(request: Request) -> bool:
        request.writer.write(WELL)
        if request.number == 0:
            await request.writer.drain()
            # After the next is due and before it is sent.
            while not request.server.idle_seen:
                await asyncio.sleep(0)
            request.writer.write(streamed(good(1)))
        return True

    async def idle(driver: Any, server: Any) -> None:
        while not server.requests or driver.in_flight:
            await asyncio.sleep(0)
        server.idle_seen = True

    done = driven(late, plan_of(2, due_ns=[0, 300_000_000]), during=idle)
    assert done.ends == [FINE] * 2
    assert [len(one.stamps) for one in done.results] == [3, 3]


async def _endless(request: Request, head: bytes, part: bytes) -> bool:
    request.writer.write(head)
    while True:
        request.writer.write(part)
        await request.writer.drain()


ENDLESS = {
    "a head": (b"HTTP/1.1 200 OK\r\n", b"X-More: b\r\n" * 100, "bad_http"),
    "a header": (b"HTTP/1.1 200 OK\r\nX: ", b"a" * 4096, "bad_http"),
    "informational answers": (b"", CONTINUE * 100, "bad_http"),
    "a trailer": (STREAM_HEAD + chunk(good()) + b"0\r\nX: ", b"a" * 4096, "bad_http"),
    "trailers": (STREAM_HEAD + chunk(good()) + b"0\r\n", b"X-More: b\r\n" * 100, "bad_http"),
    "a chunk's extension": (STREAM_HEAD + b"5;", b"a" * 4096, "bad_http"),
    "heartbeats": (STREAM_HEAD, chunk(b": ping\n\n" * 50_000), "too_large"),
    "tokens": (STREAM_HEAD, chunk(token() * 500), "too_many_tokens"),
    "an error's body": (b"HTTP/1.1 500 No\r\nContent-Length: 99999999999\r\n\r\n", b"a" * 500_000, "too_large"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_has_no_end_is_ended(name: str) -> None:
    head, part, error = ENDLESS[name]
    done = driven(second_only(lambda request: _endless(request, head, part)), plan_of(3), Settings(concurrency=1))
    assert done.ends == [FINE, ("error", error), FINE]


def test_another_protocol_ends_its_request_alone() -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nxxxx"
    done = driven(second_only(answers(switch)), plan_of(3))
    assert done.ends == [FINE, ("error", "http_101"), FINE]


class _Owner:
    next_due = 1 << 62

    def __init__(self) -> None:
        self.told: list[str | None] = []
        self.parsing = False
        self.parsing_when_told: list[bool] = []

    def send_due(self, now_ns: int) -> None:
        pass

    def answered(self, connection: Connection, error: str | None) -> None:
        self.told.append(error)
        self.parsing_when_told.append(self.parsing)

    def lost(self, connection: Connection, error: str | None) -> None:
        pass


class _Transport:
    def get_extra_info(self, name: str) -> object:
        return object()

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


def asked(owner: _Owner) -> Connection:
    connection = Connection(owner, Clock())
    connection.connection_made(_Transport())  # type: ignore[arg-type]
    connection.start(Answer(), b"", b"")
    return connection


def test_the_next_request_goes_out_after_the_parser_has_returned() -> None:
    owner = _Owner()
    connection = asked(owner)
    parser: Any = connection._parser

    class Watched:
        def feed_data(self, data: bytes) -> None:
            owner.parsing = True
            parser.feed_data(data)
            owner.parsing = False

        def __getattr__(self, name: str) -> Any:
            return getattr(parser, name)

    connection._parser = Watched()  # type: ignore[assignment]
    connection.data_received(WELL)
    assert owner.told == [None]
    assert owner.parsing_when_told == [False]


def test_a_fault_of_ours_is_not_taken_for_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    for broken, name in (
        (Answer, "feed"),
        (Answer, "end"),
        (Connection, "on_message_complete"),
        (Connection, "on_header"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(broken, name, fails)
            owner = _Owner()
            with pytest.raises(ZeroDivisionError):
                asked(owner).data_received(WELL)
            assert not owner.told


def test_a_head_in_many_reads_has_a_limit() -> None:
    owner = _Owner()
    connection = asked(owner)
    connection.data_received(b"HTTP/1.1 200 OK\r\nX: ")
    reads = 0
    while not owner.told:
        connection.data_received(b"a" * 1000)
        reads += 1
    assert reads <= MAX_HEAD_BYTES // 1000 + 1


def echoing(name: Callable[[Request], str], header: bool = False) -> Manners:
    async def manners(request: Request) -> bool:
        body = event({"id": "x" if header else name(request), "choices": [{"text": "a"}]}) * 3 + usage(3)
        head = STREAM_HEAD
        if header:
            head = head[:-2] + f"X-Request-Id: {name(request)}\r\n\r\n".encode()
        request.writer.write(head + chunk(body + b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return True

    return manners


@pytest.mark.parametrize("header", [False, True])
def test_an_answer_that_bears_an_id_is_known_by_it(header: bool) -> None:
    for name, echoed in (
        (lambda request: f"cmpl-{request.id}", True),
        (lambda request: request.id, True),
        (lambda _: "cmpl-other", False),
        (lambda request: f"{request.id}9", False),
    ):
        done = driven(echoing(name, header), plan_of(2, id=["row 1", "b-2"]))
        assert done.ends == [FINE] * 2
        assert [one.echoed for one in done.results] == [echoed] * 2


def test_an_answer_without_an_id_says_nothing() -> None:
    body = b'data: {"choices":[{"text":"a"}]}\n\n' * 3 + usage(3) + b"data: [DONE]\n\n"
    assert driven(answers(streamed(body)), plan_of(1)).results[0].echoed is None


def test_an_answer_in_chunks_of_a_byte_is_the_same() -> None:
    owner = _Owner()
    connection = asked(owner)
    answer = connection.answer
    assert answer is not None
    connection.data_received(STREAM_HEAD + b"".join(chunk(bytes([byte])) for byte in good(9)) + b"0\r\n\r\n")
    assert owner.told == [None]
    assert (len(answer.stamps), answer.usage, answer.done) == (9, 9, True)
