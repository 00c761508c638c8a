"""What a board is about in words that people use: GPU, model, traffic, load and service levels."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.core.errors import UserError
from harness.pages.boards import Arm, Board
from harness.profiles.files import load_gpu
from harness.runs.run import gpu_name

# Loads of the first page, with the rule in words.
LIGHT, BUSY, SATURATED = "light", "busy", "saturated"
LOADS = {
    LIGHT: "hardly anything waits, and at most a quarter of the slots are in use",
    BUSY: "hardly anything waits, and more than a quarter of the slots are in use",
    SATURATED: "more than one request waits for every ten that run",
}
_WAITING, _RUNNING = 0.1, 0.25


@dataclass(frozen=True, slots=True)
class Traffic:
    """A family of workloads: its key in addresses, its name, and what it is."""

    key: str
    label: str
    what: str


_KNOWN = (
    Traffic("sharegpt", "ShareGPT", "chat"),
    Traffic("wildchat", "WildChat", "chat"),
    Traffic("lmsys", "LMSYS-Chat", "chat"),
    Traffic("longbench", "LongBench", "long context"),
    Traffic("numinamath", "NuminaMath", "maths, long answers"),
    Traffic("drift", "Drift", "changes on the way"),
    Traffic("synthetic", "Synthetic", "made-up lengths"),
    Traffic("file", "A trace", "somebody’s own"),
)
_OTHER = Traffic("other", "Other", "any other workload")
TRAFFIC = {traffic.key: traffic for traffic in (*_KNOWN, _OTHER)}

_LATENCIES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2el_s": "E2EL"}


def traffic_of(workload: str) -> Traffic:
    """The family of a workload."""
    return TRAFFIC.get(workload.partition(":")[0], _OTHER)


def workload_words(workload: str) -> str:
    """A workload as people write it: `ShareGPT`, `Drift: distribution`; any other as it was given."""
    family, _, options = workload.partition(":")
    known = TRAFFIC.get(family)
    if known is None or family == "file":
        return workload
    return f"{known.label}: {options.replace(',', ', ')}" if options else known.label


@functools.cache
def gpu_label(gpu: str) -> str:
    """A GPU's name as its maker writes it, without the maker; what has no profile is called as it was."""
    name = gpu_name(gpu)
    if name == "none":
        return "no GPU"
    if re.fullmatch(r"[a-z0-9-]+", name) is None or name != gpu:
        return name
    try:
        return re.sub(r"^(NVIDIA|AMD|Intel) ", "", load_gpu(name).label)
    except UserError:
        return name


def model_label(model: str) -> str:
    """A model's name without its maker's."""
    return model.rpartition("/")[2] or model


def slo_words(slo: Mapping[str, float]) -> str:
    """Service levels: `TTFT ≤ 1 s, TPOT ≤ 50 ms`; empty without."""
    return ", ".join(f"{_limited(name)} ≤ {_limit(limit)}" for name, limit in sorted(slo.items(), reverse=True))


def _limited(name: str) -> str:
    metric, _, statistic = name.replace("_s_p", "_s.p").partition(".")
    return " ".join(filter(None, (_LATENCIES.get(metric, metric), statistic)))


def _limit(seconds: float) -> str:
    return f"{seconds * 1e3:g} ms" if seconds < 1 else f"{seconds:g} s"


def load_of(board: Board) -> str:
    """Light, busy or saturated, by what the baseline's steps held; without a step log by what was asked for."""
    running, waiting = held(board.reference)
    spec = board.spec
    if running is None or waiting is None:
        asked = re.search(r"concurrency=(\d+)", spec.arrival)
        if asked is None or spec.engine == "endpoint":
            return BUSY
        running = min(float(asked[1]), spec.slots)
        waiting = float(asked[1]) - running
    if waiting > _WAITING * running:
        return SATURATED
    return BUSY if running > _RUNNING * spec.slots else LIGHT


def held(arm: Arm) -> tuple[float | None, float | None]:
    """Requests running and waiting, means over the course of the arm's first repeat; None without a step log."""
    course = arm.first.detail["course"] or {}
    columns = ([value for value in course.get(name, []) if value is not None] for name in ("running", "waiting"))
    running, waiting = (math.fsum(values) / len(values) if values else None for values in columns)
    return running, waiting
