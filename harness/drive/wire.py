"""One connection: a request's bytes out, the answer's bytes into its `Answer`, with a time a socket read."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol, cast

import httptools
import orjson

from harness.drive.clock import Clock
from harness.drive.openai_stream import Answer, message_of, squeezed

MAX_HEAD_BYTES = 256 << 10
MAX_ERROR_BYTES = 16 << 10
_EVENTS = b"text/event-stream"


class Owner(Protocol):
    """What a connection tells about itself; `next_due` is when the owner next wants to send, ns."""

    next_due: int

    def send_due(self, now_ns: int) -> None:
        """It is past `next_due`: a read may have taken the loop's time from the alarm."""

    def answered(self, connection: Connection, error: str | None) -> None:
        """The answer has ended, whole if `error` is None; a connection that is not `usable` closes."""

    def lost(self, connection: Connection, error: str | None) -> None:
        """The connection is gone; `error` says how an answer under way failed, None where there was none."""


class Connection(asyncio.Protocol):
    """A keep-alive HTTP/1.1 connection with at most one request in flight."""

    __slots__ = (
        "_body",
        "_content_type",
        "_encoding",
        "_fd",
        "_framed",
        "_head_size",
        "_now",
        "_owner",
        "_parser",
        "_retry_after",
        "_streams",
        "answer",
        "made_ns",
        "requests",
        "status",
        "t_ns",
        "transport",
        "usable",
    )

    def __init__(self, owner: Owner, clock: Clock) -> None:
        self._owner = owner
        self._now = clock.now_ns
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._fd: int | None = None
        self.transport: asyncio.Transport | None = None
        self.answer: Answer | None = None
        self.requests = 0
        self.made_ns = 0
        self.usable = False
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.t_ns = 0  # of the last read of this answer, 0 before the first
        self._head_size = 0
        self._framed = self._streams = False
        self._encoding = self._content_type = self._retry_after = b""
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class is no subclass of it
        self.usable = True
        self.made_ns = self._now()
        if transport.get_extra_info("sslcontext") is None:
            self._fd = transport.get_extra_info("socket").fileno()

    @property
    def retry_after_s(self) -> float:
        """What the answer's Retry-After asks to wait, s; a second where it says nothing that is a number of them."""
        try:
            seconds = float(self._retry_after)
        except ValueError:
            return 1.0
        return seconds if 0 <= seconds < 86_400 else 1.0

    def start(self, answer: Answer, head: bytes, body: bytes) -> int:
        """Send a request whose answer goes to `answer`; the time just before its first byte left, ns.

        A connection that has failed says so later, through `lost`.
        """
        assert self.transport is not None
        self._reset()
        self.answer = answer
        self.requests += 1
        sent_ns = self._now()
        if self._fd is None:
            self.transport.write(head + body)
            return sent_ns
        # The loop would write at the end of its turn, after all other callbacks: later than the time taken.
        try:
            written = os.writev(self._fd, (head, body))
        except BlockingIOError:
            written = 0
        except OSError:
            self.transport.abort()
            return sent_ns
        if written < len(head) + len(body):
            self.transport.write((head + body)[written:])
        return sent_ns

    def abandon(self) -> None:
        """Close at once and forget the answer under way: nothing more is told of it."""
        self.answer = None
        self.usable = False
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        t_ns = self._now()
        if t_ns >= self._owner.next_due:
            self._owner.send_due(t_ns)
        if self.answer is None or self._parser is None:
            # Nobody asked: whatever this is, the connection is out of step.
            self.abandon()
            return
        self.t_ns = t_ns
        if not self.status:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD_BYTES and len(data) < self._head_size:
                self._fail("bad_http: a response head without end")
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"bad_http: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.usable = False
        self.transport = None
        # The parser holds our methods: without this a closed connection stays until a collection, and none runs.
        self._parser = None
        if self.answer is None:
            self._owner.lost(self, None)
        elif self.status and not self._framed and exc is None:
            self._whole()
        else:
            self.answer = None
            reset = isinstance(exc, ConnectionResetError | BrokenPipeError)
            if self.status:
                error = f"cut: connection {'reset' if reset else 'closed'} within the answer"
            elif reset:
                error = "connection_reset: before an answer"
            else:
                error = f"connection_closed: {exc or 'before an answer'}"
            self._owner.lost(self, error)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        match name.lower():
            case b"content-encoding":
                self._encoding = value.strip().lower()
            case b"content-type":
                self._content_type = value.strip().lower()
            case b"retry-after":
                self._retry_after = value.strip()
            case b"content-length" | b"transfer-encoding":
                self._framed = True

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        assert self._parser is not None
        self.status = self._parser.get_status_code()
        self.usable = self._parser.should_keep_alive()
        self._streams = self.status == 200 and (self._content_type or _EVENTS).startswith(_EVENTS)
        if self.status == 200 and self._encoding not in (b"", b"identity"):
            self._fail(f"content_encoding: {self._encoding.decode(errors='replace')}, where identity was asked for")

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        answer = self.answer
        if answer is None:
            return
        if self._streams:
            answer.feed(data, self.t_ns)
            if answer.error is not None and answer.broken:
                self._fail(answer.error)
        elif len(self._body) < MAX_ERROR_BYTES:
            self._body += data[:MAX_ERROR_BYTES]

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self.status < 200:
            self.status = 0  # 100 Continue and its like: the answer is still to come
        elif self.answer is not None:
            self._whole()

    def _whole(self) -> None:
        answer, self.answer = self.answer, None
        assert answer is not None
        if self.status != 200:
            error = self._http_error()
        elif not self._streams:
            error = f"not_a_stream: an answer of type {self._content_type.decode(errors='replace')}"
        else:
            answer.end(self.t_ns)
            error = None
        self._owner.answered(self, error)

    def _fail(self, error: str) -> None:
        if self.answer is not None:
            self.abandon()
            self._owner.answered(self, error)

    def _http_error(self) -> str:
        try:
            content = orjson.loads(self._body)
            message = message_of(content) if isinstance(content, dict) else str(content)
        except orjson.JSONDecodeError:
            message = squeezed(self._body[:300].decode(errors="replace"))
        wait = f" (Retry-After: {self._retry_after.decode(errors='replace')})" if self._retry_after else ""
        return f"http_{self.status}{wait}: {message[:300]}"
