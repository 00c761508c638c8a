"""A call on a server has one deadline and one size, for the whole of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from harness.drive.endpoint import Endpoint
from harness.engines.serving.fetch import fetch
from tests.support.raw_server import Answers, RawServer, plain, raw_server, raw_server_of

SLOW = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def dripping(head: bytes, part: bytes, every_s: float = 0.05) -> Callable[[RawServer], Answers]:
    """A head, and then without end a part every so often."""

    def make(server: RawServer) -> Answers:
        def answers(_: str, __: bytes) -> Iterator[bytes]:
            yield head
            while not server.ended.is_set():
                yield part
                server.wait(every_s)

        return answers

    return make


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"", b""),
        (SLOW, b"a"),
        (b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"),
        (b"", CONTINUE),
        (CHUNKED, b"1\r\na\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"a"),
    ],
    ids=["silence", "a body", "a head", "informational", "chunks", "without a length"],
)
def test_a_server_that_never_ends_its_answer_is_left(head: bytes, part: bytes) -> None:
    with raw_server_of(dripping(head, part)) as server:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"no whole answer within 0.4 s"):
            fetch(Endpoint(server.url), "/health", 0.4)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("head", "part", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 65536, "more than 1 MiB"),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 1000, "without an answer"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a" * 65536, "without an answer"),
        (b"", CONTINUE * 1000, "without an answer"),
        (CHUNKED + b"0\r\n", b"X-A: b\r\n" * 1000, "more than 1 MiB"),
    ],
)
def test_a_server_that_sends_without_end_is_left(head: bytes, part: bytes, why: str) -> None:
    with raw_server_of(dripping(head, part, 0)) as server, pytest.raises(OSError, match=why):
        fetch(Endpoint(server.url), "/", 30, most_bytes=1 << 20)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nxx",
        CHUNKED + b"ZZ\r\n",
    ],
)
def test_what_is_no_answer_is_an_oserror(answer: bytes) -> None:
    with raw_server(lambda _, __: [answer]) as server, pytest.raises(OSError):  # noqa: PT011 - any line will do
        fetch(Endpoint(server.url), "/", 10)


def test_a_connection_that_is_cut_is_no_whole_answer() -> None:
    def cut(_: str, __: bytes) -> Iterator[bytes]:
        yield SLOW
        raise OSError

    with raw_server(cut) as server, pytest.raises(OSError, match="closed before"):
        fetch(Endpoint(server.url), "/", 10)


def test_answers_of_all_forms() -> None:
    forms = {
        "/length": plain(b"abc"),
        "/chunked": CHUNKED + b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
        "/after-100": CONTINUE + plain(b"abc"),
        "/more-after-it": plain(b"abc") + plain(b"no"),
        "/junk-after-it": plain(b"abc") + b"\0\0",
        "/missing": plain(b"abc", "404 Not Found"),
    }
    with raw_server(lambda asked, _: [forms[asked.removeprefix("GET ")]]) as server:
        for path in forms:
            assert fetch(Endpoint(server.url), path) == (404 if path == "/missing" else 200, b"abc")


def test_a_body_is_posted_and_headers_go_along() -> None:
    with raw_server(lambda _, body: [plain(body)]) as server:
        endpoint = Endpoint(server.url, key="secret-1", headers={"x-team": "secret-2"})
        assert fetch(endpoint, "/detokenize", body=b"{}") == (200, b"{}")
    assert server.asked == ["POST /detokenize"]
    assert b"Authorization: Bearer secret-1" in server.heads[0]
    assert b"x-team: secret-2" in server.heads[0]
