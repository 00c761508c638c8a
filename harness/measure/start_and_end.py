"""How a run starts and ends: the waves of a closed loop, and the work that an open loop leaves behind."""

from __future__ import annotations

import math

import numpy as np

from harness.core.runspec import RunSpec
from harness.measure.columns import MISSING, NANOSECONDS, Bools, Requests
from harness.measure.statistics import Ints

# Waves below which neither the start nor the end can be left out.
LEAST_WAVES = 3
# Waves after which the start and the end weigh little in what is measured of all.
ENOUGH_WAVES = 10
# Requests in flight at two moments differ by chance: so many deviations of it are no growth.
CHANCE = 3.0
# Growth of what is under way, % of all requests, that runs of so many below capacity had as well: halves of a run
# differ by chance in the work that they bring, by a share that falls with the root of their number.
LEAST_GROWTH, OF_REQUESTS = 10.0, 2000


def in_flight(spec: RunSpec) -> int | None:
    """How many requests a closed loop of one level keeps in flight; None of any other arrival.

    A conversation that thinks has nothing in flight, and where all are sent at once nothing is filled again.
    """
    kind, _, setting = spec.arrival.partition(":concurrency=")
    if kind != "closed" or spec.sessions or not setting.isdigit():
        return None
    return int(setting)


def is_phased(spec: RunSpec) -> bool:
    """Whether the load changes by plan: such a run has no steady state, and its ups and downs are no noise."""
    by_plan = spec.arrival.partition(":")[0] in ("closed-phases", "phases", "ramp")
    return by_plan or spec.workload.partition(":")[0] == "drift"


def waves_of(requests: Requests, spec: RunSpec) -> float | None:
    """How often a closed loop fills anew; None where it does not."""
    level = in_flight(spec)
    sent = int(np.count_nonzero(requests.sent != MISSING))
    return sent / level if level is not None and level < sent else None


def full_waves(requests: Requests, spec: RunSpec) -> Bools | None:
    """Which requests are neither of the first wave nor of the last one, by the order in which they were sent.

    None where that leaves less than a wave.
    """
    waves, level = waves_of(requests, spec), in_flight(spec)
    if waves is None or level is None or waves < LEAST_WAVES:
        return None
    was_sent = np.flatnonzero(requests.sent != MISSING)
    order = was_sent[np.argsort(requests.sent[was_sent], kind="stable")]
    full = np.zeros(len(requests), dtype=np.bool_)
    full[order[level : len(order) - level]] = True
    return full


def steady_span(requests: Requests, spec: RunSpec) -> tuple[int, int]:
    """From the end of as many requests as are in flight to the last send, ns."""
    level = in_flight(spec) or 1
    done = np.sort(requests.done[requests.done != MISSING])
    if len(done) < level:
        return 0, 0
    return int(done[level - 1]), int(requests.sent.max())


def full_span(requests: Requests, spec: RunSpec) -> tuple[int, int]:
    """From the end of as many requests as are in flight to the first send of the last wave, ns.

    What is in flight then ends before the engine empties. Tokens count evenly over a request's answer: of one that ends
    while the engine empties, and grows fast, too many would count before the last send.
    """
    level = in_flight(spec) or 1
    sent = np.sort(requests.sent[requests.sent != MISSING])
    return steady_span(requests, spec)[0], int(sent[len(sent) - level])


def requests_for(spec: RunSpec, waves: int = ENOUGH_WAVES) -> int | None:
    """How many requests make so many waves."""
    level = in_flight(spec)
    return None if level is None else waves * level


def overload(requests: Requests, spec: RunSpec) -> float | None:
    """How much of an open loop's work was left over at its last arrival, % of all requests; None of other arrivals.

    The larger of two: by how many more requests waited for their first token in the last tenth of the arrivals than
    after its first fifth (the means of three moments), and by how many more were under way at the last arrival than at
    half time, where that is more than LEAST_GROWTH at 2,000 requests (more at fewer, as halves then differ by chance)
    and than CHANCE deviations of two Poisson counts. A rate of 1.2 times the capacity leaves a sixth.
    """
    counts = _second_half(requests, spec)
    if counts is None:
        return None
    before, after, _ = counts
    known = (requests.due != MISSING) & (requests.last != MISSING)
    due, first = np.sort(requests.due[known]), np.sort(requests.first[known])
    early, late = (_waiting(due, first, start, start + 0.1) for start in (0.2, 0.9))
    waiting = late - early
    grown = after - before
    least = LEAST_GROWTH / 100 * math.sqrt(OF_REQUESTS * len(due))
    is_growth = grown > max(least, CHANCE * math.sqrt(before + after))
    return 100 * max(waiting, grown if is_growth else 0) / len(due)


def _waiting(due: Ints, first: Ints, start: float, end: float) -> float:
    """How many waited for their first token, the mean of three moments between two shares of the arrivals' span."""
    span = int(due[-1]) - int(due[0])
    times = [int(due[0]) + int(share * span) for share in (start, (start + end) / 2, end)]
    return math.fsum(_by(due, time) - _by(first, time) for time in times) / len(times)


def served_rates(requests: Requests, spec: RunSpec) -> tuple[float, float] | None:
    """Requests/s served and sent in the second half of the arrivals; None of other arrivals."""
    counts = _second_half(requests, spec)
    if counts is None:
        return None
    before, after, came = counts
    due = requests.due[requests.due != MISSING]
    seconds = (int(due.max()) - int(due.min())) / 2 / NANOSECONDS
    return (came - (after - before)) / seconds, came / seconds


def requests_that_tell(requests: Requests) -> int:
    """How many requests make the arrivals last for 20 stays of the slowest in a hundred: 5 % of it is then one stay."""
    known = (requests.due != MISSING) & (requests.last != MISSING)
    due, stay = requests.due[known], (requests.last - requests.due)[known]
    span = int(due.max()) - int(due.min())
    return math.ceil(len(due) * max(1.0, 20 * float(np.percentile(stay, 99)) / max(span, 1)))


def _second_half(requests: Requests, spec: RunSpec) -> tuple[int, int, int] | None:
    """Requests under way at the middle and at the end of the arrivals, and how many came between."""
    kind = spec.arrival.partition(":")[0]
    if kind not in ("poisson", "constant", "gamma", "trace") or spec.sessions:
        return None
    known = (requests.due != MISSING) & (requests.last != MISSING)
    if np.count_nonzero(known) < LEAST_FOR_GROWTH:
        return None
    due, last = np.sort(requests.due[known]), np.sort(requests.last[known])
    middle, end = int(due[0] + due[-1]) // 2, int(due[-1])
    if end <= middle:
        return None

    def under_way(time: int) -> int:
        return _by(due, time) - _by(last, time)

    return under_way(middle), under_way(end), _by(due, end) - _by(due, middle)


# With fewer requests a growth of five in a hundred is a handful.
LEAST_FOR_GROWTH = 200


def _by(times: Ints, time: int) -> int:
    return int(np.searchsorted(times, time, side="right"))
