"""Whether a run's tables keep to its spec: what was in flight, what a step held, whether its names are names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.core.errors import USER_ERRORS
from harness.core.runspec import RunSpec
from harness.measure.columns import MISSING, Requests, integers
from harness.measure.statistics import Ints
from harness.published.tables import Tables
from harness.runs.run import Run
from policies.catalog import canonical_policy, read_policy
from policies.offline.catalog import canonical_offline
from workloads.core.arrivals import Closed, ClosedPhases, parse_arrival

# Engines that hold N and B in every step. A server that somebody else started has limits of its own, and the
# token-step model has no budget of tokens.
HOLDING = ("simulated", "emulated", "vllm")
REMEDY = "take it from a copy, or run again"


def beyond(run: Run, tables: Tables) -> str | None:
    """One line on the first thing in which the tables or the names do not keep to the spec, None where all do."""
    return next((f"{why}: {REMEDY}" for why in _beyond(run, tables)), None)


def _beyond(run: Run, tables: Tables) -> Iterator[str]:
    spec = run.spec
    yield from _names(spec)
    planned = run.manifest["planned"].get("requests")
    # Sending that ends by the clock, or by the user, plans what it sent.
    whole = spec.max_duration_s is None and run.status == "complete"
    if planned is not None and (planned != spec.requests if whole else planned > spec.requests):
        yield f"planned.requests is {planned:,}, the spec has {spec.requests:,}"
    limit = _concurrency(spec.arrival)
    if limit is not None and (peak := peak_in_flight(tables.measured.requests)) > limit:
        yield f"{peak:,} requests were in flight at once, {spec.arrival} allows {limit:,}"
    if tables.steps is not None and spec.engine in HOLDING:
        yield from _steps(tables.steps, spec)


def _names(spec: RunSpec) -> Iterator[str]:
    """Names that bench itself could not have been given; at an endpoint the policy is a label."""
    try:
        if spec.engine != "endpoint":
            canonical = canonical_offline if spec.engine == "tokenstep" else canonical_policy
            canonical(*read_policy(spec.policy))
        parse_arrival(spec.arrival)
    except USER_ERRORS as error:
        yield f"the spec names what bench does not know ({str(error)[:160]})"


def _concurrency(arrival: str) -> int | None:
    """Requests in flight at most; None in an open loop."""
    try:
        match parse_arrival(arrival):
            case Closed(concurrency):
                return concurrency
            case ClosedPhases(concurrency):
                return max(concurrency)
    except USER_ERRORS:
        pass
    return None


def peak_in_flight(requests: Requests) -> int:
    """The most requests at once between sent and done; one that never ended counts for none."""
    known = (requests.sent != MISSING) & (requests.done > requests.sent)
    start, end = np.sort(requests.sent[known]), np.sort(requests.done[known])
    # Those that have begun by each start, less those that have ended by then.
    return int((np.arange(1, len(start) + 1) - np.searchsorted(end, start, side="right")).max(initial=0))


def _steps(steps: Any, spec: RunSpec) -> Iterator[str]:
    for words, counts, most in (
        ("requests held a slot", _column(steps, "running"), spec.slots),
        (
            "tokens were computed",
            _column(steps, "prefill_tokens") + _column(steps, "decode_requests"),
            spec.token_budget,
        ),
    ):
        if (found := int(counts.max(initial=0))) > most:
            yield f"{found:,} {words} in one step, the spec allows {most:,}"


def _column(steps: Any, name: str) -> Ints:
    return integers(steps.column(name))
