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
        total = self._finished(start, end)
        wanted = total[-1] * np.arange(1, shares) / shares
        reached = np.interp(wanted, total, np.linspace(0.0, seconds, len(total)))
        took = np.diff(np.concatenate(([0.0], reached, [seconds])))
        share = ratio_of_sums(np.arange(shares, dtype=np.int64), np.ones(shares), took)
        return Estimate(value, share.units, share.influence)

    def _finished(self, start: int, end: int) -> Floats:
        """The work of requests that end by each of EDGES + 1 equidistant times from `start` to `end`.

        Counted whole at its end: spread over a request's stay it would look steadier than it is.
        """
        within = (self.end > start) & (self.end <= end)
        edge = np.ceil((self.end[within] - start) * (EDGES / (end - start))).astype(np.int64)
        work = (self.jump + self.spread)[within]
        return np.cumsum(np.bincount(np.minimum(edge, EDGES), work, minlength=EDGES + 1), dtype=np.float64)


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
