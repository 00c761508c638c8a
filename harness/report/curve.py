"""Latency and throughput over a list of loads, policy by policy, and the load at which a curve bends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.measure.verdict import worst
from harness.report.arms import arms_of
from harness.report.words import steady_name
from harness.runs.run import Run

AXES = {"rate": "requests/s offered", "concurrency": "requests in flight"}
# With fewer loads the largest of them says nothing of a bend.
LEAST_LOADS = 3
# What a point tells: the metric and its key in summary.json.
VALUES = (
    ("request_throughput", "value"),
    ("output_throughput", "value"),
    ("goodput", "value"),
    ("ttft_s", "p50"),
    ("ttft_s", "p95"),
    ("ttft_s", "p99"),
    ("tpot_s", "mean"),
    ("tpot_s", "p95"),
    ("e2el_s", "mean"),
)
KNEE_RULE = "the load with the most output tokens/s for each second of E2EL mean (Kleinrock's power)"
_NO_SETTING = ("arrival", "seed", "repeat")


@dataclass(frozen=True, slots=True)
class Point:
    """One load of a curve: `values` by `metric.key` are means over its repeats, None where one of them has none."""

    load: float
    runs: tuple[Run, ...]
    values: dict[str, float | None]
    level: str

    @property
    def power(self) -> float | None:
        """Output tokens/s over mean latency, tokens/s²; None where the run is INVALID or lacks one of them."""
        rate, latency = self.values["output_throughput.value"], self.values["e2el_s.mean"]
        if self.level == "INVALID" or not rate or not latency:
            return None
        return rate / latency


@dataclass(frozen=True, slots=True)
class Curve:
    """A policy's points by ascending load; `axis` is what the load counts, a key of AXES.

    Where all runs are closed loops that tell them, values are `steady`: start and end left out.
    """

    axis: str
    points: tuple[Point, ...]
    steady: bool = False

    @property
    def first(self) -> Run:
        """A run of the curve, for what all of them have in common."""
        return self.points[0].runs[0]

    @property
    def knee(self) -> Point | None:
        """The point of the most power (Kleinrock, ICC 1979); None where fewer than three loads tell one."""
        known = [(power, point) for point in self.points if (power := point.power) is not None]
        return max(known, key=lambda one: one[0])[1] if len(known) >= LEAST_LOADS else None

    @property
    def knee_note(self) -> str:
        """What to say beside the knee: empty where loads on both sides of it were tried."""
        tried = [point for point in self.points if point.power is not None]
        if self.knee is None:
            return f"no knee: it takes {LEAST_LOADS} loads whose runs are not INVALID"
        if self.knee is tried[0]:
            return "the knee lies at or below the lowest load"
        if self.knee is tried[-1]:
            return "the knee lies at or above the highest load"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """The curve as JSON values."""
        spec, knee = self.first.spec, self.knee
        return {
            "gpu": spec.gpu,
            "model": spec.model,
            "workload": spec.workload,
            "policy": spec.label,
            "kind": self.first.kind,
            "axis": self.axis,
            "steady": self.steady,
            "points": [
                {"load": point.load, "repeats": len(point.runs), "level": point.level, "values": point.values}
                for point in self.points
            ],
            "knee": None if knee is None else knee.load,
            "knee_rule": KNEE_RULE,
            "knee_note": self.knee_note,
        }


def load_of(arrival: str) -> tuple[str, str, float] | None:
    """The arrival without its load, what the load counts, and the load; None of an arrival that has no single one."""
    name, _, options = arrival.partition(":")
    parts = dict(part.partition("=")[::2] for part in options.split(",")) if options else {}
    for axis in AXES:
        if axis in parts and name != "closed-phases":
            load = float(parts.pop(axis))
            rest = ",".join(f"{key}={value}" for key, value in parts.items())
            return f"{name}:{rest}" if rest else name, axis, load
    return None


def curves_of(runs: Sequence[Run]) -> list[Curve]:
    """The curves among runs: those equal in all but load, repeat and seed, where they have two loads or more."""
    groups: dict[str, dict[float, list[Run]]] = {}
    axes: dict[str, str] = {}
    for arm in arms_of(runs):
        found = load_of(arm[0].spec.arrival)
        if found is None:
            continue
        family, axis, load = found
        settings = {name: value for name, value in arm[0].spec.to_dict().items() if name not in _NO_SETTING}
        key = f"{arm[0].kind} {family} {json.dumps(settings, sort_keys=True)}"
        axes[key] = axis
        groups.setdefault(key, {}).setdefault(load, []).extend(arm)
    return [_curve(axes[key], loads) for key, loads in groups.items() if len(loads) > 1]


def _curve(axis: str, loads: dict[float, list[Run]]) -> Curve:
    runs = [run for some in loads.values() for run in some]
    steady = axis == "concurrency" and all(_value(run, "e2el_s_steady", "mean") is not None for run in runs)
    return Curve(axis, tuple(_point(load, loads[load], steady) for load in sorted(loads)), steady)


def _value(run: Run, metric: str, key: str) -> float | None:
    value = run.summary.get("metrics", {}).get(metric, {}).get(key)
    return None if value is None else float(value)


def _point(load: float, runs: Sequence[Run], steady: bool) -> Point:
    values: dict[str, float | None] = {}
    for metric, key in VALUES:
        told = [_value(run, steady_name(metric) if steady else metric, key) for run in runs]
        known = [value for value in told if value is not None]
        values[f"{metric}.{key}"] = sum(known) / len(known) if len(known) == len(runs) else None
    return Point(load, tuple(runs), values, worst(run.level for run in runs))
