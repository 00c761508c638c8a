"""Drifts of the arrival rate: ramps, days and bursts, as traces with times of their own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from workloads.core.arrivals import LONGEST_S, MOST_PER_S, Phases, Poisson, Ramp
from workloads.core.errors import WorkloadError
from workloads.core.options import Option
from workloads.core.stream import phase_times, ramp_times, unit_times
from workloads.core.trace import Floats, Trace
from workloads.lengths.drift import Drift, DriftInputs, traced

# A day's curve in so many level pieces, so that its times have a closed form.
PIECES = 48


def ramp(values: Mapping[str, Any], inputs: DriftInputs) -> Trace:
    """A rate that goes evenly from one value to the other and stays there."""
    name, start, end, seconds = "ramp", values["from"], values["to"], values["seconds"]
    _rates(name, {"to": end}, zero={"from": start}, seconds=seconds)
    n = _rows(name, (start + end) / 2 * seconds, inputs)
    times = ramp_times(unit_times(Poisson(1.0), n, inputs.seed), Ramp(start, end, seconds))
    rates = [start + (end - start) * quarter / 4 for quarter in range(5)]
    marks = [(f"{rates[i]:.4g} to {rates[i + 1]:.4g} requests/s", seconds * i / 4) for i in range(4)]
    return _timed(name, values, inputs, times, [*marks, (f"{end:.4g} requests/s", seconds)])


def diurnal(values: Mapping[str, Any], inputs: DriftInputs) -> Trace:
    """Days that go from the low rate up to the high one and back, along a cosine in 48 level pieces."""
    name, low, high, period = "diurnal", values["low"], values["high"], values["period"]
    _rates(name, {"high": high}, zero={"low": low}, seconds=period * values["cycles"])
    if low > high:
        raise WorkloadError(f"drift:diurnal: low={low:g} is above high={high:g}: swap them")
    # Rounded, so that platforms whose cosines differ in the last bit still agree.
    day = [round(low + (high - low) * (1 - math.cos(2 * math.pi * (i + 0.5) / PIECES)) / 2, 6) for i in range(PIECES)]
    n = _rows(name, sum(day) / PIECES * period * values["cycles"], inputs)
    rates = tuple(day * values["cycles"])
    times = _in_phases(rates, (period / PIECES,) * len(rates), n, inputs.seed)
    marks = [
        (f"day {i // 2 + 1}, rate {'falls' if i % 2 else 'rises'}", period * i / 2) for i in range(2 * values["cycles"])
    ]
    return _timed(name, values, inputs, times, marks)


def bursts(values: Mapping[str, Any], inputs: DriftInputs) -> Trace:
    """A base rate, and a peak for some seconds at the end of every interval."""
    name, base, peak = "bursts", values["base"], values["peak"]
    every, seconds, count = values["every"], values["seconds"], values["count"]
    _rates(name, {"base": base, "peak": peak}, zero={}, seconds=every * count)
    if not 0 < seconds < every:
        raise WorkloadError(f"drift:bursts: seconds={seconds:g} must be above 0 and below every={every:g}")
    n = _rows(name, (base * (every - seconds) + peak * seconds) * count, inputs)
    rates, lengths = (base, peak) * count, (every - seconds, seconds) * count
    times = _in_phases(rates, lengths, n, inputs.seed)
    starts = np.concatenate([[0.0], np.cumsum(lengths)[:-1]]).tolist()
    names = [f"burst {i // 2 + 1}" if i % 2 else f"base {i // 2 + 1}" for i in range(2 * count)]
    return _timed(name, values, inputs, times, list(zip(names, starts, strict=True)))


def _rates(name: str, above: Mapping[str, float], zero: Mapping[str, float], seconds: float) -> None:
    for key, value in {**above, **zero}.items():
        if not (value > 0 or key in zero) or value > MOST_PER_S:
            raise WorkloadError(f"drift:{name}: {key}={value:g} must be above 0 and at most {MOST_PER_S:g} requests/s")
    if not 0 < seconds <= LONGEST_S:
        raise WorkloadError(f"drift:{name}: it lasts {seconds:g} s; it must last above 0 and at most {LONGEST_S:g} s")


def _rows(name: str, expected: float, inputs: DriftInputs) -> int:
    n = round(expected) if inputs.requests is None else inputs.requests
    if not 1 <= n <= 10**8:
        raise WorkloadError(f"drift:{name}: {n} requests: choose rates and times that make 1 to 10⁸ of them")
    return n


def _in_phases(rates: tuple[float, ...], seconds: tuple[float, ...], n: int, seed: int) -> Floats:
    """Times under a rate a phase; beyond the last phase they begin again."""
    s = unit_times(Poisson(1.0), n, seed)
    mass = float(np.dot(rates, seconds))
    round_ = np.floor(s / mass)
    # Each round is the first one over again: the inverse of the integrated rate has its period.
    inside = np.minimum(s - round_ * mass, mass)
    return np.asarray(phase_times(inside, Phases(rates, seconds)) + round_ * sum(seconds))


def _timed(
    name: str, values: Mapping[str, Any], inputs: DriftInputs, times: Floats, starts: list[tuple[str, float]]
) -> Trace:
    """Lengths with these times, counted from the first; marks where their phases have begun within the trace."""
    drawn = inputs.lengths(values["lengths"] or "synthetic", len(times))
    first_s = float(times[0])
    firsts = [int(np.searchsorted(times, start)) for _, start in starts]
    marks = [
        {"name": phase, "first_row": first, "start_s": max(0.0, start - first_s)}
        for (phase, start), first, after in zip(starts, firsts, [*firsts[1:], len(times)], strict=True)
        if first < after
    ]
    source: dict[str, Any] = {"arrival": "trace:scale=1.0", "seed": inputs.seed, "lengths": drawn.source}
    if drawn.source.get("kind") == "twin":
        source["notes"] = [f"lengths of {drawn.label}: a statistical twin, no row of the data set"]
    trace = traced(name, drawn.prompt_tokens, drawn.output_tokens, marks, **source)
    return dataclasses.replace(trace, timestamp_s=np.asarray(times - first_s))


_LENGTHS = Option("lengths", str, "", "whose lengths: a workload by name, such as sharegpt; by default synthetic")
_FROM_SEED = "Poisson, drawn from the run's seed"
RATE_DRIFTS = (
    Drift(
        "ramp",
        "open loop, a rate that goes evenly from one value to another",
        _FROM_SEED,
        (
            Option("from", float, 1.0, "rate at the start, requests/s", 0),
            Option("to", float, 20.0, "rate at the end and after it, requests/s"),
            Option("seconds", float, 600.0, "length of the ramp"),
            _LENGTHS,
        ),
        ramp,
    ),
    Drift(
        "diurnal",
        "open loop, days of a low and a high rate",
        _FROM_SEED,
        (
            Option("low", float, 2.0, "rate at night, requests/s", 0),
            Option("high", float, 20.0, "rate at noon, requests/s"),
            Option("period", float, 600.0, "length of a day, s"),
            Option("cycles", int, 2, "days", 1),
            _LENGTHS,
        ),
        diurnal,
    ),
    Drift(
        "bursts",
        "open loop, a base rate with bursts",
        _FROM_SEED,
        (
            Option("base", float, 5.0, "rate between bursts, requests/s"),
            Option("peak", float, 50.0, "rate in a burst, requests/s"),
            Option("every", float, 120.0, "from one burst to the next, s"),
            Option("seconds", float, 20.0, "length of a burst, s"),
            Option("count", int, 5, "bursts", 1),
            _LENGTHS,
        ),
        bursts,
    ),
)
