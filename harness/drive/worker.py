"""A driving process: `python -m harness.drive.worker FD` drives one share of a plan and writes frames to FD.

Standard input has one line of JSON (the share, the endpoint, the settings), then `go T0` and, to end early,
`stop`; its end means that the parent has died, and ends the run too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import uvloop

from harness.core.errors import UserError
from harness.core.machine import allow_open_files
from harness.drive import frames
from harness.drive.driver import Driver
from harness.drive.endpoint import Endpoint
from harness.drive.plan import Plan
from harness.drive.pool import StartError
from harness.drive.settings import Result, Settings

# Rows go to the parent this often, or when there are this many bytes: what a kill of this process loses.
_FLUSH_S = 0.25
_FLUSH_BYTES = 1 << 18


class Worker:
    """The driver of one process, its pipe to the parent, and what it says about itself."""

    def __init__(self, config: dict[str, Any], out: int) -> None:
        self._plan = Plan.read(config["plan_fd"], config["plan_shape"])
        self._places = self._plan.share(config["worker"], config["workers"])
        self._endpoint = Endpoint(**config["endpoint"])
        self._settings = Settings(**config["settings"])
        self._out = out
        self._rows: list[bytes] = []
        self._size = 0
        self._busiest = 0.0
        self._cpu_at = (0.0, 0.0)

    async def main(self) -> None:
        """From opening connections to the last frame."""
        loop = asyncio.get_running_loop()
        # A fault of ours in a callback ends the process: the parent then says that the run failed.
        loop.set_exception_handler(_fail)
        end_of_pipe = _EndOfPipe(loop)
        transport, _ = await loop.connect_write_pipe(lambda: end_of_pipe, os.fdopen(self._out, "wb", 0))
        self._pipe = transport
        self._driver = Driver(self._plan, self._places, self._endpoint, self._settings, self._emit)
        try:
            await self._driver.open()
        except (StartError, UserError) as error:
            transport.write(frames.note(frames.REFUSED, {"error": str(error)}))
        else:
            await self._drive(loop)
        await self._driver.close()
        transport.close()
        await end_of_pipe.closed

    async def _drive(self, loop: asyncio.AbstractEventLoop) -> None:
        go: asyncio.Future[int | None] = loop.create_future()
        loop.add_reader(0, self._command, go)
        loop.add_signal_handler(signal.SIGTERM, self._stop, go)
        self._pipe.write(frames.note(frames.READY, {"connections": self._driver.connections}))
        t0_ns = await go
        if t0_ns is None:
            return
        # Nothing here makes cycles that matter, and a collection would stop the loop for milliseconds.
        gc.collect()
        gc.freeze()
        gc.disable()
        started = self._cpu_at = (time.monotonic(), _cpu_s())
        waited_s = _waited_s()
        ticking = loop.create_task(self._tick())
        await self._driver.run(t0_ns)
        ticking.cancel()
        self._flush()
        ended = {"reason": self._driver.reason, "stopped": self._driver.stopped}
        load = self._load_since(*started, waited_s)
        self._pipe.write(frames.note(frames.FINAL, self._status() | ended | load))
        loop.remove_reader(0)

    def _load_since(self, started_s: float, cpu_s: float, waited_s: float | None) -> dict[str, Any]:
        """What the run took of the machine, from what the clocks said at its start."""
        spent_s = _cpu_s() - cpu_s
        wall_s = time.monotonic() - started_s
        return {
            "cpu_s": spent_s,
            "cpu_share": spent_s / wall_s if wall_s else 0.0,
            "cpu_share_peak": max(self._busiest, self._cpu_share()),
            "wait_share": _share(waited_s, _waited_s(), wall_s),
            "cpu_with_start_s": _cpu_s(),
            "peak_memory_mb": _peak_memory_mb(),
        }

    def _emit(self, result: Result) -> None:
        row = frames.pack(result)
        self._rows.append(row)
        self._size += len(row)
        if self._size >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._pipe.write(frames.frame(frames.RESULTS, b"".join(self._rows)))
            self._rows.clear()
            self._size = 0

    async def _tick(self) -> None:
        for beat in range(1 << 60):
            await asyncio.sleep(_FLUSH_S)
            self._flush()
            if beat % 4 == 3:
                self._busiest = max(self._busiest, self._cpu_share())
                self._cpu_at = (time.monotonic(), _cpu_s())
            self._pipe.write(frames.note(frames.STATUS, self._status()))

    def _status(self) -> dict[str, Any]:
        driver = self._driver
        return {
            "sent": driver.sent,
            "in_flight": driver.in_flight,
            "connections": driver.connections,
            "resent": driver.resent,
            "retried": driver.retried,
            "output_tokens": driver.output_tokens,
            "max_lag_s": driver.max_lag_ns / 1e9,
            "cpu_share": self._cpu_share(),
        }

    def _cpu_share(self) -> float:
        """Of one core, since the last full second; 0 before there is enough to tell."""
        wall_s = time.monotonic() - self._cpu_at[0]
        return (_cpu_s() - self._cpu_at[1]) / wall_s if wall_s > 0.05 else 0.0

    def _command(self, go: asyncio.Future[int | None]) -> None:
        commands = os.read(0, 4096)
        for line in commands.splitlines():
            word, _, value = line.partition(b" ")
            if word == b"go" and not go.done():
                go.set_result(int(value))
            elif word == b"stop":
                self._stop(go)
        if not commands:
            asyncio.get_running_loop().remove_reader(0)
            self._stop(go)

    def _stop(self, go: asyncio.Future[int | None]) -> None:
        if go.done():
            self._driver.stop()
        else:
            go.set_result(None)


class _EndOfPipe(asyncio.BaseProtocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.closed: asyncio.Future[None] = loop.create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


def _fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    loop.default_exception_handler(context)
    sys.stderr.flush()
    os._exit(1)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _waited_s() -> float | None:
    """Seconds so far that the driving thread could run and had no processor; None where the kernel does not tell."""
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _share(before: float | None, after: float | None, wall_s: float) -> float | None:
    return None if before is None or after is None or not wall_s else (after - before) / wall_s


def _peak_memory_mb() -> float:
    # Not ru_maxrss where it can be helped: it counts the parent's memory from before exec.
    with contextlib.suppress(OSError):
        match = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
        if match:
            return int(match[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run one driving process."""
    # Ctrl-C and a hang-up go to the whole group; the parent decides what they mean.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    allow_open_files()
    # Not sys.stdin: its buffer would swallow what follows the first line.
    line = bytearray()
    while not line.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            return
        line += more
    uvloop.run(Worker(orjson.loads(bytes(line)), int(sys.argv[1])).main())


if __name__ == "__main__":
    main()
