"""One connection: a request's bytes out, the answer's bytes into its `Answer`, with a time a socket read."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Protocol, cast

import httptools

from harness.drive.clock import Clock
from harness.drive.openai_stream import Answer
from harness.drive.retry_after import wait_s
from harness.drive.server_said import line_of, said_by

# Bytes in a row that are no body: a head, the frames around chunks, trailers. The parser joins a header's pieces
# anew with each read, so that a larger limit would let a server take a second of the loop's time.
MAX_HEAD_BYTES = 64 << 10
MAX_ERROR_BYTES = 16 << 10
# In one read: chunks so small are not worth a look each.
_MANY_PIECES = 64
_EVENTS = b"text/event-stream"
# Headers of an answer: what is kept of them and where, and those that say where it ends.
_KEPT = {
    b"content-encoding": "_encoding",
    b"content-type": "_content_type",
    b"retry-after": "_retry_after",
    b"retry-after-ms": "_retry_after_ms",
    b"date": "_date",
    b"x-request-id": "echoed_id",
}
_FRAMING = (b"content-length", b"transfer-encoding")


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
    """A keep-alive HTTP/1.1 connection with at most one request in flight.

    The parser's callbacks only write down what it found. What follows from it happens after the parser has returned:
    so that the next request goes out when every byte of the last answer has been looked at, and so that a fault of
    ours is never taken for one of the server's.
    """

    __slots__ = (
        "_body",
        "_content_type",
        "_date",
        "_encoding",
        "_ended",
        "_fd",
        "_framed",
        "_last_piece",
        "_more",
        "_now",
        "_owner",
        "_parser",
        "_pieces",
        "_read",
        "_refused",
        "_retry_after",
        "_retry_after_ms",
        "_since_body",
        "_streams",
        "answer",
        "echoed_id",
        "made_ns",
        "on_body",
        "requests",
        "status",
        "t_ns",
        "transport",
        "usable",
    )

    def __init__(self, owner: Owner, clock: Clock) -> None:
        self._owner = owner
        self._now = clock.now_ns
        self._fd: int | None = None
        self.transport: asyncio.Transport | None = None
        self.answer: Answer | None = None
        self.requests = 0
        self.made_ns = 0
        self.usable = False
        self._pieces: list[bytes] = []  # of a body, of this read
        self.on_body = self._pieces.append  # called by the parser
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._reset()

    def _reset(self) -> None:
        self._forget_head()
        self.t_ns = 0  # of the last read of this answer, 0 before the first
        self._read = self._since_body = 0  # bytes
        self._ended = self._more = False  # the parser has seen the end of the answer, and something after it
        self._body = b""  # of what is no stream

    def _forget_head(self) -> None:
        self.status = 0
        self._framed = self._streams = False
        self._refused: str | None = None
        self._encoding = self._content_type = self._retry_after = self._retry_after_ms = self._date = b""
        self.echoed_id = b""  # the id that the answer's head bears

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class is no subclass of it
        self.usable = True
        self.made_ns = self._now()
        if transport.get_extra_info("sslcontext") is None:
            self._fd = transport.get_extra_info("socket").fileno()

    @property
    def retry_after_s(self) -> float:
        """What the answer asks to wait before the request is sent again, s."""
        return wait_s(self._retry_after, self._date, self._retry_after_ms, time.time())

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
        answer, parser = self.answer, self._parser
        if answer is None or parser is None:
            # Nobody asked: whatever this is, the connection is out of step.
            self.abandon()
            return
        self.t_ns = t_ns
        size = len(data)
        self._read += size
        self._since_body += size
        wrong = None
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            wrong = "http_101: the server wants to speak another protocol"
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            wrong = f"bad_http: {error}"
        if self._pieces:
            self._bodies(answer, t_ns)
        if self._ended:
            # What follows a whole answer says nothing against it, but nobody knows whose the next one would be.
            self.usable = self.usable and not self._more and wrong is None
            self._whole()
        elif (
            wrong is not None
            or self._refused is not None
            or answer.broken
            or self._since_body > MAX_HEAD_BYTES
            or self._read > answer.most_bytes
        ):
            self._fail(wrong or self._too_much(answer))

    def _bodies(self, answer: Answer, t_ns: int) -> None:
        """Takes the pieces of the answer's body that this read brought."""
        pieces = self._pieces
        self._since_body = 0
        if self._ended:
            del pieces[self._last_piece :]
        if self._streams:
            if len(pieces) > _MANY_PIECES:
                pieces[:] = [b"".join(pieces)]
            for piece in pieces:
                answer.feed(piece, t_ns)
        elif len(self._body) < MAX_ERROR_BYTES:
            self._body = (self._body + b"".join(pieces))[:MAX_ERROR_BYTES]
        pieces.clear()

    def _too_much(self, answer: Answer) -> str:
        """How an answer under way goes beyond what is read of one."""
        if answer.broken and answer.error:
            return answer.error
        if self._since_body > MAX_HEAD_BYTES:
            return f"bad_http: {MAX_HEAD_BYTES:,} bytes without an answer in them"
        if self._read > answer.most_bytes:
            return f"too_large: an answer of more than {answer.most_bytes >> 20:,} MiB"
        return self._refused or ""

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

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._more = self._ended

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if self._ended or self.status:
            return  # of what follows the answer, or a trailer
        name = name.lower()
        field = _KEPT.get(name)
        if field is not None:
            setattr(self, field, value.strip())
        elif name in _FRAMING:
            self._framed = True

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self._ended or self._parser is None:
            return
        self.status = self._parser.get_status_code()
        self.usable = self._parser.should_keep_alive()
        if self.status == 200:
            if self._encoding.lower() not in (b"", b"identity"):
                self._refused = f"content_encoding: {line_of(self._encoding)}, where identity was asked for"
            elif (self._content_type or _EVENTS).lower().startswith(_EVENTS):
                self._streams = True
        if self.status >= 200:
            self._since_body = 0

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self._ended:
            return
        if self.status < 200:
            self._forget_head()  # 100 Continue and its like: the answer is still to come
        else:
            self._ended = True
            self._last_piece = len(self._pieces)

    def _whole(self) -> None:
        answer, self.answer = self.answer, None
        assert answer is not None
        error: str | None
        if self.status != 200:
            wait = f" (Retry-After: {line_of(self._retry_after)})" if self._retry_after else ""
            error = f"http_{self.status}{wait}: {said_by(self._body)}"
        elif not self._streams:
            said = said_by(self._body)
            kind = line_of(self._content_type.lower())
            error = self._refused or f"not_a_stream: an answer of type {kind}{f': {said}' if said else ''}"
        else:
            answer.end(self.t_ns)
            error = None
        self._owner.answered(self, error)

    def _fail(self, error: str) -> None:
        if self.answer is not None:
            self.abandon()
            self._owner.answered(self, error)
