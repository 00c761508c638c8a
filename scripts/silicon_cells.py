"""End-to-end times measured by NVIDIA that come with the kernel tables, and what a cost model gives for each.

Used by fidelity.py. The points are those of vLLM on H100s with Qwen3-32B, shared by 2, 4 or 8 GPUs: a dense model in
bf16 whose tables the project carries. Nothing was fitted to them.
"""

from __future__ import annotations

import csv
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.core.host import Host
from harness.engines.simulated import replay
from harness.profiles.pair import load_pair
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import Rows
from policies.catalog import make_policy
from workloads.core.arrivals import Closed
from workloads.core.stream import Stream
from workloads.core.trace import Trace

MODEL, SYSTEM, VERSION = "Qwen/Qwen3-32B", "h100_sxm", "0.12"
# vLLM's own of that version on this GPU, for a server.
SLOTS, BUDGET = 1024, 8192
WAVES = 8


@dataclass(frozen=True, slots=True)
class Point:
    """One measured point: GPUs, requests in flight, tokens in and out, mean TPOT in seconds."""

    tp: int
    inflight: int
    prompt_tokens: int
    output_tokens: int
    tpot_s: float


def points(table: Path) -> list[Point]:
    """The points of a table in the package's form (systems/silicon_sample.csv), without those that say fp8."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Point(
            int(row["tp_size"]),
            int(row["batch_size"]),
            int(row["isl"]),
            int(row["osl"]),
            float(row["silicon_tpot_ms"]) / 1e3,
        )
        for row in rows
        if (row["backend"], row["model_path"], row["system"], row["mode"]) == ("vllm", MODEL, SYSTEM, "agg")
        and row["backend_version"].startswith(VERSION)
        and not row["precision"]
    ]


def table() -> Path | None:
    """The table of the installed package of kernel times, None where it is not installed."""
    spec = importlib.util.find_spec("aiconfigurator_core")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) / "systems" / "silicon_sample.csv" if places else None


def tpot(point: Point, model: str) -> float:
    """Mean TPOT, seconds, of a closed loop of requests alike; the first wave, which starts as one, left out."""
    requests = point.inflight * WAVES
    ones = np.ones(requests, dtype=np.int64)
    trace = Trace("silicon", ones * point.prompt_tokens, ones * point.output_tokens)
    pair = load_pair("h100", MODEL, point.tp)
    chunks: list[Rows] = []

    def sink(chunk: Rows) -> bool:
        chunks.append(chunk)
        return True

    replay(
        Stream(trace, Closed(point.inflight), None),
        make_policy("v1", {}, SLOTS, None),
        pair.cost(model, Host()),
        EngineLimits(SLOTS, BUDGET, pair.kv_tokens // 16),
        sink,
    )
    rows = np.concatenate([chunk.requests for chunk in chunks])[point.inflight :]
    first, last, tokens = rows[:, 3] / 1e9, rows[:, 4] / 1e9, rows[:, 6]
    return float(((last - first) / (tokens - 1)).mean())
