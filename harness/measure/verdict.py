"""The verdict: how far a run can be trusted, from a table of checks and thresholds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.measure import checks
from harness.measure.evidence import Check, Evidence

LEVELS = ("VALID", "DEGRADED", "INVALID")
# Of a reported run: nobody ran it here, so nothing was checked.
NO_VERDICT = "NONE"
# The check that only a rate above capacity fails: what was served then still is a throughput.
OVERLOAD = "overload"

CHECKS = (
    Check("send_lag", "send lag p99", "s", 0.005, 0.050, checks.send_lag),
    Check("client_cpu", "client CPU in use", "%", 70, 90, checks.client_cpu),
    # A client that is kept from reading stamps what has piled up with one time: latencies and TPOT of nobody's making.
    Check("client_wait", "time that the client waited for a processor", "%", 5, 20, checks.client_wait),
    Check(
        "delivery",
        "answers that reached the client in bunches, later than they were made",
        "%",
        1,
        10,
        checks.delivery_of,
    ),
    Check("held_back", "answers that came all at once, held back on their way", "%", 1, 10, checks.held_back),
    Check("foreign", "answers that bear another request's id", "%", 0, 1, checks.foreign),
    Check(
        "beyond_usage", "answers with more tokens in their events than in their usage", "%", 0, 10, checks.beyond_usage
    ),
    # A host that begins early or late sends as early or late as that: the limits of the send lag.
    Check(
        "driver_clocks",
        "clocks of the driving hosts apart by up to",
        "s",
        0.005,
        0.050,
        checks.driver_clocks,
        only=checks.several_hosts,
    ),
    Check("elsewhere", "the machine's CPU time that other work took", "%", 10, 30, checks.elsewhere),
    Check("errors", "requests not completed", "%", 0.1, 1, checks.errors_of),
    Check("completed", "completed requests", "", None, 1, checks.completed_of, floor=True),
    Check("steady_window", "steady window of the run", "%", 50, 20, checks.steady_of, floor=True),
    # Ten to the nearest whole: a data set may hold a little less.
    Check("waves", "waves of requests", "", 9.5, None, checks.waves_of, floor=True, remedy=checks.more_requests),
    Check(
        OVERLOAD,
        "requests left over at the last arrival",
        "%",
        None,
        checks.ABOVE_CAPACITY,
        checks.overload_of,
        remedy=checks.served,
    ),
    Check(
        "backlog",
        "late waits for the first token over early ones (a growing queue)",
        "times",
        3,
        None,
        checks.backlog,
        remedy=checks.longer,
    ),
    Check("output_length", "answers of another length than asked for", "%", 0, 1, checks.output_length),
    Check("prefix_cache", "prefix-cache hits off the declared share by", "points", 1, 5, checks.prefix_cache),
    Check("off_grid", "time priced beyond the measured kernels", "%", 1, None, checks.off_grid),
    Check("realised_trace", "rows of the trace missing or unplanned", "rows", None, 0, checks.realised_trace),
    Check("token_times", "requests whose tokens do not match the steps", "requests", None, 0, checks.token_times),
    Check("step_counts", "steps whose token counts contradict themselves", "steps", None, 0, checks.step_counts),
    Check("step_tokens", "tokens that steps and requests tell differently", "tokens", None, 0, checks.step_tokens),
    # A router's own doing, as preemptions are a policy's.
    Check(
        "replica_balance",
        "tokens of the busiest replica above the mean",
        "%",
        None,
        None,
        checks.replica_balance,
        only=checks.has_replicas,
    ),
    # A policy's own doing, so an observation: a reader is told of them, and no verdict is made of them.
    Check("preemptions", "preemptions a request", "", None, None, checks.preemptions_of),
    Check("clock", "times that run backwards", "times", None, 0, checks.clock_of),
    Check("engine_log", "lines of the engine log that say out of memory", "lines", None, 0, checks.engine_log),
    Check("same_trace", "same realised trace across arms", "", None, None, checks.comparison),
    Check("same_engine", "engine version and async mode equal across arms", "", None, None, checks.comparison),
)


def judge(evidence: Evidence, status: str, reason: str | None) -> dict[str, Any]:
    """The verdict's entry in run.json: level, reasons (one line each) and every check.

    A run that is not `complete` is INVALID. `manifest["degraded"]` lists reasons known before the run,
    such as an assumed cost: the best such a run can be is DEGRADED.
    """
    checks = [check.judge(evidence) for check in CHECKS if check.only is None or check.only(evidence)]
    faults: list[tuple[str, str]] = []
    if status != "complete":
        faults.append(("INVALID", f"the run is {status}" + (f": {reason}" if reason else "")))
    faults += [(entry["level"], _beyond_limit(entry)) for entry in checks if entry["level"] in ("DEGRADED", "INVALID")]
    faults += [("DEGRADED", str(why)) for why in evidence.manifest.get("degraded", ())]
    faults.sort(key=lambda fault: -LEVELS.index(fault[0]))
    return {
        "level": faults[0][0] if faults else "VALID",
        "reasons": [f"{level}: {why}" for level, why in faults],
        "checks": checks,
    }


def verdict_so_far(finished: int, failed: int, cpu_share: float | None) -> str:
    """The level that a run under way would have by its failures and its client's CPU alone."""
    checks = {check.name: check for check in CHECKS}
    levels = [checks["errors"].level(100 * failed / max(finished, 1))]
    if cpu_share is not None:
        levels.append(checks["client_cpu"].level(100 * cpu_share))
    return max(levels, key=LEVELS.index)


def _beyond_limit(entry: dict[str, Any]) -> str:
    """A check's entry that is not VALID as a line: its value and the limit that it is beyond."""
    limit = entry["invalid_at"] if entry["level"] == "INVALID" else entry["degraded_at"]
    scale, unit = (1000, "ms") if entry["unit"] == "s" else (1, entry["unit"])
    side = "below" if next(check for check in CHECKS if check.name == entry["name"]).floor else "above"
    space = "" if unit in ("%", "") else " "
    value = f"{entry['value'] * scale:.4g}{space}{unit}"
    remedy = f"; {entry['why']}" if "why" in entry else ""
    return f"{entry['label']}: {value} ({side} {limit * scale:g}{space}{unit}){remedy}"


def worst(levels: Iterable[str]) -> str:
    """The worst of some verdicts' levels."""
    return max(levels, key=(NO_VERDICT, *LEVELS).index)
