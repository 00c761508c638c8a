"""Kernel times over one axis or two, interpolated in the logarithm of axes and value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# A prefill table goes on to so many times its longest prompt.
FAR = 64.0
# Seconds are rounded to a picosecond: the last bits of a logarithm differ from one machine to the next.
DECIMALS = 12


@dataclass(frozen=True, slots=True)
class Curve:
    """Times of one kernel: `seconds` at the ascending sizes `x`, both of shape (points,)."""

    x: Floats
    seconds: Floats

    def at(self, points: npt.ArrayLike) -> Floats:
        """The times at other sizes, s: straight between two points of the log-log plane.

        Below the first point a kernel takes as long as there; beyond the last its time grows with the size.
        """
        size = np.asarray(points, dtype=np.float64)
        inside = np.exp2(np.interp(np.log2(size), np.log2(self.x), np.log2(self.seconds)))
        return np.where(size > self.x[-1], self.seconds[-1] * (size / self.x[-1]), inside)


@dataclass(frozen=True, slots=True)
class Surface:
    """Times of one attention kernel over batch and length: `seconds` of shape (batches, lengths), whole.

    `measured` says of each entry whether it was measured; the others follow from their neighbours by the rule
    of whoever filled them. `most_tokens` is the largest measured product of batch and length.
    """

    batch: Floats
    length: Floats
    seconds: Floats
    measured: npt.NDArray[np.bool_]

    @property
    def most_tokens(self) -> float:
        """The most tokens in one measured call."""
        return float(np.max(np.outer(self.batch, self.length)[self.measured]))

    def times(self, layers: int) -> Surface:
        """The same over so many layers."""
        return Surface(self.batch, self.length, layers * self.seconds, self.measured)

    def of_batch(self, batch: float) -> Floats:
        """The times at the table's lengths of a batch of any size, s, shape (lengths,); in proportion beyond it."""
        if batch >= self.batch[-1]:
            return np.asarray(self.seconds[-1] * (batch / self.batch[-1]))
        at = max(int(np.searchsorted(self.batch, batch, side="right")) - 1, 0)
        low, high = np.log2(self.batch[at : at + 2])
        part = max((np.log2(batch) - low) / (high - low), 0.0)
        below, above = np.log2(self.seconds[at : at + 2])
        return np.asarray(np.exp2(below + (above - below) * part))

    def refined(self, batch: Floats, length: Floats) -> Floats:
        """The times on another grid, s, shape (batches, lengths): bilinear in log2 of both axes and of the value."""
        return np.array([Curve(self.length, self.of_batch(float(one))).at(length) for one in batch])


def filled_decode(batch: Floats, length: Floats, seconds: Floats) -> Surface:
    """A decode table whose holes (nan) are filled: from its last measured context on, a batch pays for reading.

    Each further token of context costs what it costs where most is read: the median of the last slopes, s a
    token, over the batches that were measured up to the largest product of batch and context. A table needs
    two contexts of every batch.
    """
    measured = np.isfinite(seconds)
    tokens = np.outer(batch, length)
    last = [int(np.flatnonzero(row)[-1]) for row in measured]
    top = tokens[measured].max()
    slopes = [
        (seconds[i, j] - seconds[i, j - 1]) / (tokens[i, j] - tokens[i, j - 1])
        for i, j in enumerate(last)
        if tokens[i, j] > top / 2
    ]
    rate = float(np.median(slopes))
    whole = seconds.copy()
    for i, j in enumerate(last):
        beyond = seconds[i, j] + rate * (tokens[i] - tokens[i, j])
        whole[i, j + 1 :] = beyond[j + 1 :]
    return Surface(batch, length, whole, measured)


def filled_prefill(batch: Floats, length: Floats, seconds: Floats) -> Surface:
    """A prefill table whose holes (nan) are filled: twice the prompts of a length take twice as long.

    One length is added far beyond the longest: there the time grows with the square.
    """
    measured = np.isfinite(seconds)
    whole = seconds.copy()
    for i in range(1, len(batch)):
        hole = ~measured[i]
        whole[i, hole] = whole[i - 1, hole] * (batch[i] / batch[i - 1])
    beyond = whole[:, -1:] * FAR**2
    unmeasured = np.zeros((len(batch), 1), dtype=np.bool_)
    return Surface(
        batch, np.append(length, FAR * length[-1]), np.hstack((whole, beyond)), np.hstack((measured, unmeasured))
    )
