"""The KV gate without a law of lengths: what the running requests will hold, forecast from the lengths that were seen.

Kaplan–Meier over the last completions says which share of the requests that have a tokens goes on to a + t. The gate
lets in as many as keep the forecast of every step ahead within the cache.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from math import sqrt
from operator import mul

from policies.core import View

WINDOW = 500  # completions that the forecast looks back on; fewer, and the running ones count as censored
FEWEST = 30  # completions before there is a forecast
UNSEEN_GROWTH = 64  # tokens that each request may still grow by before that, or as many as the oldest has
GROUPS = 32  # of running requests of about the same age
TIMES = 16  # steps ahead that are looked at
SOONEST, SHARE = 32, 0.1  # the last of them: as many steps, or this share of the mean length
RENEWED = 25  # completions after which the curve is made anew; of a full window twice as many

MOST_Z, Z_A_PREEMPTION, Z_AN_ADMISSION = 3.0, 0.25, 0.005


def survival(lengths: Sequence[int], censored: Sequence[int] = ()) -> list[float]:
    """S(a), the share of requests with more than a tokens, for a = 0 … the longest seen (Kaplan–Meier).

    `lengths` have ended; those `censored` have at least one token more than this. The last entry holds beyond.
    """
    ended = sorted(lengths)
    alive = sorted(censored)
    curve: list[float] = []
    share, at = 1.0, 0
    while at < len(ended):
        length = ended[at]
        curve += [share] * (length - len(curve))
        together = bisect_right(ended, length) - at
        at_risk = len(ended) - at + len(alive) - bisect_right(alive, length - 1)
        share *= 1 - together / at_risk
        at += together
    curve.append(share)
    return curve


def both(first: Callable[[int], None], second: Callable[[int], None]) -> Callable[[int], None]:
    """Tells two of the same."""

    def tell(tokens: int, /) -> None:
        first(tokens)
        second(tokens)

    return tell


class ForecastGate:
    """How many waiting requests may start, so that nobody has to give way in the steps to come.

    `z` standard deviations of the forecast are kept free besides; each preemption raises it, each admission lowers it.
    `closed` says that KV, not slots nor tokens, kept someone out when it was asked last.
    """

    __slots__ = ("_curve", "_due", "_first", "_lengths", "_seen", "_stride", "_table", "closed", "z")

    def __init__(self) -> None:
        self.z = 0.0
        self.closed = False
        self._lengths: deque[int] = deque(maxlen=WINDOW)
        self._seen = 0
        self._due = FEWEST
        self._curve: list[float] = [1.0]
        self._table: list[float] = []  # the curve, carried on as far as anyone looks
        self._stride = 1
        self._first: list[float] = []  # of one that starts: its share at each time

    def on_finish(self, output_tokens: int, /) -> None:
        """A request completed."""
        self._seen += 1
        self._lengths.append(output_tokens)

    def on_admit(self, prompt_tokens: int, /) -> None:
        """A request got a slot for the first time."""
        if self.z:
            self.z = max(0.0, self.z - Z_AN_ADMISSION)

    def on_timed_step(
        self,
        steps: int,
        prefill_tokens: int,
        prefill_work: float,
        decodes: int,
        context: float,
        seconds: float,
        preempted: int,
        /,
    ) -> None:
        """Hears of preemptions."""
        if preempted:
            self.on_preempted(preempted)

    def on_preempted(self, count: int) -> None:
        """So many requests lost their slot: the forecast was too low."""
        self.z = min(MOST_Z, self.z + Z_A_PREEMPTION * count)

    def admissible(self, view: View, most: int, floor_blocks: int = 0) -> int:
        """How many that wait, first come first served and at most so many, may start in the next step.

        `floor_blocks` stay free besides.
        """
        self.closed = False
        if most <= 0 or not view.waiting:
            return 0
        prompts = self._candidates(view, most)
        if not prompts:
            return 0
        sums = [0, *accumulate(prompts)]
        spare = (view.block_size - 1) / 2  # of a last block, what nobody uses
        capacity = (view.total_blocks - view.watermark_blocks - floor_blocks) * view.block_size
        partials = view.partial_prefills() if view.prefilling else ()
        last = 1 + (TIMES - 1) * self._stride + spare
        if self._table:
            left = sums[-1] + sum(partial.tokens_left for partial in partials)
            growing = view.decoding + len(partials) + len(prompts)
            if left + growing * last <= (view.free_blocks - view.watermark_blocks - floor_blocks) * view.block_size:
                return len(prompts)  # there is room though nobody ends; nobody need be looked at
        held = sum(partial.num_prompt_tokens + partial.num_output_tokens for partial in partials)
        ages = view.num_output_tokens()
        if self._seen < FEWEST:
            growth = max(UNSEEN_GROWTH, ages[0] if ages else 0) + spare
            room = capacity - sum(view.footprints()) - held - (view.decoding + len(partials)) * growth
            return self._within(sums, [(1.0, growth)], [room])
        if self._seen >= self._due:
            self._renew(ages)
        footprints = sum(view.footprints())
        last = 1 + (TIMES - 1) * self._stride + spare
        if footprints + held + sums[-1] + (len(ages) + len(partials) + len(prompts)) * last <= capacity:
            return self._within(sums, [], [])  # though nobody ends
        needs, rooms = self._forecast(ages, footprints, spare, capacity, len(partials), held)
        return self._within(sums, needs, rooms)

    def _within(self, sums: Sequence[int], needs: Sequence[tuple[float, float]], rooms: Sequence[float]) -> int:
        count = _most(sums, needs, rooms)
        self.closed = self.closed or count < len(sums) - 1
        return count

    def _candidates(self, view: View, most: int) -> list[int]:
        """Their tokens to prefill, as far as the free blocks and the token budget of a step go."""
        size = view.block_size
        room = view.free_blocks - (view.watermark_blocks if view.decoding or view.prefilling else 0)
        budget = view.token_budget
        prompts: list[int] = []
        for tokens in islice(view.waiting_tokens(), most):
            room += -tokens // size
            if room < 0:
                self.closed = True
                break
            if budget <= 0:
                break
            budget -= tokens
            prompts.append(tokens)
        return prompts

    def _renew(self, ages: Sequence[int]) -> None:
        """The curve from what has been seen by now."""
        lengths = self._lengths
        self._due = self._seen + (2 * RENEWED if len(lengths) == WINDOW else RENEWED)
        self._curve = curve = survival(lengths, () if len(lengths) == WINDOW else ages)
        span = max(SOONEST, SHARE * sum(lengths) / len(lengths))
        self._stride = stride = -int(-span // (TIMES - 1))
        self._table = curve + [curve[-1]] * (stride * TIMES)
        self._first = self._table[: stride * TIMES : stride]

    def _forecast(
        self, ages: Sequence[int], footprints_sum: int, spare: float, capacity: int, starting: int, held: int
    ) -> tuple[list[tuple[float, float]], list[float]]:
        """At each time: the share and growth of one that starts now, and what is left in the cache, tokens."""
        stride, table, first = self._stride, self._table, self._first
        end = stride * TIMES
        n, longest = len(ages), len(self._curve) - 1
        rows: list[list[float]] = []
        weights: list[float] = []
        footprints: list[float] = []
        variances: list[float] = []
        # Prompt and age are taken to have nothing to do with each other.
        prompt = (footprints_sum - sum(ages)) / n + spare if n else 0.0
        groups = min(GROUPS, n)
        for group in range(groups):
            low, high = group * n // groups, (group + 1) * n // groups
            age = ages[(low + high) // 2]
            # Of one that is older than any that has ended nobody knows anything: it stays.
            row = table[age : age + end : stride] if age < longest and table[age] else [1.0] * TIMES
            alive = row[0]
            weight = (high - low) / alive
            rows.append(row)
            weights.append(weight)
            footprints.append(weight * (prompt + age))
            variances.append(weight / alive)
        needs: list[tuple[float, float]] = []
        rooms: list[float] = []
        mean_footprint = footprints_sum / n + spare if n else 0.0
        columns: Sequence[Sequence[float]] = list(zip(*rows, strict=True)) if rows else [()] * TIMES
        for i in range(TIMES):
            # A step grows before anybody ends: who has t − 1 more tokens by then holds t.
            t = 1 + i * stride
            column, share = columns[i], first[i]
            staying = sum(map(mul, column, weights))
            use = sum(map(mul, column, footprints)) + t * staying + share * (held + starting * (t + spare))
            if self.z:
                variance = staying - sum(map(mul, map(mul, column, column), variances))
                use += self.z * sqrt(max(0.0, variance)) * (mean_footprint + t)
            needs.append((share, t + spare))
            rooms.append(capacity - use)
        return needs, rooms


def _most(sums: Sequence[int], needs: Sequence[tuple[float, float]], rooms: Sequence[float]) -> int:
    """The most n for which share·(sums[n] + n·growth) fits each room; the sums of prompts begin with 0."""
    low, high = 0, len(sums) - 1
    for (share, growth), room in zip(needs, rooms, strict=True):
        if share <= 0:
            if room < 0:
                return 0
            continue
        limit = room / share
        if sums[high] + high * growth <= limit:
            continue
        low = 0
        while low < high:
            middle = (low + high + 1) // 2
            if sums[middle] + middle * growth <= limit:
                low = middle
            else:
                high = middle - 1
        if not high:
            return 0
    return high
