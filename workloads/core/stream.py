"""When requests are due: closed loop, processes with a rate, the trace's own times, ramps and phases, all at once.

Open-loop processes are one unit-rate process S_1 < S_2 < … (a request's gap before it, so nothing is due at
0) put through the inverse of the integrated rate, due = Λ⁻¹(S), in closed form. Only + − × / and √ follow
the draw of S, and S is rounded to 2⁻³² of a mean gap, so that platforms whose logarithms differ in the last
bit still agree to the nanosecond.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from workloads.core.arrivals import (
    ARRIVALS,
    LONGEST_S,
    Arrival,
    Closed,
    ClosedPhases,
    Constant,
    FromTrace,
    Gamma,
    Offline,
    Phases,
    Poisson,
    Ramp,
    parse_arrival,
)
from workloads.core.errors import WorkloadError
from workloads.core.reading import spelled
from workloads.core.seeds import generator
from workloads.core.sessions import turns_of
from workloads.core.trace import UNIT_QUESTION, Floats, Ints, Trace

__all__ = [
    "ARRIVALS",
    "Arrival",
    "Closed",
    "ClosedPhases",
    "Constant",
    "FromTrace",
    "Gamma",
    "Offline",
    "Phases",
    "Poisson",
    "Ramp",
    "Stream",
    "own_arrival",
    "parse_arrival",
    "schedule",
]

_GRID = 2.0**32


@dataclass(frozen=True, slots=True)
class Stream:
    """A trace and its schedule: `due_ns` a request, ns from the start, ascending; None of a closed loop.

    Where `think_ns` is given the requests are the turns of conversations, and all but the first are due so long after
    the answer before them instead; a closed loop then counts conversations. None: every request stands alone.
    """

    trace: Trace
    arrival: Arrival
    due_ns: Ints | None
    think_ns: int | None = None

    @property
    def concurrency(self) -> int | None:
        """Requests in flight at most, of a closed loop; None of an open one."""
        return max((level for _, level in self.levels), default=None)

    @property
    def levels(self) -> tuple[tuple[int, int], ...]:
        """The first row of each phase of a closed loop and its requests in flight at most; empty of an open one."""
        match self.arrival:
            case Closed(concurrency):
                return ((0, concurrency),)
            case ClosedPhases():
                return tuple(zip(self.arrival.first_rows, self.arrival.concurrency, strict=True))
        return ()

    @property
    def drain(self) -> bool:
        """Whether each phase of a closed loop waits for the end of the one before it."""
        return isinstance(self.arrival, ClosedPhases) and self.arrival.drain

    @property
    def digest(self) -> str:
        """sha256 (hex) of the trace's digest, the arrival and every due time."""
        sha = hashlib.sha256(f"{self.trace.digest} {self.arrival.canonical} ".encode())
        if self.due_ns is not None:
            sha.update(np.ascontiguousarray(self.due_ns, dtype="<i8").tobytes())
        if self.think_ns is not None:
            sha.update(f" sessions {self.think_ns}".encode())
        return sha.hexdigest()


def own_arrival(trace: Trace) -> Arrival | None:
    """The arrival that belongs to a trace: a schedule of concurrency among its phases, or the one its source names."""
    phases = trace.source.get("phases", [])
    if phases and all("concurrency" in phase for phase in phases):
        first = [phase["first_row"] for phase in phases]
        counts = np.diff([*first, len(trace)]).tolist()
        levels = tuple(phase["concurrency"] for phase in phases)
        return ClosedPhases(levels, tuple(counts), bool(trace.source.get("drain", True)))
    named = trace.source.get("arrival")
    return None if named is None else parse_arrival(named)


def unit_times(arrival: Arrival, n: int, seed: int) -> Floats:
    """S_1 … S_n of the unit-rate process behind an arrival, in mean gaps."""
    if isinstance(arrival, Constant):
        return np.arange(1, n + 1, dtype=np.float64)
    rng = generator(seed, "arrivals")
    if isinstance(arrival, Gamma):
        shape = 1.0 / (arrival.cv * arrival.cv)
        gaps = rng.standard_gamma(shape, size=n) / shape
    else:
        gaps = -np.log1p(-rng.random(n))
    return np.cumsum(np.rint(gaps * _GRID).astype(np.int64)) / _GRID


def ramp_times(s: Floats, ramp: Ramp) -> Floats:
    """Λ⁻¹(s), seconds, where Λ(t) = a·t + (b − a)·t²/2T up to T and rate b after it."""
    a, b, end = ramp.from_, ramp.to, ramp.seconds
    at_end = (a + b) / 2 * end
    inside = np.minimum(s, at_end)
    # The rate at the due time, between a and b whatever rounding says; t = 2s/(a + rate) cancels nothing.
    low = min(a, b)
    reached = a + np.sqrt(np.maximum(a * a + 2 * (b - a) / end * inside, low * low))
    t = np.divide(2 * inside, reached, out=np.zeros_like(s), where=reached > 0)
    return np.asarray(t + np.maximum(s - at_end, 0.0) / b)


def phase_times(s: Floats, phases: Phases) -> Floats:
    """Λ⁻¹(s), seconds, of a rate that is constant in each phase; the last phase has no end."""
    rates, seconds = np.array(phases.rates), np.array(phases.seconds)
    mass = np.concatenate([[0.0], np.cumsum(rates * seconds)[:-1]])
    start = np.concatenate([[0.0], np.cumsum(seconds)[:-1]])
    # side="left": mass that ends a phase belongs to it, so a phase of rate 0 is never asked for a time.
    phase = np.maximum(np.searchsorted(mass, s, side="left") - 1, 0)
    rate = rates[phase]
    return np.asarray(start[phase] + np.divide(s - mass[phase], rate, out=np.zeros_like(s), where=rate > 0))


def _due_s(arrival: Arrival, trace: Trace, seed: int) -> Floats:
    if isinstance(arrival, FromTrace):
        if trace.timestamp_s is None:
            notes = "; ".join(trace.source.get("notes", []))
            raise WorkloadError(
                f"{trace.name}: the trace has no timestamps{f' ({notes})' if notes else ''}: "
                "give --rate with another arrival, or a trace with timestamp_s"
            )
        # Played faster or slower on purpose, times are what the user says they are.
        if arrival.scale == 1 and (question := trace.source.get(UNIT_QUESTION)):
            raise WorkloadError(f"--arrival trace: {question}")
        return trace.timestamp_s * arrival.scale
    s = unit_times(arrival, len(trace), seed)
    match arrival:
        case Ramp():
            return ramp_times(s, arrival)
        case Phases():
            return phase_times(s, arrival)
        case Poisson() | Constant() | Gamma():
            return s / arrival.rate
    raise AssertionError(arrival)


def schedule(arrival: Arrival, trace: Trace, seed: int, think_s: float | None = None) -> Stream:
    """The stream a run sends: every due time drawn before the run, from (seed, trace length, arrival).

    With `think_s` a conversation's next turn is due so many seconds after its last answer. Seconds are rounded once,
    to whole nanoseconds. Raises WorkloadError where the trace has no timestamps and the arrival needs them, where it
    has no sessions and they are asked for, and where the schedule would be longer than seconds in float64 can tell to
    the nanosecond.
    """
    think_ns = None if think_s is None else round(think_s * 1e9)
    if think_ns is not None:
        _check_sessions(arrival, trace)
    if isinstance(arrival, ClosedPhases) and arrival.first_rows[-1] >= len(trace):
        raise WorkloadError(
            f"arrival {spelled(arrival.canonical, 120)}: the last phase begins after {arrival.first_rows[-1]} requests, "
            f"and the trace has {len(trace)}: replay more, or give the phases fewer requests"
        )
    if isinstance(arrival, Closed | ClosedPhases):
        return Stream(trace, arrival, None, think_ns)
    if isinstance(arrival, Offline):
        return Stream(trace, arrival, np.zeros(len(trace), dtype=np.int64), think_ns)
    with np.errstate(over="ignore", invalid="ignore"):
        due_s = _due_s(arrival, trace, seed)
    if not due_s[-1] <= LONGEST_S:
        remedy = "lower the scale" if isinstance(arrival, FromTrace) else "raise the rate"
        raise WorkloadError(
            f"arrival {spelled(arrival.canonical, 120)}: the last request is due in {due_s[-1]:.3g} s; a schedule has at "
            f"most {LONGEST_S:g} s: {remedy}, or replay fewer requests"
        )
    return Stream(trace, arrival, np.rint(due_s * 1e9).astype(np.int64), think_ns)


def _check_sessions(arrival: Arrival, trace: Trace) -> None:
    """WorkloadError where the trace has no conversations, or the arrival does not count them."""
    turns_of(trace)
    if isinstance(arrival, ClosedPhases):
        raise WorkloadError("--sessions: a schedule of concurrency counts requests, not conversations: leave one out")
