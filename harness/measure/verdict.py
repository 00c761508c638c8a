"""The verdict: how far a run can be trusted, from a table of checks and thresholds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.runspec import RunSpec
from harness.measure import arrivals
from harness.measure.arrivals import has_list
from harness.measure.columns import MISSING, integers, nanoseconds
from harness.measure.delivery import bunched, impossible
from harness.measure.fairness import DECODE
from harness.measure.gaps import decode_ends, follow_steps
from harness.measure.measured import VIRTUAL_ENGINES, Measured, is_closed_loop, span

LEVELS = ("VALID", "DEGRADED", "INVALID")
# Of a reported run: nobody ran it here, so nothing was checked.
NO_VERDICT = "NONE"
NOT_APPLICABLE = "not applicable"

OUT_OF_MEMORY = ("out of memory", "outofmemory", "oom-kill")


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a verdict is made from; tables have the columns of `records`."""

    spec: RunSpec
    manifest: dict[str, Any]
    requests: Any
    steps: Any | None
    measured: Measured
    engine_log: Path | None = None

    @property
    def virtual(self) -> bool:
        """Whether the run had no clock and no client of its own."""
        return self.spec.engine in VIRTUAL_ENGINES


@dataclass(frozen=True, slots=True)
class Check:
    """A value, and the thresholds above which (below which, if `floor`) it degrades or invalidates a run.

    `value` gives a number or, where the check cannot apply, the reason as text.
    """

    name: str
    label: str
    unit: str
    degraded: float | None
    invalid: float | None
    value: Callable[[Evidence], float | str]
    floor: bool = False

    def level(self, value: float) -> str:
        """VALID, DEGRADED or INVALID by the thresholds."""
        level = "VALID"
        for name, threshold in (("DEGRADED", self.degraded), ("INVALID", self.invalid)):
            if threshold is not None and (value < threshold if self.floor else value > threshold):
                level = name
        return level

    def judge(self, evidence: Evidence) -> dict[str, Any]:
        """The check's entry in run.json."""
        value = self.value(evidence)
        entry: dict[str, Any] = {"name": self.name, "label": self.label, "unit": self.unit}
        if isinstance(value, str):
            return entry | {"level": NOT_APPLICABLE, "why": value}
        return entry | {
            "level": self.level(value),
            "value": value,
            "degraded_at": self.degraded,
            "invalid_at": self.invalid,
        }


def _send_lag(evidence: Evidence) -> float | str:
    if evidence.virtual:
        return "a virtual run has no client"
    if is_closed_loop(evidence.spec):
        return "a closed loop has no planned arrivals"
    lag = evidence.measured.samples["send_lag_s"]
    if not lag.count:
        return "nothing was sent"
    # With under a hundred requests there is no p99: the largest lag is the stricter stand-in.
    worst = lag.percentile_s(99)
    return worst if worst is not None else float(lag.maximum_s or 0.0)


def _client_share(evidence: Evidence, name: str, unknown: str) -> float | str:
    """A share of time that the client wrote down of itself, %; `unknown` says that it did not."""
    if evidence.virtual:
        return "a virtual run has no client"
    share = evidence.manifest.get("client", {}).get(name)
    return 100 * float(share) if share is not None else unknown


def _client_cpu(evidence: Evidence) -> float | str:
    return _client_share(evidence, "cpu_share", "the client's CPU time was not recorded")


def _client_wait(evidence: Evidence) -> float | str:
    return _client_share(evidence, "wait_share", "how long the client waited for a processor was not recorded")


def _delivery(evidence: Evidence) -> float | str:
    if evidence.virtual:
        return "a virtual run has no client"
    if evidence.steps is None or not evidence.steps.num_rows:
        return "without a step log nobody knows when tokens were made"
    return bunched(evidence.measured.requests, evidence.steps)


def _answers(share: Callable[[Evidence], float | str]) -> Callable[[Evidence], float | str]:
    """A share of the answers that a client got."""
    return lambda evidence: "a virtual run has no client" if evidence.virtual else share(evidence)


_held_back = _answers(lambda one: arrivals.share_held_back(one.measured.requests, one.measured.arrivals))
_foreign = _answers(lambda one: arrivals.share_foreign(one.manifest.get("client", {})))
_beyond_usage = _answers(lambda one: arrivals.share_beyond_usage(one.manifest.get("client", {}), one.measured.requests))


def _elsewhere(evidence: Evidence) -> float | str:
    if evidence.virtual:
        return "a virtual run takes no machine's time"
    share = (evidence.manifest.get("machine") or {}).get("elsewhere")
    return 100 * float(share) if share is not None else "what else ran on the server's machine was not recorded"


def _errors(evidence: Evidence) -> float | str:
    completed = evidence.measured.requests.completed
    return 100 * float(np.mean(~completed)) if len(completed) else "no request was recorded"


def _completed(evidence: Evidence) -> float | str:
    return float(np.count_nonzero(evidence.measured.requests.completed))


def _steady(evidence: Evidence) -> float | str:
    if not is_closed_loop(evidence.spec):
        return "in an open loop the arrivals decide how many are in flight"
    if evidence.spec.arrival.startswith("closed-phases:"):
        return "the number in flight changes by plan"
    if evidence.spec.sessions:
        return "a conversation that thinks has nothing in flight"
    start, end = span(evidence.measured.requests)
    window = evidence.measured.window
    if window is None or end <= start:
        return "the run has no span"
    return min(100.0, 100 * (window.end - window.start) / (end - start))


def _backlog(evidence: Evidence) -> float | str:
    if is_closed_loop(evidence.spec):
        return "a closed loop sends only as fast as it is served"
    if evidence.spec.arrival == "offline":
        return "offline every request waits from the start"
    requests = evidence.measured.requests
    order = np.argsort(requests.due, kind="stable")
    waited = (requests.first - requests.due)[order][(requests.first != MISSING)[order]] / 1e9
    fifth = len(waited) // 5
    if fifth < 20:
        return "too few requests to see a queue grow"
    early, late = float(np.median(waited[fifth : 2 * fifth])), float(np.median(waited[-fifth:]))
    # A wait of under a second is no backlog, however small the wait before it was.
    return late / early if late > 1 and early > 0 else 1.0


def _output_length(evidence: Evidence) -> float | str:
    requests = evidence.measured.requests
    expected = integers(evidence.requests.column("expected_output_tokens"))[requests.order]
    asked = requests.completed & (expected > 0)
    if not asked.any():
        return "no length was asked for"
    return 100 * float(np.mean(requests.output_tokens[asked] != expected[asked]))


def _prefix_cache(evidence: Evidence) -> float | str:
    cache = evidence.manifest.get("prefix_cache")
    if not cache:
        return "no prefix cache was declared"
    if cache["declared"] is None:
        return "no share of hits was declared"
    return 100 * abs(float(cache["observed"]) - float(cache["declared"]))


def _off_grid(evidence: Evidence) -> float | str:
    beyond = evidence.manifest.get("off_grid")
    return 100 * float(beyond["share"]) if beyond else "no step was priced by measured kernels"


def _realised_trace(evidence: Evidence) -> float | str:
    rows = np.unique(evidence.measured.requests.row)
    planned = int(evidence.manifest.get("planned", {}).get("requests", evidence.spec.requests))
    # What was sent of conversations by the time that sending ended is no beginning of the trace.
    end = evidence.spec.requests if evidence.spec.sessions else planned
    within = np.count_nonzero((rows >= 0) & (rows < end))
    return float(abs(planned - within) + len(rows) - within)


def _token_times(evidence: Evidence) -> float | str:
    if not evidence.virtual or evidence.steps is None:
        return "only in a virtual run do token times follow from the steps"
    requests = evidence.measured.requests
    without_list = ~has_list(requests, evidence.requests) & requests.completed
    start, stop = follow_steps(requests, decode_ends(evidence.steps), without_list)
    return float(np.count_nonzero((stop - start != requests.output_tokens - 1) & without_list))


def _step_counts(evidence: Evidence) -> float | str:
    states = evidence.measured.fairness
    if not states:
        return "the step log does not say which requests produce tokens"
    return float(sum(state.contradictions for state in states.values()))


def _step_tokens(evidence: Evidence) -> float | str:
    if not evidence.virtual or evidence.manifest.get("status", "complete") != "complete":
        return "only in a whole virtual run is every token in both tables"
    state = evidence.measured.fairness.get(DECODE)
    if state is None:
        return "the step log does not say which requests produce tokens"
    # A request that gives o tokens, one a step, holds 1 + 2 + … + o over its steps: Q knows no schedule.
    output = evidence.measured.requests.output_tokens
    held = sum(tokens * (tokens + 1) // 2 for tokens in output.tolist())
    return float(abs(state.held - held) + abs(state.tokens - int(output.sum())))


def _preemptions(evidence: Evidence) -> float | str:
    n = evidence.requests.num_rows
    column = evidence.requests.column("preemptions")
    return "the engine did not say" if column.null_count == n else float(integers(column).sum()) / float(n)


def _clock(evidence: Evidence) -> float | str:
    requests = evidence.measured.requests
    stages = [requests.due, requests.sent, requests.first, requests.last, requests.done]
    backwards = sum(
        int(np.count_nonzero((later < earlier) & (later != MISSING) & (earlier != MISSING)))
        for earlier, later in itertools.pairwise(stages)
    )
    if evidence.steps is not None:
        start = nanoseconds(evidence.steps.column("t_s"))
        length = nanoseconds(evidence.steps.column("duration_s"))
        # Floats of seconds: an engine's own clock may round by a nanosecond between end and next start.
        backwards += int(np.count_nonzero(start[1:] - (start + length)[:-1] < -2)) + int((length < 0).sum())
        # On one clock nothing reaches the client before it was made; steps moved in time would hide late deliveries.
        if not evidence.virtual and not evidence.steps.column("producing").null_count:
            backwards += impossible(requests, evidence.steps)
    return float(backwards)


def _engine_log(evidence: Evidence) -> float | str:
    if evidence.virtual:
        return "a virtual run has no engine log"
    if evidence.engine_log is None or not evidence.engine_log.is_file():
        return "there is no engine log"
    with evidence.engine_log.open(encoding="utf-8", errors="replace") as lines:
        return float(sum(any(word in line.lower() for word in OUT_OF_MEMORY) for line in lines))


def _comparison(_: Evidence) -> str:
    return "for a comparison to check"


CHECKS = (
    Check("send_lag", "send lag p99", "s", 0.005, 0.050, _send_lag),
    Check("client_cpu", "client CPU in use", "%", 70, 90, _client_cpu),
    # A client that is kept from reading stamps what has piled up with one time: latencies and TPOT of nobody's making.
    Check("client_wait", "time that the client waited for a processor", "%", 5, 20, _client_wait),
    Check("delivery", "answers that reached the client in bunches, later than they were made", "%", 1, 10, _delivery),
    Check("held_back", "answers that came all at once, held back on their way", "%", 1, 10, _held_back),
    Check("foreign", "answers that bear another request's id", "%", 0, 1, _foreign),
    Check("beyond_usage", "answers with more tokens in their events than in their usage", "%", 0, 10, _beyond_usage),
    Check("elsewhere", "the machine's CPU time that other work took", "%", 10, 30, _elsewhere),
    Check("errors", "requests not completed", "%", 0.1, 1, _errors),
    Check("completed", "completed requests", "", None, 1, _completed, floor=True),
    Check("steady_window", "steady window of the run", "%", 50, 20, _steady, floor=True),
    Check("backlog", "late waits for the first token over early ones (a growing queue)", "times", 3, None, _backlog),
    Check("output_length", "answers of another length than asked for", "%", 0, 1, _output_length),
    Check("prefix_cache", "prefix-cache hits off the declared share by", "points", 1, 5, _prefix_cache),
    Check("off_grid", "time priced beyond the measured kernels", "%", 1, None, _off_grid),
    Check("realised_trace", "rows of the trace missing or unplanned", "rows", None, 0, _realised_trace),
    Check("token_times", "requests whose tokens do not match the steps", "requests", None, 0, _token_times),
    Check("step_counts", "steps whose token counts contradict themselves", "steps", None, 0, _step_counts),
    Check("step_tokens", "tokens that steps and requests tell differently", "tokens", None, 0, _step_tokens),
    # Preemptions are a policy's own doing, so they never invalidate; from one in ten requests on, recomputed
    # work shapes the result and a reader should know.
    Check("preemptions", "preemptions a request", "", 0.1, None, _preemptions),
    Check("clock", "times that run backwards", "times", None, 0, _clock),
    Check("engine_log", "lines of the engine log that say out of memory", "lines", None, 0, _engine_log),
    Check("same_trace", "same realised trace across arms", "", None, None, _comparison),
    Check("same_engine", "engine version and async mode equal across arms", "", None, None, _comparison),
)


def judge(evidence: Evidence, status: str, reason: str | None) -> dict[str, Any]:
    """The verdict's entry in run.json: level, reasons (one line each) and every check.

    A run that is not `complete` is INVALID. `manifest["degraded"]` lists reasons known before the run,
    such as an assumed cost: the best such a run can be is DEGRADED.
    """
    checks = [check.judge(evidence) for check in CHECKS]
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
    return f"{entry['label']}: {value} ({side} {limit * scale:g}{space}{unit})"


def worst(levels: Iterable[str]) -> str:
    """The worst of some verdicts' levels."""
    return max(levels, key=(NO_VERDICT, *LEVELS).index)
