"""What each check of a verdict looks at: a number or, where it cannot apply, the reason as text."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from harness.measure import arrivals
from harness.measure.arrivals import has_list
from harness.measure.columns import MISSING, Bools, integers, nanoseconds
from harness.measure.delivery import bunched, impossible
from harness.measure.evidence import Evidence
from harness.measure.fairness import DECODE
from harness.measure.gaps import decode_ends, follow_steps
from harness.measure.measured import is_closed_loop, span
from harness.measure.start_and_end import requests_for, requests_that_tell, served_rates

# Work left over at the last arrival, %, from which the rate is above capacity (docs/calibration.md).
ABOVE_CAPACITY = 3

_OUT_OF_MEMORY = ("out of memory", "outofmemory", "oom-kill")


def send_lag(evidence: Evidence) -> float | str:
    """How late the client sent, p99, s."""
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


def client_cpu(evidence: Evidence) -> float | str:
    """The client's CPU in use, %."""
    return _client_share(evidence, "cpu_share", "the client's CPU time was not recorded")


def client_wait(evidence: Evidence) -> float | str:
    """The share of time that the client waited for a processor, %."""
    return _client_share(evidence, "wait_share", "how long the client waited for a processor was not recorded")


def several_hosts(evidence: Evidence) -> bool:
    """Whether other hosts than the one that records drove."""
    return bool(evidence.manifest.get("client", {}).get("hosts"))


def driver_clocks(evidence: Evidence) -> float | str:
    """How far the clocks of the driving hosts may have been from where they were taken to be, s."""
    error = evidence.manifest["client"].get("clock_error_s")
    return float(error) if error is not None else "the hosts' clocks were not recorded"


def delivery_of(evidence: Evidence) -> float | str:
    """Answers that came in bunches, %."""
    if evidence.virtual:
        return "a virtual run has no client"
    if evidence.steps is None or not evidence.steps.num_rows:
        return "without a step log nobody knows when tokens were made"
    return bunched(evidence.measured.requests, evidence.steps)


def _answers(share: Callable[[Evidence], float | str]) -> Callable[[Evidence], float | str]:
    """A share of the answers that a client got."""
    return lambda evidence: "a virtual run has no client" if evidence.virtual else share(evidence)


held_back = _answers(lambda one: arrivals.share_held_back(one.measured.requests, one.measured.arrivals))
foreign = _answers(lambda one: arrivals.share_foreign(one.manifest.get("client", {})))
beyond_usage = _answers(lambda one: arrivals.share_beyond_usage(one.manifest.get("client", {}), one.measured.requests))


def elsewhere(evidence: Evidence) -> float | str:
    """The machine's CPU time that other work took, %."""
    if evidence.virtual:
        return "a virtual run takes no machine's time"
    share = (evidence.manifest.get("machine") or {}).get("elsewhere")
    return 100 * float(share) if share is not None else "what else ran on the server's machine was not recorded"


def errors_of(evidence: Evidence) -> float | str:
    """Requests not completed, %."""
    completed = evidence.measured.requests.completed
    return 100 * float(np.mean(~completed)) if len(completed) else "no request was recorded"


def completed_of(evidence: Evidence) -> float | str:
    """How many requests were completed."""
    return float(np.count_nonzero(evidence.measured.requests.completed))


def steady_of(evidence: Evidence) -> float | str:
    """The steady window's share of a closed loop, %."""
    if not is_closed_loop(evidence.spec):
        return "in an open loop the arrivals decide how many are in flight"
    if evidence.spec.arrival.startswith("closed-phases:"):
        return "the number in flight changes by plan"
    if evidence.spec.sessions:
        return "a conversation that thinks has nothing in flight"
    if evidence.measured.waves is None:
        return "all requests were sent at once"
    start, end = span(evidence.measured.requests)
    window = evidence.measured.loaded
    if window is None or end <= start:
        return "the run has no span"
    return min(100.0, 100 * (window.end - window.start) / (end - start))


def waves_of(evidence: Evidence) -> float | str:
    """How often a closed loop fills anew."""
    if not is_closed_loop(evidence.spec):
        return "an open loop has no waves"
    waves = evidence.measured.waves
    return "the loop is not filled again at one level" if waves is None else waves


def more_requests(evidence: Evidence) -> str:
    """How many requests would make enough waves."""
    return f"--requests {requests_for(evidence.spec) or 0} would do"


def overload_of(evidence: Evidence) -> float | str:
    """How much of an open loop's work was left over at its last arrival, %."""
    if is_closed_loop(evidence.spec):
        return "a closed loop sends only as fast as it is served"
    beyond = evidence.measured.beyond
    return "its arrivals are planned otherwise, or too few" if beyond is None else beyond


def served(evidence: Evidence) -> str:
    """What was served of what was sent."""
    served, sent = served_rates(evidence.measured.requests, evidence.spec) or (0.0, 0.0)
    return f"{served:.3g} of {sent:.3g} requests/s served: TTFT depends on how long the run is"


def backlog(evidence: Evidence) -> float | str:
    """Late waits for the first token over early ones."""
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


def longer(evidence: Evidence) -> str:
    """How many requests would tell whether a queue settles."""
    if (evidence.measured.beyond or 0.0) > ABOVE_CAPACITY:
        return "the rate is above capacity"
    return f"near capacity: --requests {requests_that_tell(evidence.measured.requests)} would tell whether it settles"


def output_length(evidence: Evidence) -> float | str:
    """Answers of another length than asked for, %."""
    requests = evidence.measured.requests
    expected = integers(evidence.requests.column("expected_output_tokens"))[requests.order]
    asked = requests.completed & (expected > 0)
    if evidence.spec.client.get("ignore_eos") is False:
        return "answers end by themselves: a comparison holds them against each other"
    if not asked.any():
        return "no length was asked for"
    return 100 * float(np.mean(requests.output_tokens[asked] != expected[asked]))


def prefix_cache(evidence: Evidence) -> float | str:
    """How far hits of the prefix cache are off the declared share, points."""
    cache = evidence.manifest.get("prefix_cache")
    if not cache:
        return "no prefix cache was declared"
    if cache["declared"] is None:
        return "no share of hits was declared"
    return 100 * abs(float(cache["observed"]) - float(cache["declared"]))


def off_grid(evidence: Evidence) -> float | str:
    """Time priced beyond the measured kernels, %."""
    beyond = evidence.manifest.get("off_grid")
    return 100 * float(beyond["share"]) if beyond else "no step was priced by measured kernels"


def realised_trace(evidence: Evidence) -> float | str:
    """Rows of the trace that are missing or were never planned."""
    rows = np.unique(evidence.measured.requests.row)
    planned = int(evidence.manifest.get("planned", {}).get("requests", evidence.spec.requests))
    # What was sent of conversations by the time that sending ended is no beginning of the trace.
    end = evidence.spec.requests if evidence.spec.sessions else planned
    within = np.count_nonzero((rows >= 0) & (rows < end))
    return float(abs(planned - within) + len(rows) - within)


def token_times(evidence: Evidence) -> float | str:
    """Requests whose tokens do not follow from the steps."""
    if not evidence.virtual or evidence.steps is None:
        return "only in a virtual run do token times follow from the steps"
    requests = evidence.measured.requests
    without_list = ~has_list(requests, evidence.requests) & requests.completed
    start, stop = follow_steps(requests, decode_ends(evidence.steps), without_list)
    return float(np.count_nonzero((stop - start != requests.output_tokens - 1) & without_list))


def step_counts(evidence: Evidence) -> float | str:
    """Steps whose token counts contradict themselves."""
    states = evidence.measured.fairness
    if not states:
        return "the step log does not say which requests produce tokens"
    return float(sum(state.contradictions for state in states.values()))


def step_tokens(evidence: Evidence) -> float | str:
    """Tokens that steps and requests tell differently."""
    if not evidence.virtual or evidence.manifest.get("status", "complete") != "complete":
        return "only in a whole virtual run is every token in both tables"
    state = evidence.measured.fairness.get(DECODE)
    if state is None:
        return "the step log does not say which requests produce tokens"
    # A request that gives o tokens, one a step, holds 1 + 2 + … + o over its steps: Q knows no schedule.
    output = evidence.measured.requests.output_tokens
    held = sum(tokens * (tokens + 1) // 2 for tokens in output.tolist())
    return float(abs(state.held - held) + abs(state.tokens - int(output.sum())))


def has_replicas(evidence: Evidence) -> bool:
    """Whether several engines served behind one router."""
    return evidence.spec.replicas > 1


def replica_balance(evidence: Evidence) -> float | str:
    """How much more than the mean of all the busiest replica computed, prompt and output tokens, %."""
    if evidence.spec.policy.partition(":")[0] == "pd":
        return "prefill and decode are apart: no two replicas have equal work"
    column, replicas = evidence.requests.column("replica"), evidence.spec.replicas
    if column.null_count:
        return "the requests do not tell which replica served them"
    served = integers(column)
    if len(served) and int(served.max()) >= replicas:
        return "the requests name more replicas than there are"
    tokens = integers(evidence.requests.column("prompt_tokens")) + integers(evidence.requests.column("output_tokens"))
    sums = np.bincount(served, tokens, replicas)
    return 100 * (float(sums.max() / sums.mean()) - 1) if sums.any() else "nothing was served"


def preemptions_of(evidence: Evidence) -> float | str:
    """Preemptions a request."""
    n = evidence.requests.num_rows
    column = evidence.requests.column("preemptions")
    return "the engine did not say" if column.null_count == n else float(integers(column).sum()) / float(n)


def clock_of(evidence: Evidence) -> float | str:
    """Times that run backwards."""
    requests = evidence.measured.requests
    stages = [requests.due, requests.sent, requests.first, requests.last, requests.done]
    backwards = sum(
        int(np.count_nonzero((later < earlier) & (later != MISSING) & (earlier != MISSING)))
        for earlier, later in itertools.pairwise(stages)
    )
    if evidence.steps is not None:
        start = nanoseconds(evidence.steps.column("t_s"))
        length = nanoseconds(evidence.steps.column("duration_s"))
        same: bool | Bools = True
        if has_replicas(evidence):
            # Each one's steps follow one another; those of several lie side by side.
            replica = integers(evidence.steps.column("replica"))
            order = np.argsort(replica, kind="stable")
            start, length, replica = start[order], length[order], replica[order]
            same = replica[1:] == replica[:-1]
        # Floats of seconds: an engine's own clock may round by a nanosecond between end and next start.
        backwards += int(np.count_nonzero((start[1:] - (start + length)[:-1] < -2) & same)) + int((length < 0).sum())
        # On one clock nothing reaches the client before it was made; steps moved in time would hide late deliveries.
        if not evidence.virtual and not evidence.steps.column("producing").null_count:
            backwards += impossible(requests, evidence.steps)
    return float(backwards)


def engine_log(evidence: Evidence) -> float | str:
    """Lines of the engine log that say out of memory."""
    if evidence.virtual:
        return "a virtual run has no engine log"
    if evidence.engine_log is None or not evidence.engine_log.is_file():
        return "there is no engine log"
    with evidence.engine_log.open(encoding="utf-8", errors="replace") as lines:
        return float(sum(any(word in line.lower() for word in _OUT_OF_MEMORY) for line in lines))


def comparison(_: Evidence) -> str:
    """What only a comparison can check."""
    return "for a comparison to check"
