"""The arrival processes a user can name, read from text and written back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

from workloads.core import options
from workloads.core.errors import WorkloadError
from workloads.core.options import Option
from workloads.core.reading import shown, spelled

MOST_PER_S = 1e6
# 104 days: beyond them float64 seconds no longer tell nanoseconds apart.
LONGEST_S = 9e6
LARGEST_SCALE = 1e6


def _text(value: Any) -> str:
    return "/".join(map(repr, value)) if isinstance(value, tuple) else options.write(value)


@dataclass(frozen=True, slots=True)
class _Canonical:
    @property
    def canonical(self) -> str:
        """The arrival as text that `parse_arrival` reads back as itself."""
        name = NAMES[type(self)]
        values = {field.name.rstrip("_"): getattr(self, field.name) for field in fields(self)}
        written = ",".join(f"{key}={_text(values[key])}" for key in sorted(values))
        return f"{name}:{written}" if written else name


@dataclass(frozen=True, slots=True)
class Closed(_Canonical):
    """At most `concurrency` requests in flight, in the trace's order; the next leaves as one ends."""

    concurrency: int


@dataclass(frozen=True, slots=True)
class ClosedPhases(_Canonical):
    """A closed loop whose concurrency changes: `requests[i]` requests with at most `concurrency[i]` in flight.

    The last phase takes what is left. With `drain` a phase begins when everything before it has ended, as with one
    client run after the other; without, as soon as its first request is next.
    """

    concurrency: tuple[int, ...]
    requests: tuple[int, ...]
    drain: bool

    @property
    def first_rows(self) -> tuple[int, ...]:
        """The row of the trace with which each phase begins."""
        return tuple(accumulate(self.requests[:-1], initial=0))


@dataclass(frozen=True, slots=True)
class Poisson(_Canonical):
    """Independent exponential gaps; `rate` in requests/s. The end is not pinned to n/rate."""

    rate: float


@dataclass(frozen=True, slots=True)
class Constant(_Canonical):
    """Equal gaps; `rate` in requests/s."""

    rate: float


@dataclass(frozen=True, slots=True)
class Gamma(_Canonical):
    """Independent gamma gaps of mean 1/`rate` and coefficient of variation `cv` (burstiness 1/cv²)."""

    rate: float
    cv: float


@dataclass(frozen=True, slots=True)
class FromTrace(_Canonical):
    """The trace's own timestamps, times `scale`: 0.5 is twice as fast."""

    scale: float


@dataclass(frozen=True, slots=True)
class Ramp(_Canonical):
    """Poisson whose rate goes linearly `from_` → `to` in `seconds`, then stays at `to`."""

    from_: float
    to: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Phases(_Canonical):
    """Poisson with one rate a phase, each `seconds` long; the last rate goes on."""

    rates: tuple[float, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Offline(_Canonical):
    """Every request is due at 0."""


Arrival = Closed | ClosedPhases | Poisson | Constant | Gamma | FromTrace | Ramp | Phases | Offline
NAMES: dict[type, str] = {
    Closed: "closed",
    ClosedPhases: "closed-phases",
    Poisson: "poisson",
    Constant: "constant",
    Gamma: "gamma",
    FromTrace: "trace",
    Ramp: "ramp",
    Phases: "phases",
    Offline: "offline",
}
_RATE = Option("rate", float, 0.0, "requests per second")
ARRIVALS: dict[str, tuple[Option, ...]] = {
    "closed": (Option("concurrency", int, 0, "requests in flight"),),
    "poisson": (_RATE,),
    "constant": (_RATE,),
    "gamma": (
        Option("cv", float, 0.0, "coefficient of variation of the gaps"),
        Option("burstiness", float, 0.0, "1/cv²"),
        _RATE,
    ),
    "trace": (Option("scale", float, 1.0, "the trace's times are multiplied by this"),),
    "ramp": (
        Option("from", float, None, "rate at the start, requests per second", 0),
        Option("to", float, None, "rate at the end and after it"),
        Option("seconds", float, None, "length of the ramp"),
    ),
    "phases": (
        Option("rates", str, None, "one rate a phase: rates=5/50/5"),
        Option("seconds", str, None, "one length a phase: seconds=60/30/60"),
    ),
    "offline": (),
    "closed-phases": (
        Option("concurrency", str, None, "one level a phase: concurrency=32/512/32"),
        Option("requests", str, None, "requests of each phase, the last one takes the rest: requests=500/4000/500"),
        Option("drain", bool, True, "a phase begins when all before it has ended"),
    ),
}


def _positive(text: str, name: str, value: float, most: float) -> float:
    if not value > 0:
        raise WorkloadError(f"arrival {text}: {name} is {value:g}; it must be above 0")
    return _bounded(text, name, value, most)


def _bounded(text: str, name: str, value: float, most: float) -> float:
    if not value <= most:
        raise WorkloadError(f"arrival {text}: {name} is {value:g}; it must be at most {most:g}")
    return value


def _numbers(text: str, name: str, value: str) -> tuple[float, ...]:
    """`5/50/5` as numbers, none of them negative."""
    try:
        numbers = tuple(float(part) for part in value.split("/"))
    except ValueError:
        raise WorkloadError(f"arrival {text}: {name}={spelled(value, 60)} is not a list such as 5/50/5") from None
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise WorkloadError(f"arrival {text}: {name}={spelled(value, 60)} has a value that is negative or not finite")
    return numbers


def _whole_numbers(text: str, name: str, value: str) -> tuple[int, ...]:
    """`32/512/32` as whole numbers from 1."""
    try:
        numbers = tuple(int(part) for part in value.split("/"))
    except ValueError:
        raise WorkloadError(
            f"arrival {text}: {name}={spelled(value, 60)} is no list of whole numbers, 32/512"
        ) from None
    if not all(1 <= number <= options.LARGEST for number in numbers):
        raise WorkloadError(f"arrival {text}: {name}={spelled(value, 60)}: each must be 1 to {options.LARGEST}")
    return numbers


def _closed(text: str, values: Mapping[str, Any], given: Mapping[str, str]) -> Closed:
    if values["concurrency"] < 1:
        raise WorkloadError(f"arrival {text} needs a concurrency of 1 or more")
    return Closed(values["concurrency"])


def _closed_phases(text: str, values: Mapping[str, Any], given: Mapping[str, str]) -> ClosedPhases:
    text = spelled(text, 120)
    levels = _whole_numbers(text, "concurrency", values["concurrency"])
    requests = _whole_numbers(text, "requests", values["requests"])
    if len(levels) != len(requests):
        raise WorkloadError(
            f"arrival {text}: {len(levels)} levels of concurrency and {len(requests)} numbers of requests: "
            "give one of each a phase"
        )
    return ClosedPhases(levels, requests, values["drain"])


def _poisson(text: str, values: Mapping[str, Any], given: Mapping[str, str]) -> Poisson:
    return Poisson(values["rate"])


def _constant(text: str, values: Mapping[str, Any], given: Mapping[str, str]) -> Constant:
    return Constant(values["rate"])


def _gamma(text: str, values: Mapping[str, Any], given: Mapping[str, str]) -> Gamma:
    if ("cv" in given) == ("burstiness" in given):
        raise WorkloadError(f"arrival {text}: give one of cv=… and burstiness=… (cv = 1/sqrt(burstiness))")
    if "cv" in given:
        cv = _positive(text, "cv", values["cv"], math.inf)
    else:
        cv = 1.0 / math.sqrt(_positive(text, "burstiness", values["burstiness"], math.inf))
    if not 1e-3 <= cv <= 1e3:
        raise WorkloadError(f"arrival {text}: cv is {cv:g}; it must be 0.001 to 1000 (constant has none)")
    return Gamma(values["rate"], cv)


def _from_trace(text: str, values: Mapping[str, Any], given: Mapping[str, str]) -> FromTrace:
    return FromTrace(_positive(spelled(text, 120), "scale", values["scale"], LARGEST_SCALE))


def _ramp(text: str, values: Mapping[str, Any], given: Mapping[str, str]) -> Ramp:
    text = spelled(text, 120)
    start = _bounded(text, "from", values["from"], MOST_PER_S)
    end = _positive(text, "to", values["to"], MOST_PER_S)
    return Ramp(start, end, _positive(text, "seconds", values["seconds"], LONGEST_S))


def _phases(text: str, values: Mapping[str, Any], given: Mapping[str, str]) -> Phases:
    text = spelled(text, 120)
    rates, seconds = _numbers(text, "rates", values["rates"]), _numbers(text, "seconds", values["seconds"])
    if len(rates) != len(seconds):
        raise WorkloadError(f"arrival {text}: {len(rates)} rates and {len(seconds)} seconds: give one of each a phase")
    _positive(text, "the last rate, which goes on,", rates[-1], MOST_PER_S)
    for rate in rates:
        _bounded(text, "the rate of a phase", rate, MOST_PER_S)
    for length in seconds:
        _positive(text, "the length of a phase", length, LONGEST_S)
    _bounded(text, "the length of all phases", sum(seconds), LONGEST_S)
    return Phases(rates, seconds)


def _offline(text: str, values: Mapping[str, Any], given: Mapping[str, str]) -> Offline:
    return Offline()


# What makes an arrival of its text (for errors), its typed options, and those that were given.
_MAKERS: dict[str, Callable[[str, Mapping[str, Any], Mapping[str, str]], Arrival]] = {
    "closed": _closed,
    "poisson": _poisson,
    "constant": _constant,
    "gamma": _gamma,
    "trace": _from_trace,
    "ramp": _ramp,
    "phases": _phases,
    "offline": _offline,
    "closed-phases": _closed_phases,
}


def parse_arrival(text: str, *, rate: float | None = None, concurrency: int | None = None) -> Arrival:
    """The arrival of `poisson`, `gamma:cv=2`, … with the rate (requests/s) or concurrency given apart.

    An empty text is `poisson` where there is a rate and `closed` where there is a concurrency. Raises
    WorkloadError for an unknown name (with the nearest), a rate or shape that is not above 0, a rate and a
    concurrency together, and one that the process does not take.
    """
    if rate is not None and concurrency is not None:
        raise WorkloadError("give a rate (open loop) or a concurrency (closed loop), not both")
    text = text or ("poisson" if rate is not None else "closed")
    name, given = options.split(text)
    if name not in ARRIVALS:
        near = options.suggest(name, ARRIVALS)
        raise WorkloadError(f"unknown arrival {shown(name)}{near}: known are {', '.join(ARRIVALS)}")
    given = _with_apart(text, name, given, {"rate": rate, "concurrency": concurrency})
    if given.get("rate", "").strip().lower().lstrip("+") in ("inf", "infinity"):
        raise WorkloadError(f"arrival {spelled(text, 120)}: no rate is endless: --arrival offline sends all at once")
    values = options.read(f"arrival {name}", ARRIVALS[name], given)
    if "rate" in values:
        if "rate" not in given:
            raise WorkloadError(f"arrival {text} needs a rate in requests per second: give --rate, such as --rate 20")
        _positive(spelled(text, 120), "rate", values["rate"], MOST_PER_S)
    return _MAKERS[name](text, values, given)


def _with_apart(text: str, name: str, given: dict[str, str], apart: Mapping[str, float | None]) -> dict[str, str]:
    """The options as given, with what was given apart from them; WorkloadError where it does not go with these."""
    known = {option.name for option in ARRIVALS[name]}
    for key, value in apart.items():
        if value is None:
            continue
        if key not in known or name == "closed-phases":
            raise WorkloadError(f"arrival {text} takes no {key}: leave it out, or choose another arrival")
        if key in given:
            raise WorkloadError(f"arrival {text}: {key} is given twice")
        given = {**given, key: repr(value)}
    return given
