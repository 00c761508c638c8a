"""A paced OpenAI-style server whose own log is the truth: for users, for tests, and for `bench doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import math
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp import HttpVersion11, web

from harness import __version__
from harness.core.errors import UserError
from harness.mock.answers import Answer, Reader, Refused, error_event, error_json
from harness.mock.log import Row, write_log
from harness.mock.metrics import CONTENT_TYPE, Metrics
from harness.mock.pacer import Pacer

FAIL_KINDS = ("500", "429", "cut", "errevent")
_LATE_BINS = 24
_MAX_BODY = 1 << 26
_STOP_S = 0.2
_STREAM = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class MockOptions:
    """How the server behaves; UserError, one line, for a value that cannot be.

    Token j of an answer is due `ttft_ms + j·itl_ms` after the request got its slot, times a factor a request within
    1 ± `jitter` that `seed` and the sequence number decide. `port` 0 takes a free one, `slots` 0 and `fail_every` 0
    mean none, `eos_after` is where an answer ends of itself (0: never) unless `ignore_eos`. `tokenizer` counts text
    prompts (see workloads.tokenizer); without one a token is four bytes.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    ttft_ms: float = 50.0
    itl_ms: float = 20.0
    jitter: float = 0.0
    seed: int = 0
    tokens_per_chunk: int = 1
    role_early: bool = False
    fail_every: int = 0
    fail_kind: str = "500"
    text: str = " the"
    log: Path | None = None
    model: str = "mock"
    tokenizer: str = ""
    slots: int = 0
    eos_after: int = 0
    max_model_len: int = 131_072
    kv_tokens: int = 1_000_000

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise UserError(f"--port {self.port}: give a port from 0 (any free one) to 65535")
        for name, value in (("ttft", self.ttft_ms), ("itl", self.itl_ms)):
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"--{name} {value:g}: give milliseconds, 0 or more")
        if not 0 <= self.jitter <= 1:
            raise UserError(f"--jitter {self.jitter:g}: give a share from 0 to 1")
        at_least = {"seed": 0, "fail_every": 0, "slots": 0, "eos_after": 0, "tokens_per_chunk": 1}
        for name, least in (at_least | {"max_model_len": 2, "kv_tokens": 1}).items():
            if getattr(self, name) < least:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)}: give {least} or more")
        if self.fail_kind not in (*FAIL_KINDS, "mix"):
            raise UserError(f"--fail-kind {self.fail_kind}: give one of {', '.join(FAIL_KINDS)}, mix")
        for name in ("text", "model", "host"):
            if not getattr(self, name):
                raise UserError(f"--{name}: give at least one character")


class _Connection(web.RequestHandler):
    """aiohttp's connection that notes when its socket was read, before anything else runs."""

    __slots__ = ("number", "read_ns", "requests")

    def __init__(self, number: int, manager: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(manager, loop=loop, access_log=None)  # type: ignore[arg-type] # aiohttp takes None, its stubs do not
        self.number, self.requests, self.read_ns = number, 0, 0

    def data_received(self, data: bytes) -> None:
        self.read_ns = time.perf_counter_ns()
        super().data_received(data)


class _Http(web.Server):
    """aiohttp's server, with connections of ours and bodies as long as prompts can be."""

    def __init__(self, handler: Callable[[web.BaseRequest], Any], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(handler, request_factory=self._request, handler_cancellation=True, loop=loop)
        self.opened = 0

    def __call__(self) -> web.RequestHandler:
        self.opened += 1
        return _Connection(self.opened - 1, self, self._loop)

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=_MAX_BODY)


class MockServer:
    """The server within a running loop; `running` opens and closes one."""

    def __init__(self, options: MockOptions) -> None:
        self.options = options
        self.rows: list[Row] = []
        self.metrics = Metrics(options.model, options.kv_tokens)
        self.url = ""
        count = _counter(options)
        self._reader = Reader(options.model, options.max_model_len, options.eos_after, count)
        self._ttft_ms, self._itl_ms, self._jitter = options.ttft_ms, options.itl_ms, options.jitter
        self._slots = asyncio.Semaphore(options.slots) if options.slots else None
        self._created = int(time.time())
        self._conns_before = self._refused = self._writes = 0
        self._late = [0] * _LATE_BINS
        self._stopping = False
        loop = asyncio.get_running_loop()
        self._http = _Http(self._handle, loop)
        self._pacer = Pacer(loop)
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        """Bind and listen; UserError, one line, where the address cannot be had."""
        host, port = self.options.host, self.options.port
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(self._http, host, port, backlog=4096)
        except socket.gaierror as error:
            raise UserError(f"--host {host}: no such address ({error.strerror})") from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UserError(f"port {port} on {host} is taken: give --port another, or 0 for a free one") from None
            raise UserError(f"cannot listen on {host} port {port}: {_reason(error)}: give another address") from None
        bound = self._listener.sockets[0].getsockname()
        self.url = f"http://[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"http://{bound[0]}:{bound[1]}"

    async def stop(self) -> None:
        """Close every connection at once and write the log."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        # Streams under way are cut: a server that dies does not say goodbye either.
        for connection in self._http.connections:
            connection.force_close()
        await self._http.shutdown(_STOP_S)
        self._pacer.close()
        self.dump()

    def dump(self) -> None:
        """Write the log where one was asked for."""
        if self.options.log is not None:
            write_log(self.options.log, self.rows)

    def stats(self) -> dict[str, Any]:
        """The server's counts since the last reset, with the yardstick's names."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        fails: dict[str, int] = {}
        for row in self.rows:
            if row.fail:
                fails[row.fail] = fails.get(row.fail, 0) + 1
        return {
            "conns": self._http.opened - self._conns_before,
            "gen_requests": len(self.rows),
            "recs": len(self.rows),
            "writes": self._writes,
            "active": self.metrics.running,
            "waiting": self.metrics.waiting,
            "tokens": sum(row.output_tokens for row in self.rows),
            "fails": fails,
            "refused": self._refused,
            "cpu_s": round(used.ru_utime + used.ru_stime, 3),
            "mono": time.perf_counter_ns(),
            "rtoff": time.time_ns() - time.perf_counter_ns(),
            "late_us_log2": self._late,
        }

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path in ("/v1/completions", "/v1/chat/completions"):
            if request.method != "POST":
                return _error(405, "Method Not Allowed")
            return await self._generate(request, chat=path == "/v1/chat/completions")
        if path in ("/health", "/ping"):
            return web.Response()
        if path == "/v1/models":
            return _json({"object": "list", "data": [self._card()]})
        if path == "/metrics":
            return web.Response(body=self.metrics.text().encode(), headers={"Content-Type": CONTENT_TYPE})
        if path == "/version":
            return _json({"version": f"bench-mock-{__version__}"})
        if path == "/__stats":
            return _json(self.stats())
        if path == "/__dump":
            self.dump()
            return _json(self.stats())
        if path == "/__reset":
            return self._reset(request) if request.method == "POST" else _error(405, "Method Not Allowed")
        return _error(404, "Not Found")

    def _card(self) -> dict[str, Any]:
        card = {"id": self.options.model, "object": "model", "created": self._created, "owned_by": "bench"}
        return {**card, "root": self.options.model, "parent": None, "max_model_len": self.options.max_model_len}

    def _reset(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            given = {name: float(request.query[name]) for name in ("ttft", "itl", "jit") if name in request.query}
        except ValueError:
            return _error(400, "ttft and itl are milliseconds, jit is a share from 0 to 1")
        ttft, itl = given.get("ttft", self._ttft_ms), given.get("itl", self._itl_ms)
        jitter = given.get("jit", self._jitter)
        if not (0 <= ttft < math.inf and 0 <= itl < math.inf and 0 <= jitter <= 1):
            return _error(400, "ttft and itl are milliseconds, jit is a share from 0 to 1")
        self._ttft_ms, self._itl_ms, self._jitter = ttft, itl, jitter
        # Requests under way keep rows of their own, which nobody reads any more.
        self.rows = []
        self._conns_before = self._http.opened
        self._writes = self._refused = 0
        self._late = [0] * _LATE_BINS
        return _json(self.stats())

    async def _generate(self, request: web.BaseRequest, chat: bool) -> web.StreamResponse:
        body = await request.read()
        connection = request.protocol
        assert isinstance(connection, _Connection)
        try:
            ask = self._reader.read(body, chat)
        except Refused as refused:
            self._refused += 1
            return _error(refused.status, refused.message)
        row = Row(
            seq=len(self.rows),
            conn=connection.number,
            nth_on_conn=connection.requests,
            request_id=request.headers.get("X-Request-Id", ""),
            arrival_ns=connection.read_ns,
            prompt_tokens=ask.prompt_tokens,
        )
        connection.requests += 1
        self.rows.append(row)
        fail = self._fail_of(row.seq)
        if fail in ("500", "429"):
            row.fail, row.end_ns = fail, time.perf_counter_ns()
            return _error(int(fail), "the mock server fails here on purpose")
        try:
            async with self._slot(row):
                answer = Answer(ask, row.seq, self.options.model, self.options.text, self._created)
                if ask.stream:
                    return await self._stream(request, row, answer, fail)
                return await self._whole(request, row, answer, fail)
        except (asyncio.CancelledError, ConnectionError):
            row.fail = "stop" if self._stopping else "client"
            raise
        finally:
            row.end_ns = time.perf_counter_ns()
            reason = "abort" if row.fail in ("client", "stop") else "error" if row.fail else ask.finish
            self.metrics.finished[reason] += 1

    def _fail_of(self, seq: int) -> str:
        every, kind = self.options.fail_every, self.options.fail_kind
        if not every or seq % every != every - 1:
            return ""
        return FAIL_KINDS[seq // every % len(FAIL_KINDS)] if kind == "mix" else kind

    @contextlib.asynccontextmanager
    async def _slot(self, row: Row) -> AsyncIterator[None]:
        metrics = self.metrics
        waited = self._slots is not None and self._slots.locked()
        if self._slots is not None:
            metrics.waiting += 1
            try:
                await self._slots.acquire()
            finally:
                metrics.waiting -= 1
        row.start_ns = time.perf_counter_ns() if waited else row.arrival_ns
        metrics.running += 1
        metrics.prompt_tokens += row.prompt_tokens
        metrics.held_tokens += row.prompt_tokens
        try:
            yield
        finally:
            metrics.running -= 1
            metrics.held_tokens -= row.prompt_tokens + row.output_tokens
            if self._slots is not None:
                self._slots.release()

    def due_ns(self, row: Row) -> Callable[[int], int]:
        """The due time of each event, counted from the start of the request: an absolute time, so nothing adds up."""
        factor = 1 + self._jitter * (2 * _even(self.options.seed, row.seq) - 1)
        start, ttft, itl = row.start_ns, self._ttft_ms * factor * 1e6, self._itl_ms * factor * 1e6
        return lambda event: start + round(ttft + event * itl)

    async def _stream(self, request: web.BaseRequest, row: Row, answer: Answer, fail: str) -> web.StreamResponse:
        ask, size = answer.ask, self.options.tokens_per_chunk
        response = web.StreamResponse(headers=_STREAM)
        if request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        await response.prepare(request)
        if ask.chat and self.options.role_early:
            await response.write(answer.role())
        due_of, until, total = self.due_ns(row), self._pacer.until, ask.output_tokens
        usual, event = answer.tokens(size), 0
        while row.output_tokens < total:
            due = due_of(event)
            await until(due)
            if fail and row.output_tokens >= total // 2:
                row.fail = fail
                if fail == "cut":
                    return _cut(request, response)
                await response.write_eof(error_event())
                return response
            if ask.chat and event == 0 and not self.options.role_early:
                await response.write(answer.role())
            left = total - row.output_tokens
            chunk = usual if left > size else answer.tokens(left, final=True)
            self._note(row, min(left, size), due)
            await response.write(chunk)
            event += 1
        await response.write_eof(answer.tail())
        return response

    async def _whole(self, request: web.BaseRequest, row: Row, answer: Answer, fail: str) -> web.StreamResponse:
        total = answer.ask.output_tokens
        due = self.due_ns(row)(total // 2 if fail else (total - 1) // self.options.tokens_per_chunk)
        await self._pacer.until(due)
        if fail:
            row.fail = fail
            if fail == "cut":
                return _cut(request, web.Response())
            return _error(500, "the mock server fails here on purpose")
        body = answer.whole()
        self._note(row, total, due)
        response = web.Response(body=body, content_type=_JSON)
        await response.prepare(request)
        await response.write_eof()
        return response

    def _note(self, row: Row, tokens: int, due_ns: int) -> None:
        now = time.perf_counter_ns()
        if not row.first_ns:
            self.metrics.saw_first_token((now - row.arrival_ns) / 1e9)
        row.wrote(tokens, due_ns, now)
        self.metrics.generation_tokens += tokens
        self.metrics.held_tokens += tokens
        self._writes += 1
        self._late[min(max(now - due_ns, 0) // 1000, (1 << (_LATE_BINS - 1)) - 1).bit_length()] += 1


def _reason(error: OSError) -> str:
    # asyncio puts the address before the system's own words.
    return (error.strerror or type(error).__name__).split(": ")[-1]


def _even(seed: int, seq: int) -> float:
    """A number in [0, 1) for (seed, sequence number): splitmix64's finish, the same everywhere."""
    mask = (1 << 64) - 1
    word = ((seed << 32) + seq + 1) * 0x9E3779B97F4A7C15 & mask
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & mask
    word = (word ^ word >> 27) * 0x94D049BB133111EB & mask
    return ((word ^ word >> 31) >> 11) / (1 << 53)


def _counter(options: MockOptions) -> Callable[[str, bool], int]:
    if not options.tokenizer:
        return lambda text, _special: max(1, len(text.encode()) // 4)
    from workloads.text.tokenizer import load_tokenizer

    tokenizer, _ = load_tokenizer(options.tokenizer, options.model)
    return lambda text, special: max(1, len(tokenizer.encode(text, add_special_tokens=special)))


def _cut(request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection after what is already written; aiohttp then finds that it cannot finish the answer."""
    if request.transport is not None:
        request.transport.close()
    return response


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type=_JSON)


def _error(status: int, message: str) -> web.Response:
    headers = {"Retry-After": "1"} if status == 429 else None
    return web.Response(status=status, body=error_json(status, message), content_type=_JSON, headers=headers)


@contextlib.asynccontextmanager
async def running(options: MockOptions) -> AsyncIterator[MockServer]:
    """A server that listens while the block runs; its `url` has the port it got."""
    server = MockServer(options)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def serve(options: MockOptions, say: Callable[[str], None] = _say) -> None:
    """Serve until SIGINT or SIGTERM, then close every connection, write the log and return.

    `say` gets one line with the address once the server listens. UserError, one line, where it cannot start or the log
    cannot be written.
    """
    if options.log is not None:
        # Found out now, not after the run that it was to record.
        write_log(options.log, [])
    with contextlib.suppress(ValueError, OSError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # A client that goes away is in the log as `client`; it is no fault to report.
    logging.getLogger("aiohttp.server").addFilter(_no_client_gone)
    with asyncio.Runner(loop_factory=_loop) as runner:
        runner.run(_serve(options, say))


def _no_client_gone(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ConnectionError))


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(options: MockOptions, say: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stop.set)
    async with running(options) as server:
        say(f"mock server for model {options.model} on {server.url} (Ctrl-C stops it)")
        # What start-up left behind need never be looked at again: collections then stay short.
        gc.collect()
        gc.freeze()
        await stop.wait()
