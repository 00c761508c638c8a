"""A run measured: every rate and latency with what each request adds to it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.measure import work
from harness.measure.arrivals import Arrivals
from harness.measure.columns import LONGEST_S, MISSING, NANOSECONDS, Bools, Requests, nanoseconds
from harness.measure.estimate import Estimate
from harness.measure.fairness import COLUMNS, DECODE, OVER_ALPHA, Fairness, alpha_of, estimates, fairness
from harness.measure.gaps import token_gaps
from harness.measure.metrics import SLO_METRICS
from harness.measure.sample import Sample
from harness.measure.start_and_end import full_span, full_waves, is_phased, overload, steady_span, waves_of
from harness.measure.statistics import Floats, Ints
from harness.measure.window import Window, steady_window

# Engines in virtual time: what they leave out of the request table follows from the steps.
VIRTUAL_ENGINES = ("simulated", "tokenstep", "emulated")


@dataclass(frozen=True, slots=True)
class Measured:
    """Rates, latencies and fairness by the names of METRICS; `rates` holds None where there is no span to divide by.

    `window` bounds the steady rates of a closed loop: what of `loaded`, the longest span under load, lies between its
    first wave and its last. `stay` is the mean stay of a request as a share of the run. `fairness` has a state for each
    variant that the step log tells of, and `rates` its metrics. `waves` is how often a closed loop fills anew, None
    where it does not. `phased` says whether the load changes by plan, `beyond` of an open loop how far it is above
    capacity (see `overload`), None of any other.
    """

    requests: Requests
    arrivals: Arrivals
    window: Window | None
    stay: float
    rates: dict[str, Estimate | None]
    samples: dict[str, Sample]
    fairness: dict[str, Fairness]
    waves: float | None = None
    beyond: float | None = None
    phased: bool = False
    loaded: Window | None = None


def is_closed_loop(spec: RunSpec) -> bool:
    """Whether a finished request makes room for the next one (concurrency), rather than a clock."""
    return spec.arrival.partition(":")[0] in ("closed", "closed-phases")


def measure(table: Any, steps: Any | None, spec: RunSpec, closed_loop: bool) -> Measured:
    """Every metric of the two tables (columns of `records`), `steps` None where no engine gave any.

    UserError for a limit in `spec.slo` on something that is no latency of a request.
    """
    requests = Requests.of(table)
    arrivals = Arrivals.of(requests, table, real=spec.engine not in VIRTUAL_ENGINES)
    # In an open loop the arrivals decide how many are in flight, so that a peak of theirs is no steady state.
    loaded = steady_window(requests, closed_loop) if closed_loop else None
    since = requests.sent if closed_loop else requests.due
    start, end = span(requests)
    stay = _mean_stay(requests) / (end - start) if end > start else 0.0
    followed = steps if spec.engine in VIRTUAL_ENGINES else None
    found = _samples(requests, arrivals, since, token_gaps(requests, arrivals, followed))
    full = full_waves(requests, spec)
    window = loaded.within(*full_span(requests, spec)) if loaded is not None and full is not None else loaded
    if full is not None:
        inside = dataclasses.replace(requests, completed=requests.completed & full)
        steady = _samples(inside, arrivals, since, token_gaps(inside, arrivals, followed))
        found |= {f"{name}_steady": steady[name] for name in ("ttft_s", "tpot_s", "itl_s", "e2el_s")}
    samples = {name: dataclasses.replace(sample, overlap=stay) for name, sample in found.items()}
    rates = _rates(requests, arrivals, since, window, spec.slo)
    states = step_states(steps)
    for variant, state in states.items():
        rates |= estimates(steps, variant, state, alpha_of(spec, variant), stay)
    if full is not None and "gap_mean" in rates and steps is not None:
        rates["gap_mean_steady"] = _steady_gap(steps, requests, spec, stay)
    waves, beyond = waves_of(requests, spec), overload(requests, spec)
    return Measured(requests, arrivals, window, stay, rates, samples, states, waves, beyond, is_phased(spec), loaded)


def by_the_older_rule(measured: Measured, spec: RunSpec) -> Measured:
    """The same with the rates of older summaries, whose steady window had all of the first wave and the last in it."""
    requests, loaded = measured.requests, measured.loaded
    rates = _rates(requests, measured.arrivals, requests.sent, loaded, spec.slo) if loaded else {}
    steady = {name: rate for name, rate in rates.items() if name.endswith("_steady")}
    return dataclasses.replace(measured, window=loaded, rates=measured.rates | steady)


def over_alpha(measured: Measured, steps: Any | None, alpha: float) -> dict[str, Estimate]:
    """The metrics that need an α, by name, of a run that was measured with another α or with none."""
    found: dict[str, Estimate] = {}
    for variant, state in measured.fairness.items():
        found |= estimates(steps, variant, state, alpha, measured.stay)
    return {name: one for name, one in found.items() if name.startswith(OVER_ALPHA)}


def _steady_gap(steps: Any, requests: Requests, spec: RunSpec, stay: float) -> Estimate | None:
    """The mean gap of the steps between a closed loop's filling and its emptying."""
    start, end = steady_span(requests, spec)
    at = nanoseconds(steps.column("t_s"))
    inside = steps.filter((at >= start) & (at < end))
    state = fairness(inside)
    return estimates(inside, DECODE, state, None, stay).get("gap_mean") if state is not None and state.busy else None


def _samples(requests: Requests, arrivals: Arrivals, since: Ints, gaps: Sample) -> dict[str, Sample]:
    """The latencies by name; `since` is when each request's wait begins, `gaps` those between tokens."""
    done = requests.completed
    several = done & ~arrivals.held_back & (requests.output_tokens > arrivals.first)
    return {
        "ttft_s": _sample(requests, done, since, requests.first),
        "ttft_from_sent_s": _sample(requests, done, requests.sent, requests.first),
        "tpot_s": Sample.of(requests.row[several], _time_per_token(requests, arrivals, several)),
        "itl_s": gaps,
        "e2el_s": _sample(requests, done, since, requests.done),
        "send_lag_s": _sample(requests, np.ones_like(done), requests.due, requests.sent),
    }


def _rates(
    requests: Requests, arrivals: Arrivals, since: Ints, window: Window | None, slo: dict[str, float]
) -> dict[str, Estimate | None]:
    """The rates by name, over the run and over the steady window; goodput where there is an SLO."""
    done = requests.completed
    works = {
        "request_throughput": work.completions(requests, done),
        "output_throughput": work.tokens(requests, done, prompt=False),
        "total_throughput": work.tokens(requests, done, prompt=True),
    }
    start, end = span(requests)
    rates = {name: done_work.rate(start, end) for name, done_work in works.items()}
    if slo:
        good = work.completions(requests, done & within(requests, arrivals, since, slo))
        rates["goodput"] = good.rate(start, end)
        rates["goodput_steady"] = good.rate(window.start, window.end) if window else None
    for name, done_work in works.items():
        rates[f"{name}_steady"] = done_work.rate(window.start, window.end) if window else None
    return rates


def step_states(steps: Any | None) -> dict[str, Fairness]:
    """The fairness of a step table in each variant that it tells of."""
    if steps is None:
        return {}
    return {variant: state for variant in COLUMNS if (state := fairness(steps, variant)) is not None}


def span(requests: Requests) -> tuple[int, int]:
    """First send and last token, ns; (0, 0) where there is none."""
    sent, last = (times[times != MISSING] for times in (requests.sent, requests.last))
    return (int(sent.min()), int(last.max())) if len(sent) and len(last) else (0, 0)


def within(requests: Requests, arrivals: Arrivals, since: Ints, slo: dict[str, float]) -> Bools:
    """Which requests keep every limit (metric name to seconds) of `slo`."""
    kept = np.ones(len(requests), dtype=np.bool_)
    for name, limit in slo.items():
        # Beyond the longest time there is, a limit in nanoseconds is no number any more.
        limit_s = min(max(limit, -LONGEST_S), LONGEST_S)
        if name not in SLO_METRICS:
            raise UserError(f"slo {name!r}: a service level bounds one of {', '.join(SLO_METRICS)}")
        if name == "tpot_s":
            several = requests.output_tokens > arrivals.first
            kept[several] &= _time_per_token(requests, arrivals, several) <= limit_s * NANOSECONDS
        else:
            start = requests.sent if name == "ttft_from_sent_s" else since
            end = requests.done if name == "e2el_s" else requests.first
            kept &= end - start <= round(limit_s * NANOSECONDS)
    return kept


def _sample(requests: Requests, which: Bools, start: Ints, end: Ints) -> Sample:
    timed = which & (start != MISSING) & (end != MISSING)
    if timed.all():
        return Sample.of(requests.row, end - start)
    return Sample.of(requests.row[timed], end[timed] - start[timed])


def _mean_stay(requests: Requests) -> float:
    """The mean time from sent to last token of completed requests, ns."""
    stays = (requests.last - requests.sent)[requests.completed & (requests.sent != MISSING)]
    return float(stays.mean()) if len(stays) else 0.0


def _time_per_token(requests: Requests, arrivals: Arrivals, which: Bools) -> Floats:
    later = requests.output_tokens[which] - arrivals.first[which]
    return (requests.last[which] - requests.first[which]) / later
