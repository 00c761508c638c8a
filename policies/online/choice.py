"""Which k, and prefill alone or beside decoding: what a request costs either way, by what steps have cost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log

CANDIDATES = 24
MOST_SHARE = 0.6  # of the batch
CLOSE = 0.01  # the smallest k within this of the best one
ROUNDS = 12

Content = tuple[float, float, float, float]
Seconds = Callable[[Content], float]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What comes and what runs: `prompt` and `output` tokens of a request in the mean, `rate` requests a second.

    `batch` requests run after a fill, `decoding` in the mean, each with a context of `context` tokens; slots and KV
    hold `most`. A prompt token brings `work` (token²); `budget` is the most tokens of a step.
    """

    prompt: float
    output: float
    rate: float
    batch: float
    most: float
    decoding: float
    context: float
    work: float
    budget: int


def exclusive_s(count: float, tokens: int, traffic: Traffic, prefill: Seconds) -> float:
    """Seconds by which admitting `count` requests holds up decoding: E = m·T_pre(P/m), m = ⌈P/B⌉, B = `tokens`."""
    total = count * traffic.prompt
    steps = -int(-total // max(1, min(traffic.budget, tokens)))
    chunk = total / steps
    return steps * prefill((chunk, chunk * traffic.work, 0.0, 0.0))


def mixed_s(count: float, decodes: float, tokens: int, traffic: Traffic, mixed: Seconds, decode: DecodeTimes) -> float:
    """Seconds that it adds to decode steps: E = m·max(0, T_mix(P/m) − T_dec), m = ⌈P/(B − D)⌉."""
    total = count * traffic.prompt
    steps = -int(-total // max(1.0, min(traffic.budget - decodes, tokens)))
    chunk = total / steps
    added = mixed((chunk, chunk * traffic.work, decodes, decodes * traffic.context)) - decode.at(decodes)
    return steps * max(0.0, added)


def mixed_token_s(tokens: int, traffic: Traffic, mixed: Seconds, decode: DecodeTimes) -> float:
    """Seconds a prompt token where a mixed step holds `tokens` of them: what they add, and their share of decoding.

    (T_mix − T_dec)/c + T_dec(D)·O/(D·P), D = min(most, O·c/P) where the engine has all it can do: small steps let in
    too few to share a decode step.
    """
    decodes = max(1.0, traffic.decoding)
    chunk = max(1.0, min(tokens, traffic.budget - decodes))
    added = mixed((chunk, chunk * traffic.work, decodes, decodes * traffic.context)) - decode.at(decodes)
    kept = max(1.0, min(traffic.most, traffic.output * chunk / traffic.prompt))
    return max(0.0, added) / chunk + decode.at(kept) * traffic.output / (kept * traffic.prompt)


def candidates(most: float) -> list[int]:
    """Up to CANDIDATES values of k from 1 to `most`, evenly spread over its octaves."""
    most = max(1.0, most)
    return sorted({int(most ** (i / (CANDIDATES - 1)) + 1e-9) for i in range(CANDIDATES)})


def smallest_good(costs: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """The smallest k within CLOSE of the least cost, and its cost; the costs by ascending k."""
    limit = min(cost for _, cost in costs) * (1 + CLOSE)
    return next(((k, cost) for k, cost in costs if cost <= limit), costs[0])


def saturated(admission_s: Callable[[int], float], traffic: Traffic, step_s: float) -> tuple[int, float]:
    """k, and the seconds of a request that are not its own decoding: [E(k) + d0·max(1, −ln(1 − k/n)·O)]/k.

    `step_s` = d0 is what a decode step costs whatever is in it: it is paid until k of n requests have ended.
    """
    n = max(1.0, traffic.batch)
    costs = []
    for k in candidates(MOST_SHARE * n):
        steps = max(1.0, -log(1 - min(k / n, 0.999)) * traffic.output)
        costs.append((k, (admission_s(k) + step_s * steps) / k))
    return smallest_good(costs)


@dataclass(frozen=True, slots=True)
class DecodeTimes:
    """Seconds of decode steps by their number of requests, known at some sizes."""

    sizes: list[float]
    times: list[float]

    @classmethod
    def of(cls, traffic: Traffic, decode: Seconds) -> DecodeTimes:
        """At every half octave up to the batch."""
        halves = 2 * int(log(max(traffic.batch, 64.0), 2)) + 4
        sizes = [2.0 ** (i / 2) for i in range(halves)]
        return cls(sizes, [decode((0.0, 0.0, size, size * traffic.context)) for size in sizes])

    def at(self, size: float) -> float:
        """At any size, on the straight line between two that are known."""
        sizes, times = self.sizes, self.times
        i = min(max(1, bisect_right(sizes, size)), len(sizes) - 1)
        low = sizes[i - 1]
        return times[i - 1] + (size - low) / (sizes[i] - low) * (times[i] - times[i - 1])


def unsaturated(
    admission_s: Callable[[int], float], traffic: Traffic, decode: DecodeTimes, ttft_s: float
) -> tuple[int, float]:
    """k, and a request's stay, s: (k − 1)/2λ + E + O·τ with τ = T_dec(D)/(1 − λE/k), D = λOτ; k ≤ ½·ttft·λ.

    D is iterated up from a small batch; where admissions alone would take all the time the stay has no end.
    """
    rate, output = traffic.rate, traffic.output
    largest = decode.sizes[-1]
    costs = []
    for k in candidates(min(0.5 * ttft_s * rate, MOST_SHARE * max(1.0, traffic.batch))):
        admission = admission_s(k)
        left = 1 - rate * admission / k
        stay = inf
        if left > 0.01:
            size = step = 1.0
            for _ in range(ROUNDS):
                step = decode.at(size) / left
                before, size = size, min(max(1.0, rate * output * step), largest)
                if abs(size - before) < 1e-3 * size:
                    break
            stay = (k - 1) / (2 * rate) + admission + output * step
        costs.append((k, stay))
    return smallest_good(costs)
