"""Little servers with scripted manners, and the bytes of good and bad streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvloop

from harness.drive.bodies import completion_body
from harness.drive.clock import Clock
from harness.drive.driver import Driver
from harness.drive.endpoint import Endpoint
from harness.drive.plan import Plan, Planned
from harness.drive.settings import Result, Settings

TOKENS = 3
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


def token(text: str = " the", finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
    return event({"id": "cmpl-0000002a", "object": "text_completion", "choices": [choice], "usage": None})


def delta(content: dict[str, Any], finish: str | None = None) -> bytes:
    return event({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": content, "finish_reason": finish}]})


def usage(tokens: int, prompt: int = 2) -> bytes:
    return event({"id": "x", "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens}})


DONE = b"data: [DONE]\n\n"


def good(tokens: int = TOKENS) -> bytes:
    return b"".join(token() for _ in range(tokens - 1)) + token(finish="length") + usage(tokens) + DONE


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def streamed(body: bytes) -> bytes:
    """A whole answer with a body in one chunk."""
    return STREAM_HEAD + chunk(body) + b"0\r\n\r\n"


def plain(status: str, body: bytes = b"", headers: bytes = b"Content-Type: application/json\r\n") -> bytes:
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status.encode(), headers, len(body), body)


@dataclass
class Request:
    """A request that has come in whole; `number` counts all of a server's, `connection` its connections."""

    number: int
    connection: int
    head: bytes
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    server: Server

    @property
    def id(self) -> str:
        return self.header(b"x-request-id")

    def header(self, name: bytes) -> str:
        for line in self.head.split(b"\r\n"):
            key, _, value = line.partition(b": ")
            if key.lower() == name:
                return value.decode()
        return ""

    def reset(self) -> None:
        self.writer.transport.abort()


# Writes an answer and says whether the connection stays.
Manners = Callable[[Request], Awaitable[bool]]


def answers(data: bytes, keep: bool = True) -> Manners:
    async def manners(request: Request) -> bool:
        request.writer.write(data)
        return keep

    return manners


@dataclass
class Server:
    manners: Manners
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    listener: asyncio.Server | None = None
    idle_seen: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        with contextlib.suppress(asyncio.CancelledError):
            await self.converse(reader, writer)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = self.connections
        self.writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(
                    int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
                )
                body = await reader.readexactly(size)
                request = Request(len(self.requests), connection, head, body, reader, writer, self)
                self.requests.append(request)
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    keep = await self.manners(request)
                finally:
                    self.in_flight -= 1
                await writer.drain()
                if not keep:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    def die(self) -> None:
        """Nothing listens any more, and every connection is reset."""
        assert self.listener is not None
        self.listener.close()
        for writer in self.writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def serving(
    manners: Manners, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(manners)
    server.listener = await asyncio.start_server(server.serve, host, 0, ssl=tls, limit=1 << 22)
    port = server.listener.sockets[0].getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    server.url = f"{'https' if tls else 'http'}://{name}:{port}"
    try:
        yield server
    finally:
        server.listener.close()
        for writer in list(server.writers):
            writer.transport.abort()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks)


@contextlib.contextmanager
def serving_in_thread(manners: Manners) -> Iterator[Server]:
    """A server with a loop of its own, for clients in other processes."""
    started = threading.Event()
    found: list[Any] = []

    async def main() -> None:
        ending = asyncio.Event()
        async with serving(manners) as server:
            found.extend((server, asyncio.get_running_loop(), ending))
            started.set()
            await ending.wait()

    thread = threading.Thread(target=uvloop.run, args=(main(),))
    thread.start()
    started.wait()
    server, loop, ending = found
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()


def plan_of(count: int, **more: Any) -> list[Planned]:
    """Requests of TOKENS tokens; what `more` names is a value for all or a list of one each."""

    def pick(i: int) -> dict[str, Any]:
        return {name: value[i] if isinstance(value, list) else value for name, value in more.items()}

    body = completion_body("tiny", [1, 2], TOKENS)
    usual: dict[str, Any] = {"due_ns": None, "body": body, "prompt_tokens": 2, "expected_output_tokens": TOKENS}
    return [Planned(**(dict[str, Any](id=str(i), row=i) | usual | pick(i))) for i in range(count)]


@dataclass
class Driven:
    """What a driver in this process did, results in the order of the plan."""

    results: list[Result]
    driver: Driver
    server: Server

    @property
    def ends(self) -> list[tuple[str, str | None]]:
        return [(one.finish, one.error.partition(":")[0] if one.error else None) for one in self.results]


def driven(
    manners: Manners,
    requests: Sequence[Planned],
    settings: Settings | None = None,
    *,
    host: str = "127.0.0.1",
    server_tls: ssl.SSLContext | None = None,
    during: Callable[[Driver, Server], Awaitable[None]] | None = None,
    clock: Clock | None = None,
    **endpoint: Any,
) -> Driven:
    """Drive requests, one at a time where they have no due times, against a server in the same loop."""
    usual = Settings(concurrency=1 if requests[0].due_ns is None else None, timeout_s=20)

    async def main() -> Driven:
        results: list[Result] = []
        plan = Plan.write(requests)
        try:
            async with serving(manners, host, server_tls) as server:
                driver = Driver(
                    plan,
                    list(range(len(plan))),
                    Endpoint(server.url, **endpoint),
                    settings or usual,
                    results.append,
                    clock,
                )
                try:
                    await driver.open()
                    running = asyncio.ensure_future(driver.run((clock or Clock()).now_ns()))
                    if during is not None:
                        await during(driver, server)
                    await running
                finally:
                    await driver.close()
                return Driven(sorted(results, key=lambda one: one.place), driver, server)
        finally:
            plan.close()

    return uvloop.run(main())


# How a good answer ends, a millisecond in ns, and a server that answers well.
FINE = ("length", None)
MS = 1_000_000
answer_well = answers(streamed(good()))
