"""Connections to one server: opened ahead, kept alive, the one used last first, no limit of its own."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import Protocol

from harness.drive.clock import Clock
from harness.drive.endpoint import Endpoint
from harness.drive.wire import Connection, Owner

# Connections being opened at once before the start; a server's accept queue may be short.
_OPENING = 64
_MOST_AHEAD = 4096
# The loop closes sockets within a few turns; nothing waits for more.
_CLOSING_TURNS = 100


class StartError(Exception):
    """The server cannot be reached; one line that says why."""


class Waiters(Owner, Protocol):
    """What a pool tells about connections that it was asked for."""

    def ready(self, connection: Connection) -> bool:
        """A connection is free: whether it was taken."""

    def not_connected(self, error: str, gone_s: float) -> None:
        """A connection asked for cannot be had; the server has refused for `gone_s` seconds."""


class Pool:
    """Idle connections and those being opened; `take` one, `give` it back."""

    def __init__(self, endpoint: Endpoint, owner: Waiters, clock: Clock, timeout_s: float) -> None:
        self.opened = 0
        self._endpoint = endpoint
        self._owner = owner
        self._clock = clock
        self._timeout_s = timeout_s
        self._context = endpoint.context()
        self._address = ""  # of the server, once it is found
        self._idle: dict[Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._all: set[Connection] = set()
        self._spare = 0
        self._refused_since: int | None = None

    async def open(self, count: int, spare: int) -> None:
        """Find the server and open `count` connections; keep `spare` idle ones from then on."""
        await self._resolve()
        self._spare = min(max(spare, 1), _MOST_AHEAD) if spare else 0
        gate = asyncio.Semaphore(_OPENING)

        async def open_idle() -> None:
            async with gate:
                connection = await self._connect()
            self._idle[connection] = None

        wanted = min(count, _MOST_AHEAD) - len(self._idle)
        for failure in await asyncio.gather(*(open_idle() for _ in range(wanted)), return_exceptions=True):
            if isinstance(failure, OSError) and failure.errno == errno.EMFILE:
                raise StartError(f"{count} connections need more open files than allowed: raise `ulimit -n`")
            # Where the server takes fewer at once than we would open, the rest is opened on demand.
            if isinstance(failure, BaseException) and not isinstance(failure, OSError):
                raise failure

    def take(self) -> Connection | None:
        """An idle connection; None where there is none, and then one is on its way to `ready`."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.usable and connection.transport is not None and not connection.transport.is_closing():
                if len(self._idle) + len(self._tasks) < self._spare:
                    self.open_one()
                return connection
        self.open_one()
        return None

    def give(self, connection: Connection) -> None:
        """A connection whose answer has ended: kept if it can be used again."""
        if not connection.usable:
            connection.abandon()
        elif connection.answer is None and not self._owner.ready(connection):
            self._idle[connection] = None

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        self._idle.pop(connection, None)
        self._all.discard(connection)

    def heard(self) -> None:
        """The server has answered something."""
        self._refused_since = None

    async def close(self) -> None:
        """Close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self._all):
            connection.abandon()
        self._idle.clear()
        for _ in range(_CLOSING_TURNS):
            if not self._all:
                return
            await asyncio.sleep(0)

    async def _resolve(self) -> None:
        """Find the address that the server listens at, and open a first connection to it."""
        host, port = self._endpoint.host, self._endpoint.port
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise StartError(f"{host}: no such host ({error.strerror or error})") from None
        why = ""
        for address in dict.fromkeys(str(socket_address[0]) for *_, socket_address in answers):
            self._address = address
            try:
                self._idle[await self._connect()] = None
            except OSError as error:
                why = _why(error)
            else:
                return
        raise StartError(f"no connection to {self._endpoint.url}: {why}")

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._timeout_s):
            _, connection = await loop.create_connection(
                lambda: Connection(self._owner, self._clock),
                self._address,
                self._endpoint.port,
                ssl=self._context,
                server_hostname=self._endpoint.host if self._context else None,
            )
        self.opened += 1
        if connection.transport is not None:  # it may be gone again already
            self._all.add(connection)
        return connection

    def open_one(self) -> None:
        """Open a connection for whoever waits."""
        task = asyncio.get_running_loop().create_task(self._open())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self) -> None:
        try:
            connection = await self._connect()
        except OSError as error:
            now_ns = self._clock.now_ns()
            gone_s = 0.0
            if isinstance(error, ConnectionRefusedError):
                self._refused_since = self._refused_since or now_ns
                gone_s = (now_ns - self._refused_since) / 1e9
            self._owner.not_connected(_why(error), gone_s)
        else:
            self._refused_since = None
            if not self._owner.ready(connection):
                self._idle[connection] = None


def _why(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection_refused: nothing listens there"
    if isinstance(error, TimeoutError):
        return "connect_timeout: no connection in time"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}"
    if error.errno == errno.EMFILE:
        return "too_many_files: raise `ulimit -n`"
    return f"connect_failed: {error.strerror or error}"
