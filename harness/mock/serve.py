"""The mock server as a process or within a block: started, and stopped by a signal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable

from harness.core.machine import allow_open_files
from harness.mock.log import write_log
from harness.mock.options import MockOptions
from harness.mock.server import MockServer


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
    allow_open_files()
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
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with running(options) as server:
        say(f"mock server for model {options.model} on {server.url} (Ctrl-C stops it)")
        # What start-up left behind need never be looked at again: collections then stay short.
        gc.collect()
        gc.freeze()
        await stop.wait()
