"""A paced OpenAI-style server whose own log is the truth: for users, for tests, and for `bench doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import resource
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import HttpVersion11, web

from harness import __version__
from harness.core.errors import UserError
from harness.mock.answers import ON_PURPOSE, AnswerWriter, Refused, RequestReader, error_event
from harness.mock.http import JSON, Connection, HttpServer, cut_off, error_response, json_response
from harness.mock.log import ServedRequest, write_log
from harness.mock.metrics import CONTENT_TYPE, Metrics
from harness.mock.options import MockOptions
from harness.mock.pacer import Pacer

_LATE_BINS = 24
_STOP_S = 0.2
_STREAM = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class MockServer:
    """The server within a running loop; `serve.running` opens and closes one. `rows` has what was asked, in order."""

    def __init__(self, options: MockOptions) -> None:
        self.options = options
        self.rows: list[ServedRequest] = []
        self.metrics = Metrics(options.model, options.kv_tokens)
        self.url = ""
        count = _counter(options)
        self._reader = RequestReader(options.model, options.max_model_len, options.eos_after, count)
        self._ttft_ms, self._itl_ms, self._jitter = options.ttft_ms, options.itl_ms, options.jitter
        self._slots = asyncio.Semaphore(options.slots) if options.slots else None
        self._created = int(time.time())
        self._conns_before = self._refused = self._writes = 0
        self._late = [0] * _LATE_BINS
        self._stopping = False
        loop = asyncio.get_running_loop()
        self._http = HttpServer(self._handle, loop)
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
        return {
            "conns": self._http.opened - self._conns_before,
            "gen_requests": len(self.rows),
            "recs": len(self.rows),
            "writes": self._writes,
            "active": self.metrics.running,
            "waiting": self.metrics.waiting,
            "tokens": sum(row.output_tokens for row in self.rows),
            "fails": dict(Counter(row.fail for row in self.rows if row.fail)),
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
                return error_response(405, "Method Not Allowed")
            return await self._generate(request, chat=path == "/v1/chat/completions")
        if path in ("/health", "/ping"):
            return web.Response()
        if path == "/v1/models":
            return json_response({"object": "list", "data": [self._model_card()]})
        if path == "/metrics":
            return web.Response(body=self.metrics.text().encode(), headers={"Content-Type": CONTENT_TYPE})
        if path == "/version":
            return json_response({"version": f"bench-mock-{__version__}"})
        if path == "/__stats":
            return json_response(self.stats())
        if path == "/__dump":
            self.dump()
            return json_response(self.stats())
        if path == "/__reset":
            return self._reset(request) if request.method == "POST" else error_response(405, "Method Not Allowed")
        return error_response(404, "Not Found")

    def _model_card(self) -> dict[str, Any]:
        card = {"id": self.options.model, "object": "model", "created": self._created, "owned_by": "bench"}
        return {**card, "root": self.options.model, "parent": None, "max_model_len": self.options.max_model_len}

    def _reset(self, request: web.BaseRequest) -> web.StreamResponse:
        wrong = error_response(400, "ttft and itl are milliseconds, jit is a share from 0 to 1")
        pace = {"ttft": self._ttft_ms, "itl": self._itl_ms, "jit": self._jitter}
        try:
            pace |= {name: float(request.query[name]) for name in pace if name in request.query}
        except ValueError:
            return wrong
        if not (0 <= pace["ttft"] < math.inf and 0 <= pace["itl"] < math.inf and 0 <= pace["jit"] <= 1):
            return wrong
        self._ttft_ms, self._itl_ms, self._jitter = pace["ttft"], pace["itl"], pace["jit"]
        # Requests under way keep rows of their own, which nobody reads any more.
        self.rows = []
        self._conns_before = self._http.opened
        self._writes = self._refused = 0
        self._late = [0] * _LATE_BINS
        return json_response(self.stats())

    async def _generate(self, request: web.BaseRequest, chat: bool) -> web.StreamResponse:
        body = await request.read()
        connection = request.protocol
        assert isinstance(connection, Connection)
        try:
            asked = self._reader.read(body, chat)
        except Refused as refused:
            self._refused += 1
            return error_response(refused.status, refused.message)
        row = ServedRequest(
            seq=len(self.rows),
            conn=connection.number,
            nth_on_conn=connection.requests,
            request_id=request.headers.get("X-Request-Id", ""),
            arrival_ns=connection.read_ns,
            prompt_tokens=asked.prompt_tokens,
        )
        connection.requests += 1
        self.rows.append(row)
        fail = self.options.fail_of(row.seq)
        if fail in ("500", "429"):
            row.fail, row.end_ns = fail, time.perf_counter_ns()
            return error_response(int(fail), ON_PURPOSE)
        try:
            async with self._slot(row):
                answer = AnswerWriter(asked, row.seq, self.options.model, self.options.text, self._created)
                if asked.stream:
                    return await self._stream(request, row, answer, fail)
                return await self._whole(request, row, answer, fail)
        except (asyncio.CancelledError, ConnectionError):
            row.fail = "stop" if self._stopping else "client"
            raise
        finally:
            row.end_ns = time.perf_counter_ns()
            reason = "abort" if row.fail in ("client", "stop") else "error" if row.fail else asked.finish
            self.metrics.finished[reason] += 1

    @contextlib.asynccontextmanager
    async def _slot(self, row: ServedRequest) -> AsyncIterator[None]:
        """A slot of the server, which the request waits for and holds while the block runs."""
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

    def due_ns(self, row: ServedRequest) -> Callable[[int], int]:
        """The due time of each event, counted from the start of the request: an absolute time, so nothing adds up."""
        factor = 1 + self._jitter * (2 * _even(self.options.seed, row.seq) - 1)
        start, ttft, itl = row.start_ns, self._ttft_ms * factor * 1e6, self._itl_ms * factor * 1e6
        return lambda event: start + round(ttft + event * itl)

    async def _stream(
        self, request: web.BaseRequest, row: ServedRequest, answer: AnswerWriter, fail: str
    ) -> web.StreamResponse:
        """An answer event by event, each at its time; of a request that fails on purpose the first half."""
        asked, size = answer.asked, self.options.tokens_per_chunk
        response = web.StreamResponse(headers=_STREAM)
        if request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        await response.prepare(request)
        if asked.chat and self.options.role_early:
            await response.write(answer.role())
        due_of, until, total = self.due_ns(row), self._pacer.until, asked.output_tokens
        usual, event = answer.tokens(size), 0
        while row.output_tokens < total:
            due = due_of(event)
            await until(due)
            if fail and row.output_tokens >= total // 2:
                row.fail = fail
                if fail == "cut":
                    return cut_off(request, response)
                await response.write_eof(error_event())
                return response
            if asked.chat and event == 0 and not self.options.role_early:
                await response.write(answer.role())
            left = total - row.output_tokens
            tokens = usual if left > size else answer.tokens(left, final=True)
            self._note(row, min(left, size), due)
            await response.write(tokens)
            event += 1
        await response.write_eof(answer.tail())
        return response

    async def _whole(
        self, request: web.BaseRequest, row: ServedRequest, answer: AnswerWriter, fail: str
    ) -> web.StreamResponse:
        """An answer in one piece when its last token is due; a failure on purpose comes at half the time."""
        total = answer.asked.output_tokens
        due = self.due_ns(row)(total // 2 if fail else (total - 1) // self.options.tokens_per_chunk)
        await self._pacer.until(due)
        if fail:
            row.fail = fail
            if fail == "cut":
                return cut_off(request, web.Response())
            return error_response(500, ON_PURPOSE)
        body = answer.whole()
        self._note(row, total, due)
        response = web.Response(body=body, content_type=JSON)
        await response.prepare(request)
        await response.write_eof()
        return response

    def _note(self, row: ServedRequest, tokens: int, due_ns: int) -> None:
        now = time.perf_counter_ns()
        if not row.first_ns:
            self.metrics.saw_first_token((now - row.arrival_ns) / 1e9)
        row.wrote(tokens, due_ns, now)
        self.metrics.generation_tokens += tokens
        self.metrics.held_tokens += tokens
        self._writes += 1
        self._late[min(max(now - due_ns, 0) // 1000, (1 << (_LATE_BINS - 1)) - 1).bit_length()] += 1


def _reason(error: OSError) -> str:
    """The system's own words for an error."""
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
    """What counts the tokens of a text, with the tokenizer's special tokens or without."""
    if not options.tokenizer:
        return lambda text, _special: max(1, len(text.encode()) // 4)
    from workloads.text.tokenizer import load_tokenizer

    tokenizer, _ = load_tokenizer(options.tokenizer, options.model)
    return lambda text, special: max(1, len(tokenizer.encode(text, add_special_tokens=special)))
