"""Work done over time: what every throughput is a slope of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.measure.columns import NANOSECONDS, Bools, Requests
from harness.measure.estimate import Estimate, ratio_of_sums
from harness.measure.statistics import LEAST_UNITS, Floats, Ints

# Shares of the work that an interval is made from: enough for the blocks, few enough to hold many requests.
MOST_SHARES = 1000

# Times at which the work is summed up to find those shares.
EDGES = 20_000


@dataclass(frozen=True, slots=True)
class Work:
    """Requests' work: `jump` units at `start` (ns) and `spread` units evenly from there to `end` (ns)."""

    start: Ints
    end: Ints
    jump: Floats
    spread: Floats

    def done_by(self, time: int) -> float:
        """Units done up to and at a time, ns."""
        length = np.maximum(self.end - self.start, 1)
        part = np.where(time >= self.end, 1.0, np.clip((time - self.start) / length, 0.0, 1.0))
        return float(np.sum(self.jump * (self.start <= time) + self.spread * part))

    def rate(self, start: int, end: int) -> Estimate | None:
        """Units per second from `start` to `end`, ns; None where that is no span.

        Its units are equal shares of the work in their order: the rate is the number of shares over the sum
        of the times they took, and the n-th share in one arm meets the n-th in another.
        """
        if end <= start:
            return None
        before, after = self.done_by(start), self.done_by(end)
        seconds = (end - start) / NANOSECONDS
        within = int(np.count_nonzero((self.end > start) & (self.end <= end)))
        shares = min(MOST_SHARES, within)
        value = (after - before) / seconds
        if value == 0 or shares < LEAST_UNITS:
            none = np.zeros(0, dtype=np.int64)
            return Estimate(value, none, np.zeros(0))
        total = self._by_edges(start, end)
        wanted = before + (after - before) * np.arange(1, shares) / shares
        reached = np.interp(wanted, total, np.linspace(0.0, seconds, len(total)))
        took = np.diff(np.concatenate(([0.0], reached, [seconds])))
        share = ratio_of_sums(np.arange(shares, dtype=np.int64), np.ones(shares), took)
        return Estimate(value, share.units, share.influence)

    def _by_edges(self, start: int, end: int) -> Floats:
        """Units done up to each of EDGES + 1 equidistant times from `start` to `end`."""
        width = (end - start) / EDGES

        def until(times: Ints, weights: Floats) -> Floats:
            edge = np.clip(np.ceil((times - start) / width), 0, EDGES + 1).astype(np.int64)
            return np.cumsum(np.bincount(edge, weights, minlength=EDGES + 2)[: EDGES + 1], dtype=np.float64)

        length = self.end - self.start
        slope = np.divide(self.spread, length, out=np.zeros(len(length)), where=length > 0)
        total = until(self.start, np.where(length > 0, self.jump, self.jump + self.spread))
        edges = np.linspace(0.0, float(end - start), EDGES + 1)
        for times, sign in ((self.start, 1.0), (self.end, -1.0)):
            # Σ slope (edge - time) over what began, less the same over what ended, without sorting.
            total += sign * (until(times, slope) * edges - until(times, slope * (times - start)))
        return np.maximum.accumulate(total)


def completions(requests: Requests, which: Bools) -> Work:
    """A unit a completed request, at its last token."""
    last = requests.last[which]
    return Work(last, last, np.ones(len(last)), np.zeros(len(last)))


def tokens(requests: Requests, which: Bools, prompt: bool) -> Work:
    """A unit an output token, the first at first_token_s and the others evenly to last_token_s.

    With `prompt` the prompt's tokens count too, at first_token_s.
    """
    output = requests.output_tokens[which].astype(np.float64)
    first: npt.NDArray[np.float64] = np.minimum(output, 1.0)
    jump = first + requests.prompt_tokens[which] if prompt else first
    return Work(requests.first[which], requests.last[which], jump, output - first)
