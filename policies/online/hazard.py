"""What the output lengths look like, from what has been seen: completions and the requests still running.

A window of completed requests alone is censored: at first only short ones are in it. Counting the tokens
that running requests have already survived (their exposure) takes the bias away.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul, neg

BINS = 32

# Where the counts of the estimator stood: tokens produced, decode steps, and whether first tokens had come since.
Moment = tuple[int, int, bool]


@dataclass(frozen=True, slots=True)
class HazardLine:
    """A line p0 + η·t through the hazard of the output length (1/token and 1/token²)."""

    p0: float
    eta: float


class ExposureEstimator:
    """Estimates the hazard of the output length over the last `window` completions, requests in flight included.

    `p_bar` is completions ÷ output tokens produced, O(1) a step; `line` fits p0 + η·t on request. `on_admit`
    hears the prompt of each request that is admitted for the first time, `on_finish` the output of each
    that has completed, after `on_steps` has counted its last token.
    """

    __slots__ = (
        "_admitted",
        "_clock",
        "_completions",
        "_dated",
        "_dates",
        "_finished",
        "_fresh",
        "_groups",
        "_leads",
        "_outputs",
        "_prompts",
        "_start",
        "_tokens",
        "on_admit",
        "on_finish",
        "window",
    )

    def __init__(self, window: int) -> None:
        self.window = window
        self._completions = 0
        self._tokens = 0
        self._clock = 0  # decode steps so far: every decoding request ages by one a tick
        self._fresh = False  # first tokens have come since the clock last moved
        self._start: Moment = (0, 0, False)  # when the window began
        self._outputs: deque[int] = deque()  # of the completed requests in the window: their output tokens,
        self._leads: deque[int] = deque()  # and output tokens less the clock then: their age when it stood at 0
        # The same requests by the step that they completed in: the moment after it, and how many they are.
        self._groups: deque[tuple[Moment, int]] = deque()
        self._prompts: deque[int] = deque(maxlen=window)
        # What was heard since anyone looked, and after which steps: hearing costs no more than this.
        self._dates: list[tuple[Moment, int]] = []
        self._dated = 0  # of `_finished`
        self._finished: list[int] = []
        self._admitted: list[int] = []
        self.on_finish: Callable[[int], None] = self._finished.append
        self.on_admit: Callable[[int], None] = self._admitted.append

    @property
    def completions(self) -> int:
        """Requests that have completed so far."""
        return self._completions + len(self._finished)

    def on_steps(self, steps: int, decodes: int, first_tokens: int) -> None:
        """`steps` steps ran with `decodes` requests decoding in each; `first_tokens` came out of prefills."""
        if len(self._finished) > self._dated:
            self._date()
        self._tokens += steps * decodes + first_tokens
        if decodes:
            self._clock += steps
            self._fresh = first_tokens > 0
        elif first_tokens:
            self._fresh = True

    def _date(self) -> None:
        """What has completed since the last step goes with the state that this left: its tokens are counted in it."""
        finished = len(self._finished)
        self._dates.append(((self._tokens, self._clock, self._fresh), finished - self._dated))
        self._dated = finished

    def _take_in(self) -> None:
        """Moves the window on by what has completed since anyone looked, step by step."""
        if len(self._finished) > self._dated:
            self._date()
        first = 0
        for now, count in self._dates:
            self._move(now, self._finished[first : first + count])
            first += count
        self._finished.clear()
        self._dates.clear()
        self._dated = 0

    def _move(self, now: Moment, finished: list[int]) -> None:
        """Moves the window on by the requests that completed in one step, and drops as many steps as are too many."""
        groups, count = self._groups, len(finished)
        self._outputs.extend(finished)
        self._leads.extend([output - now[1] for output in finished])
        self._completions += count
        if groups and groups[-1][0] == now:
            count += groups.pop()[1]
        groups.append((now, count))
        # A step leaves the window whole: completions of the step that it starts after have no tokens in it.
        excess = len(self._outputs) - self.window
        while len(groups) > 1 and (excess > 0 or groups[0][0] == self._start):
            self._start, dropped = groups.popleft()
            self._drop(dropped)
            excess -= dropped
        if excess > 0:
            self._drop(excess)
            self._start = now
            groups[0] = (now, count - excess)

    def _drop(self, count: int) -> None:
        for _ in range(count):
            self._outputs.popleft()
            self._leads.popleft()

    @property
    def p_bar(self) -> float:
        """p̄, 1/token: completions ÷ output tokens produced in the window; 0 before the first completion."""
        if self._finished:
            self._take_in()
        completed = len(self._outputs)
        if not completed:
            return 0.0
        # The completions of one step can fill the whole window and leave no token between its ends.
        return completed / max(self._tokens - self._start[0], completed)

    @property
    def mu_l(self) -> float:
        """Mean prompt of the last admissions, tokens; 0 before the first."""
        self._prompts.extend(self._admitted)
        self._admitted.clear()
        return sum(self._prompts) / len(self._prompts) if self._prompts else 0.0

    def line(self, num_output_tokens: Sequence[int]) -> HazardLine:
        """The line through the Nelson–Aalen increments of the window, weighted by exposure.

        `num_output_tokens` are those so far of the requests in flight, descending: the ages that they have reached.
        Ages fall into 32 bins of equal exposure up to the 95th percentile of the completed lengths. p0 is kept at
        p̄/4 or above; η ≤ 0 counts as 0.
        """
        p_bar = self.p_bar
        if not self._outputs:
            return HazardLine(0.0, 0.0)
        outputs = sorted(self._outputs)
        exposure = self._exposure(outputs, num_output_tokens)
        oldest = outputs[(95 * len(outputs) + 99) // 100 - 1]
        bins = _bins(exposure, outputs, _equal_exposure(exposure, oldest))
        return _fit(bins, p_bar)

    def _exposure(self, outputs: list[int], num_output_tokens: Sequence[int]) -> Callable[[int], int]:
        """Tokens produced in the window at ages 1…age, as a function of age.

        A request is at risk up to the age that it has ended at or has now, its exit. One that was already running
        when the window began is at risk only from the age that it had then, its entry.
        """
        _, start, fresh = self._start
        lived = self._clock - start
        # A prefill-only step moves no clock: who was one token old at the window's start may have come after it.
        youngest = 0 if fresh else 1
        running = youngest - start
        exits = sorted([*outputs, *reversed(num_output_tokens)])
        older = bisect_left(num_output_tokens, -lived - youngest, key=neg)
        entries = [lead + start for lead in self._leads if lead > running]
        entries += [age - lived for age in num_output_tokens[:older]]
        entries.sort()
        exit_sums = [0, *accumulate(exits)]
        entry_sums = [0, *accumulate(entries)]
        at_risk = len(exits) - len(entries)

        def exposure(age: int) -> int:
            exited = bisect_right(exits, age)
            entered = bisect_right(entries, age)
            return exit_sums[exited] - entry_sums[entered] + age * (at_risk - exited + entered)

        return exposure


@dataclass(slots=True)
class _Bins:
    """Bins of ages that anyone was exposed in: exposure (tokens), hazard (1/token) and middle (tokens) of each."""

    weights: list[int]
    hazards: list[float]
    middles: list[float]


def _bins(exposure: Callable[[int], int], outputs: list[int], edges: list[int]) -> _Bins:
    """The bins up to these edges, with the hazard that the completed `outputs` (ascending) show in each."""
    bins = _Bins([], [], [])
    low, low_exposure, low_events = 0, 0, 0
    for high in edges:
        high_exposure = exposure(high)
        weight = high_exposure - low_exposure
        if weight <= 0:
            continue
        events = bisect_right(outputs, high)
        bins.weights.append(weight)
        bins.hazards.append((events - low_events) / weight)
        bins.middles.append((low + 1 + high) / 2)
        low, low_exposure, low_events = high, high_exposure, events
    return bins


def _fit(bins: _Bins, p_bar: float) -> HazardLine:
    """The line of least squares through the bins; constant where it would fall, and never below p̄/4 at age 0."""
    weight_sum = sum(bins.weights)
    if not weight_sum:
        return HazardLine(p_bar, 0.0)
    mean_age = sum(map(mul, bins.middles, bins.weights)) / weight_sum
    mean_hazard = sum(map(mul, bins.hazards, bins.weights)) / weight_sum
    spread = covariance = 0.0
    for weight, hazard, middle in zip(bins.weights, bins.hazards, bins.middles, strict=True):
        offset = middle - mean_age
        spread += weight * offset * offset
        covariance += weight * offset * (hazard - mean_hazard)
    eta = covariance / spread if spread > 0 else 0.0
    if eta <= 0:
        return HazardLine(max(mean_hazard, p_bar / 4), 0.0)
    return HazardLine(max(mean_hazard - eta * mean_age, p_bar / 4), eta)


def _equal_exposure(exposure: Callable[[int], int], oldest: int) -> list[int]:
    """Upper edges of up to BINS bins of ages 1…oldest with about equal exposure, ascending, the last one `oldest`.

    Exposure over age is smooth, so its inverse is read off a straight line between BINS even points; what a
    bin then really holds is counted exactly by the caller.
    """
    ages = sorted({oldest * i // BINS for i in range(1, BINS + 1)} - {0})
    curve = [exposure(age) for age in ages]
    edges: list[int] = []
    i, low_age, low = 0, 0, 0
    for number in range(1, BINS):
        target = curve[-1] * number / BINS
        while curve[i] < target:
            low_age, low = ages[i], curve[i]
            i += 1
        share = (target - low) / (curve[i] - low) if curve[i] > low else 0.0
        edge = low_age + round((ages[i] - low_age) * share)
        if edge > (edges[-1] if edges else 0):
            edges.append(edge)
    if not edges or edges[-1] < oldest:
        edges.append(oldest)
    return edges
