"""`bench doctor`: what this machine can drive as a client, measured against the paced server next door."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.core.errors import RunFailed
from harness.core.machine import cores
from harness.drive.bodies import completion_body
from harness.drive.endpoint import Endpoint
from harness.drive.plan import Planned
from harness.drive.settings import Settings
from harness.drive.workers import Outcome, drive
from harness.measure.verdict import CHECKS
from workloads.core.arrivals import Poisson
from workloads.core.cache import cache_dir
from workloads.core.stream import unit_times

TTFT_S, ITL_S = 0.05, 0.02
# A client busier than this measures itself, and the verdict calls its run DEGRADED.
COMFORTABLE = next(check.degraded or 0.0 for check in CHECKS if check.name == "client_cpu") / 100
_STREAMS = (64, 256, 1024)
_TOKENS = 64
_SECONDS = 2.5
_RATE = 500.0
_OPEN_TOKENS = 4


def examine() -> dict[str, Any]:
    """Drives the built-in server for about ten seconds and looks at the machine; figures with their units in names.

    `streams` and `events_per_s` are what one driving process can take with its CPU at 70 %;
    `ttft_error_*` is what the client reports beyond the server's own log (the two share this machine).
    """
    with tempfile.TemporaryDirectory(prefix="bench-doctor-") as directory:
        log = Path(directory) / "server.csv"
        with _server(log) as url:
            tables = {streams: _closed(url, streams) for streams in _STREAMS}
            lag = _open(url)
        with log.open(newline="") as file:
            truth = {row["request_id"]: row for row in csv.DictReader(file)}
    levels = [_level(streams, table, outcome, truth) for streams, (table, outcome) in tables.items()]
    # Events cost the same at any level; the busiest level that was not out of breath tells it best.
    at_ease = [level for level in levels if level["cpu_share"] <= 0.95] or levels[:1]
    per_core = at_ease[-1]["events_per_s"] / max(at_ease[-1]["cpu_share"], 1e-3)
    events = COMFORTABLE * per_core
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "events_per_s": round(events),
        "streams": min(round(events * ITL_S), soft - 64),
        "at_itl_s": ITL_S,
        "processes": 1,
        "cores": cores(),
        "levels": levels,
        "open_loop": lag,
        "files_soft": soft,
        "files_hard": hard,
        "clock": {"name": "CLOCK_MONOTONIC", "resolution_s": time.get_clock_info("monotonic").resolution},
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "cpu_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }


def needed(machine: dict[str, Any], rate: float, output_tokens: float) -> dict[str, Any]:
    """Driving processes that a rate (requests/s) of answers of so many tokens takes, and machines like this one.

    From what `examine` found: an event's CPU time at the ceiling, and of the open loop what a request takes besides.
    """
    event_s = COMFORTABLE / machine["events_per_s"]
    open_loop = machine["open_loop"]
    request_s = max(open_loop["cpu_share"] / open_loop["rate"] - _OPEN_TOKENS * event_s, 0.0)
    processes = math.ceil(rate * (output_tokens * event_s + request_s) / COMFORTABLE)
    return {
        "rate": rate,
        "output_tokens": output_tokens,
        "processes": processes,
        "hosts": math.ceil(processes / machine["cores"]),
    }


def remember(machine: dict[str, Any]) -> Path:
    """Keeps what `examine` found where `bench run` looks for it."""
    path = cache_dir() / "doctor.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(machine, indent=1))
    return path


def warnings(streams: int | None, events_per_s: float | None) -> list[str]:
    """What to say before a run that plans more than this machine was seen to drive; streams are requests in flight."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lines = []
    if streams is not None and streams > soft - 64:
        lines.append(
            f"{streams:,} requests in flight need more than the {soft:,} open files allowed: ulimit -n {streams * 2}"
        )
    try:
        machine = json.loads((cache_dir() / "doctor.json").read_text())
        can_streams, can_events = int(machine["streams"]), float(machine["events_per_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return lines
    if streams is not None and streams > can_streams:
        lines.append(
            f"{streams:,} requests in flight are more than the {can_streams:,} that `bench doctor` saw one process of "
            f"this machine drive at {ITL_S * 1e3:g} ms a token: give --processes, or see the verdict's client CPU"
        )
    if events_per_s is not None and events_per_s > can_events:
        lines.append(
            f"{events_per_s:,.0f} tokens/s planned are more than the {can_events:,.0f} that `bench doctor` saw one "
            "process of this machine drive: give --processes, or see the verdict's client CPU"
        )
    return lines


def _closed(url: str, streams: int) -> tuple[pa.Table, Outcome]:
    requests = max(1, round(_SECONDS / (TTFT_S + _TOKENS * ITL_S))) * streams
    return _drive(url, _plan(f"{streams}-", requests, None), Settings(concurrency=streams))


def _level(streams: int, table: pa.Table, outcome: Outcome, truth: dict[str, dict[str, str]]) -> dict[str, Any]:
    served = [truth[request_id] for request_id in table.column("id").to_pylist()]
    true_ttft_s = np.array([float(row["first_s"] or "nan") - float(row["arrival_s"]) for row in served])
    error = _column(table, "first_token_s") - _column(table, "sent_s") - true_ttft_s
    # All streams begin at once, and what then waits in the server's socket stands in nobody's log.
    error = error[_column(table, "row") >= streams]
    seconds = float(np.nanmax(_column(table, "done_s")))
    return {
        "streams": streams,
        "events_per_s": table.num_rows * _TOKENS / seconds,
        "cpu_share": outcome.client["cpu_share"],
        "ttft_error_mean_s": float(np.nanmean(error)),
        "ttft_error_p99_s": float(np.nanpercentile(error, 99)),
        "failed": outcome.recorded - outcome.completed,
    }


def _open(url: str) -> dict[str, Any]:
    requests = round(_RATE * _SECONDS)
    due = np.rint(unit_times(Poisson(_RATE), requests, seed=0) / _RATE * 1e9).astype(np.int64)
    table, outcome = _drive(url, _plan("open-", requests, due.tolist(), _OPEN_TOKENS), Settings())
    lag = _column(table, "sent_s") - _column(table, "due_s")
    return {
        "rate": _RATE,
        "send_lag_mean_s": float(np.nanmean(lag)),
        "send_lag_p99_s": float(np.nanpercentile(lag, 99)),
        "cpu_share": outcome.client["cpu_share"],
    }


def _plan(prefix: str, requests: int, due_ns: list[int] | None, tokens: int = _TOKENS) -> Iterator[Planned]:
    for row in range(requests):
        body = completion_body("mock", [1000 + row % 10_000] * 16, tokens)
        yield Planned(f"{prefix}{row}", row, None if due_ns is None else due_ns[row], body, 16, tokens)


def _drive(url: str, planned: Iterator[Planned], settings: Settings) -> tuple[pa.Table, Outcome]:
    batches: list[pa.RecordBatch] = []
    outcome = drive(planned, Endpoint(url), settings, batches.append)
    if outcome.status != "complete":
        raise RunFailed(f"bench doctor: the run against the built-in server {outcome.status}: {outcome.reason}")
    return pa.Table.from_batches(batches), outcome


def _column(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(table.column(name).to_numpy(zero_copy_only=False), dtype=np.float64)


@contextlib.contextmanager
def _server(log: Path) -> Iterator[str]:
    """The mock server in a process of its own, on a free port."""
    command = [sys.executable, "-c", "from harness.cli.entry import main; main()", "mock-server", "--port", "0"]
    command += ["--ttft", str(TTFT_S * 1e3), "--itl", str(ITL_S * 1e3), "--jitter", "0.25"]
    command += ["--log", str(log)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        if address is None:
            raise RunFailed("bench doctor: the built-in server did not start")
        yield address.group()
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def report(machine: dict[str, Any]) -> list[str]:
    """What `examine` found, for a terminal."""
    lines = [
        f"one driving process, CPU at {100 * COMFORTABLE:.0f} %: {machine['events_per_s']:,} tokens/s, "
        f"{machine['streams']:,} streams at {machine['at_itl_s'] * 1e3:g} ms a token",
    ]
    lines += [
        f"  {level['streams']:>5,} streams: {level['events_per_s']:>8,.0f} tokens/s, client CPU "
        f"{100 * level['cpu_share']:3.0f} %, TTFT beyond the server's own log: mean "
        f"{level['ttft_error_mean_s'] * 1e3:.2f} ms, p99 {level['ttft_error_p99_s'] * 1e3:.2f} ms"
        for level in machine["levels"]
    ]
    lag = machine["open_loop"]
    lines.append(
        f"open loop of {lag['rate']:g} requests/s: send lag mean {lag['send_lag_mean_s'] * 1e3:.2f} ms, "
        f"p99 {lag['send_lag_p99_s'] * 1e3:.2f} ms, client CPU {100 * lag['cpu_share']:.0f} %"
    )
    lines.append(f"open files: {machine['files_soft']:,} (may be raised to {machine['files_hard']:,} with ulimit -n)")
    lines.append(f"clock: {machine['clocksource'] or 'unknown source'}, {machine['clock']['resolution_s']:.0e} s")
    governor = machine["cpu_governor"]
    lines.append(
        f"CPU governor: {governor or 'not told'}"
        + ("" if governor in (None, "performance") else ": prefer performance")
    )
    lines.append("client and server shared this machine: a client alone does better")
    if "needed" in machine:
        told = machine["needed"]
        processes, hosts = told["processes"], told["hosts"]
        where = f"--processes {processes}"
        if hosts > 1:
            where = f"{hosts} machines like this one: --drivers {hosts} --processes {machine['cores']}"
        lines.append(
            f"{told['rate']:,g} requests/s of {told['output_tokens']:,g} tokens take {processes:,} driving "
            f"process{'es' if processes > 1 else ''} ({where})"
        )
    return lines
