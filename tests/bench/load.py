"""The load driver beside the yardstick's client and, if there is one, vLLM's; printed, nothing asserted.

    python tests/bench/load.py [--yardstick DIR] [--vllm-python PYTHON] [--repeats 5] [--cases c256,c2048,…]

Every repeat runs the clients one after the other against the same paced server (mockd.c of the yardstick,
built with gcc into a temporary directory); medians over the repeats. An error is what a client says minus what
the server logged, request by request: ours are paired by id, the yardstick's client by the order of sends.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.drive.bodies import completion_body
from harness.drive.endpoint import Endpoint
from harness.drive.plan import Planned
from harness.drive.settings import Settings
from harness.drive.workers import drive
from workloads.core.arrivals import Poisson
from workloads.core.stream import unit_times as unit

PORT = 8197
PROMPT = 64


@dataclass(frozen=True)
class Case:
    """A server's pace (ms) and what is asked of it."""

    ttft: float
    itl: float
    out: int
    n: int
    c: int = 0
    rate: float = 0.0


CASES = {
    "c256": Case(50, 20, 128, 512, c=256),
    "c2048": Case(50, 60, 64, 4096, c=2048),
    "open500": Case(50, 20, 16, 2500, rate=500),
    "open1000": Case(50, 20, 16, 5000, rate=1000),
    "many": Case(20, 5, 16, 20000, c=512),
    "high": Case(20, 10, 16, 20000, c=512),
}
SHOWN = (
    ("chunks_per_s", "chunks/s", "{:,.0f}"),
    ("cpu_us_per_token", "CPU µs/token", "{:.1f}"),
    ("cpu_ms_per_request", "CPU ms/request", "{:.2f}"),
    ("memory_mb", "memory MB", "{:.0f}"),
    ("ttft_mean", "TTFT error mean ms", "{:.3f}"),
    ("ttft_p99", "TTFT error p99 ms", "{:.3f}"),
    ("tpot", "TPOT |error| mean ms", "{:.4f}"),
    ("lag_p99", "send lag p99 ms", "{:.2f}"),
    ("recording_cpu_s", "recording CPU s", "{:.2f}"),
    ("overhead_s", "start and stop s", "{:.2f}"),
)
Figures = dict[str, float]


def get(path: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{PORT}{path}", timeout=30) as answer:
        return bytes(answer.read())


def server_log(log: Path) -> list[dict[str, str]]:
    get("/__dump")
    with log.open() as file:
        return list(csv.DictReader(file))


def errors(pairs: list[tuple[tuple[int, int, int], dict[str, str]]], out: int) -> Figures:
    """Of (sent, first, last in ns) of a client and the server's row."""
    mine = np.array([one for one, _ in pairs], dtype=np.int64)
    true = np.array([[int(row[k]) for k in ("krecv", "first", "last")] for _, row in pairs], dtype=np.int64)
    ttft = ((mine[:, 1] - mine[:, 0]) - (true[:, 1] - true[:, 0])) / 1e6
    tpot = ((mine[:, 2] - mine[:, 1]) - (true[:, 2] - true[:, 1])) / 1e6 / max(out - 1, 1)
    return {
        "ttft_mean": float(np.mean(ttft)),
        "ttft_p99": float(np.percentile(ttft, 99)),
        "tpot": float(np.mean(np.abs(tpot))),
    }


def planned(case: Case, seed: int) -> Iterator[Planned]:
    body = completion_body("tiny", [(i * 7) % 2000 + 10 for i in range(PROMPT)], case.out)
    due = unit(Poisson(case.rate), case.n, seed) / case.rate * 1e9 if case.rate else None
    for i in range(case.n):
        yield Planned(str(i), i, None if due is None else int(due[i]), body, PROMPT, case.out)


def ours(case: Case, log: Path, seed: int) -> Figures:
    batches: list[pa.RecordBatch] = []
    cpu, wall = time.process_time(), time.monotonic()
    outcome = drive(
        planned(case, seed),
        Endpoint(f"http://127.0.0.1:{PORT}"),
        Settings(concurrency=case.c or None),
        batches.append,
    )
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    table = pa.Table.from_batches(batches).to_pydict()
    assert outcome.completed == case.n, outcome
    rows = {row["rid"]: row for row in server_log(log)}
    sent, first, last, due = (
        np.rint(np.array(table[name]) * 1e9).astype(np.int64)
        for name in ("sent_s", "first_token_s", "last_token_s", "due_s")
    )
    mine = list(zip(sent.tolist(), first.tolist(), last.tolist(), strict=True))
    pairs = [(one, rows[rid]) for one, rid in zip(mine, table["id"], strict=True)]
    span_s = (max(last) - min(sent)) / 1e9
    driving = outcome.client["cpu_with_start_s"]
    return errors(pairs, case.out) | {
        "chunks_per_s": case.n * case.out / span_s,
        "cpu_us_per_token": driving / (case.n * case.out) * 1e6,
        "cpu_ms_per_request": driving / case.n * 1e3,
        "memory_mb": outcome.client["peak_memory_mb"],
        "lag_p99": float(np.percentile((sent - due) / 1e6, 99)) if case.rate else float("nan"),
        "recording_cpu_s": cpu,
        "overhead_s": wall - span_s,
    }


def yardstick(case: Case, log: Path, seed: int, client: Path) -> Figures:
    mine = log.with_name("yardstick.csv")
    asked = ["--c", str(case.c)] if case.c else ["--rate", str(case.rate), "--timerfd", "1"]
    command = [sys.executable, str(client), "--impl", "httptools", "--port", str(PORT), *asked, "--n", str(case.n)]
    command += ["--out", str(case.out), "--isl", str(PROMPT), "--seed", str(seed), "--log", str(mine)]
    wall = time.monotonic()
    cpu_s, memory_mb = spent(command)
    wall = time.monotonic() - wall
    with mine.open() as file:
        rows = [{k: int(v) for k, v in row.items()} for row in csv.DictReader(file)]
    true = sorted(server_log(log), key=lambda row: int(row["krecv"]))
    rows.sort(key=lambda row: row["send"])
    pairs = [((a["send"], a["first"], a["last"]), b) for a, b in zip(rows, true, strict=True)]
    span_s = (max(row["last"] for row in rows) - min(row["send"] for row in rows)) / 1e9
    lag = [(row["send"] - row["sched"]) / 1e6 for row in rows]
    return errors(pairs, case.out) | {
        "chunks_per_s": case.n * case.out / span_s,
        "cpu_us_per_token": cpu_s / (case.n * case.out) * 1e6,
        "cpu_ms_per_request": cpu_s / case.n * 1e3,
        "memory_mb": memory_mb,
        "lag_p99": float(np.percentile(lag, 99)) if case.rate else float("nan"),
        "overhead_s": wall - span_s,
    }


# The CPU build has another distribution name, at which its `vllm` command stumbles; this is what that calls.
VLLM_SERVE = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def vllm(case: Case, python: str, tokenizer: str) -> Figures:
    """`vllm bench serve`: CPU and memory only, since it keeps no pairing with the server's log."""
    command = [python, "-c", VLLM_SERVE, "--backend", "openai", "--port", str(PORT)]
    command += ["--model", "tiny", "--dataset-name", "random", "--random-input-len", str(PROMPT), "--ignore-eos"]
    command += ["--random-output-len", str(case.out), "--num-prompts", str(case.n), "--tokenizer", tokenizer]
    command += ["--max-concurrency", str(case.c)] if case.c else ["--request-rate", str(case.rate)]
    cpu_s, memory_mb = spent(command)
    return {
        "cpu_us_per_token": cpu_s / (case.n * case.out) * 1e6,
        "cpu_ms_per_request": cpu_s / case.n * 1e3,
        "memory_mb": memory_mb,
    }


def spent(command: list[str]) -> tuple[float, float]:
    """CPU seconds and peak MB of a command; the peak is polled, since ru_maxrss starts at this process's own."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak_kb = 0
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        with contextlib.suppress(OSError):
            found = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text())
            peak_kb = int(found[1]) if found else peak_kb
        time.sleep(0.1)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, peak_kb / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    beside = Path(__file__).resolve().parents[3] / "shared" / "yardstick"
    parser.add_argument("--yardstick", type=Path, default=beside)
    parser.add_argument("--vllm-python", help="a Python with vLLM in it, whose `bench serve` is measured too")
    parser.add_argument("--vllm-tokenizer", default="", help="a folder with a tokenizer for it")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", default=",".join(CASES))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        mockd, log = Path(directory) / "mockd", Path(directory) / "server.csv"
        subprocess.run(["gcc", "-O2", "-w", "-o", mockd, given.yardstick / "mockd.c"], check=True)
        command: list[Any] = [mockd, "--port", str(PORT), "--log", log, "--jitter", "0.25"]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.3)
            for name in given.cases.split(","):
                compare(name, CASES[name], log, given)
        finally:
            server.kill()
            server.wait()


def compare(name: str, case: Case, log: Path, given: argparse.Namespace) -> None:
    clients: dict[str, Callable[[int], Figures]] = {
        "ours": lambda seed: ours(case, log, seed),
        "yardstick": lambda seed: yardstick(case, log, seed, given.yardstick / "refclient.py"),
    }
    if given.vllm_python:
        clients["vllm"] = lambda _: vllm(case, given.vllm_python, given.vllm_tokenizer)
    found: dict[str, list[Figures]] = {client: [] for client in clients}
    for repeat in range(given.repeats):
        for client, measure in clients.items():
            get(f"/__reset?ttft={case.ttft}&itl={case.itl}&jit=0.25")
            found[client].append(measure(repeat))
    print(f"\n{name}: {case}, medians of {given.repeats}\n{'':24}" + "".join(f"{client:>12}" for client in clients))
    for key, label, form in SHOWN:
        values = [statistics.median(one.get(key, float("nan")) for one in found[client]) for client in clients]
        print(f"{label:24}" + "".join(f"{form.format(value):>12}" for value in values))
    cpu = [statistics.median(one["cpu_us_per_token"] for one in found[client]) for client in clients]
    print(f"CPU per token, ours over the others: {', '.join(f'{cpu[0] / other:.2f}' for other in cpu[1:])}", flush=True)


if __name__ == "__main__":
    main()
