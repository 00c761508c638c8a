"""Connections that are opened ahead: what fails then is said, or left to the time when they are needed."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from itertools import count, islice

import pytest
import uvloop

from harness.drive.clock import NEVER, Clock
from harness.drive.endpoint import Endpoint
from harness.drive.pool import Pool, StartError
from harness.drive.wire import Connection


class Waiter:
    """Takes no connection, and keeps what it is told."""

    next_due = NEVER

    def __init__(self) -> None:
        self.wants = False
        self.readied: list[Connection] = []
        self.failures: list[tuple[str, float]] = []
        self.pool: Pool | None = None

    def send_due(self, now_ns: int) -> None:
        raise AssertionError("nothing is due")

    def answered(self, connection: Connection, error: str | None) -> None:
        raise AssertionError("nothing was asked")

    def lost(self, connection: Connection, error: str | None) -> None:
        assert self.pool is not None
        self.pool.lost(connection)

    def ready(self, connection: Connection) -> bool:
        self.readied.append(connection)
        return self.wants

    def not_connected(self, error: str, gone_s: float) -> None:
        self.failures.append((error, gone_s))


class Hours(Clock):
    """A clock that is an hour further at each look."""

    hours = 0

    def now_ns(self) -> int:
        self.hours += 1
        return self.hours * 3600 * 1_000_000_000


def pooled(does: Callable[[Pool, Waiter, socket.socket], Awaitable[None]]) -> None:
    """Does something with a pool of a server whose connections wait in its queue."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
            waiter = Waiter()
            pool = Pool(Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}"), waiter, Hours(), 10.0)
            waiter.pool = pool
            try:
                await does(pool, waiter, listener)
            finally:
                await pool.close()
                assert not pool._all, "every connection is closed when `close` returns"

    uvloop.run(main())


async def until(what: Callable[[], object]) -> None:
    while not what():
        await asyncio.sleep(0)


@pytest.mark.parametrize(("asked", "spare"), [(1, 0), (7, 0), (100, 3)])
def test_so_many_are_opened_as_were_asked_for(asked: int, spare: int) -> None:
    async def does(pool: Pool, waiter: Waiter, listener: socket.socket) -> None:
        await pool.open(asked, spare)
        assert pool.opened == asked
        taken = [pool.take() for _ in range(asked)]
        assert None not in taken
        assert len(set(taken)) == asked
        # As soon as fewer than `spare` are left, others are on their way; without spares none is until one lacks.
        await until(lambda: pool.opened == asked + spare)
        assert pool.opened == asked + spare

    pooled(does)


def test_too_few_open_files_for_the_start_is_said_with_the_remedy() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def does(pool: Pool, waiter: Waiter, listener: socket.socket) -> None:
        taken = {int(name) for name in os.listdir("/proc/self/fd")}
        twentieth = next(islice((number for number in count() if number not in taken), 19, None))
        resource.setrlimit(resource.RLIMIT_NOFILE, (twentieth, hard))
        try:
            with pytest.raises(StartError, match=r"^100 connections need more open files.*ulimit -n"):
                await pool.open(100, spare=0)
            while pool.take() is not None:
                pass
            # While it runs it is the request's fault, and says nothing of the server.
            await until(lambda: waiter.failures)
            assert waiter.failures == [("too_many_files: raise `ulimit -n`", 0.0)]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    pooled(does)


def test_a_server_that_takes_fewer_at_once_than_asked_is_driven_all_the_same() -> None:
    async def does(pool: Pool, waiter: Waiter, listener: socket.socket) -> None:
        connect, made = pool._connect, 0

        async def closes_after_five() -> Connection:
            nonlocal made
            made += 1
            if made == 6:
                listener.close()
            return await connect()

        pool._connect = closes_after_five  # type: ignore[method-assign]
        await pool.open(100, spare=0)
        assert 1 <= pool.opened < 100

    pooled(does)


def test_a_server_is_gone_since_it_first_refused_and_no_more_once_it_has_answered() -> None:
    async def does(pool: Pool, waiter: Waiter, listener: socket.socket) -> None:
        await pool.open(1, spare=0)
        assert pool.take() is not None
        address = listener.getsockname()
        listener.close()
        for refused in (1, 2, 3):
            assert pool.take() is None
            await until(lambda refused=refused: len(waiter.failures) == refused)  # type: ignore[misc] # a default in a lambda
        assert [error for error, _ in waiter.failures] == ["connection_refused: nothing listens there"] * 3
        first, second, third = (gone_s for _, gone_s in waiter.failures)
        assert first == 0
        assert (second, third) == (3600, 7200)
        pool.heard()
        assert pool.take() is None
        await until(lambda: len(waiter.failures) == 4)
        assert waiter.failures[3][1] == 0, "counted anew"
        with socket.create_server(address):
            assert pool.take() is None
            await until(lambda: waiter.readied)
        # It came, nobody wanted it any more: it is kept.
        assert pool.take() is waiter.readied[0]
        assert pool.take() is None
        await until(lambda: len(waiter.failures) == 5)
        assert waiter.failures[4][1] == 0, "a connection is a sign of life"

    pooled(does)


def test_a_connection_that_comes_for_one_who_waits_is_not_kept() -> None:
    async def does(pool: Pool, waiter: Waiter, listener: socket.socket) -> None:
        await pool.open(1, spare=0)
        first = pool.take()
        assert first is not None
        waiter.wants = True
        assert pool.take() is None
        await until(lambda: waiter.readied)
        assert pool.opened == 2
        assert not pool._idle
        # Given back by one who needs it no more, it goes to the next who waits, and is kept where nobody does.
        pool.give(first)
        assert waiter.readied[-1] is first
        assert not pool._idle
        waiter.wants = False
        pool.give(first)
        assert pool.take() is first
        first.usable = False
        pool.give(first)
        assert not pool._idle

    pooled(does)
