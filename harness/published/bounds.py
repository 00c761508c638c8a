"""Whether a run's tables keep to its spec: what was in flight, what a step held, whether its names are names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.core.errors import USER_ERRORS
from harness.core.runspec import RunSpec
from harness.measure.columns import MISSING, Requests, integers
from harness.published.submitted import fault_of
from harness.published.tables import RunTables
from harness.runs.run import Run
from policies.catalog import canonical_policy, read_policy
from policies.offline.catalog import canonical_offline
from workloads.core.arrivals import Closed, ClosedPhases, parse_arrival

# Engines that hold N and B in every step. A server that somebody else started has limits of its own, and the
# token-step model has no budget of tokens.
HOLDING = ("simulated", "emulated", "vllm")
REMEDY = "take it from a copy, or run again"


def outside_spec(run: Run, tables: RunTables) -> str | None:
    """One line on the first thing in which the tables or the names do not keep to the spec, None where all do."""
    return next((f"{why}: {REMEDY}" for why in _outside_spec(run, tables)), None)


def unlike_spec(run: Run) -> str | None:
    """One line on the first thing in which a run does not keep to its spec, its tables apart."""
    return next((f"{why}: {REMEDY}" for why in _unlike_spec(run)), None)


def _outside_spec(run: Run, tables: RunTables) -> Iterator[str]:
    yield from _unlike_spec(run)
    spec = run.spec
    limit = _most_in_flight(spec.arrival)
    if limit is not None:
        peak = peak_in_flight(tables.measured.requests)
        if peak > limit:
            yield f"{peak:,} requests were in flight at once, {spec.arrival} allows {limit:,}"
    if tables.steps is not None and spec.engine in HOLDING:
        yield from _overfull_steps(tables.steps, spec)


def _unlike_spec(run: Run) -> Iterator[str]:
    spec = run.spec
    yield from _unknown_names(spec)
    if why := fault_of(run):
        yield why
    planned = run.manifest["planned"].get("requests")
    # Sending that ends by the clock, or by the user, plans what it sent.
    whole = spec.max_duration_s is None and run.status == "complete"
    if planned is not None and (planned != spec.requests if whole else planned > spec.requests):
        yield f"planned.requests is {planned:,}, the spec has {spec.requests:,}"


def _unknown_names(spec: RunSpec) -> Iterator[str]:
    """Names that bench itself could not have been given; at an endpoint the policy is a label."""
    try:
        if spec.engine != "endpoint" and not spec.policy_sha256:
            canonical = canonical_offline if spec.engine == "tokenstep" else canonical_policy
            canonical(*read_policy(spec.policy))
        parse_arrival(spec.arrival)
    except USER_ERRORS as error:
        yield f"the spec names what bench does not know ({str(error)[:160]})"


def _most_in_flight(arrival: str) -> int | None:
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
    ended = (requests.sent != MISSING) & (requests.done > requests.sent)
    start, end = np.sort(requests.sent[ended]), np.sort(requests.done[ended])
    # Those that have begun by each start, less those that have ended by then.
    return int((np.arange(1, len(start) + 1) - np.searchsorted(end, start, side="right")).max(initial=0))


def _overfull_steps(steps: Any, spec: RunSpec) -> Iterator[str]:
    """Where a step held more requests, or computed more tokens, than the spec allows."""
    running, prefill, decode = (
        integers(steps.column(name)) for name in ("running", "prefill_tokens", "decode_requests")
    )
    for words, counts, allowed in (
        ("requests held a slot", running, spec.slots),
        ("tokens were computed", prefill + decode, spec.token_budget),
    ):
        most = int(counts.max(initial=0))
        if most > allowed:
            yield f"{most:,} {words} in one step, the spec allows {allowed:,}"
