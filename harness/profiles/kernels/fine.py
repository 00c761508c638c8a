"""Tables on points so fine that straight lines between them will do: no logarithm is taken while an engine runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np

from harness.profiles.kernels.curves import DECIMALS, Floats, Surface

# Points in each doubling, evenly apart: of what grows with a power of its size a straight line misses 0.1 % at most.
POINTS = 16
# Doublings that an axis goes on beyond its table: there times grow in proportion.
BEYOND = 4


@dataclass(frozen=True, slots=True)
class Axis:
    """Points at 2**n·(1 + i/16); `first` is the place of the first one, counted from 1."""

    first: int
    points: Floats

    @classmethod
    def over(cls, sizes: Floats) -> Axis:
        """The points that cover the sizes of a table, and some doublings more."""
        ends = [place(float(sizes[0])), place(float(sizes[-1])) + BEYOND * POINTS]
        first = int(np.floor(ends[0]))
        octave, part = np.divmod(np.arange(first, int(np.ceil(ends[1])) + 1), POINTS)
        return cls(first, np.exp2(octave) * (1 + part / POINTS))


def place(size: float) -> float:
    """Where a size lies among the points of all axes: 0 for 1, 16 for 2; the same for equal sizes on every machine."""
    mantissa, exponent = frexp(size)
    return (exponent - 2 + 2.0 * mantissa) * POINTS


@dataclass(frozen=True, slots=True)
class Fine:
    """A surface on fine points: `rows` has a list for each point of the batch axis, an entry a length, s."""

    batch_first: int
    length_first: int
    rows: list[list[float]]

    @classmethod
    def of(cls, surface: Surface) -> Fine:
        """The refined surface."""
        batch, length = Axis.over(surface.batch), Axis.over(surface.length)
        seconds = np.round(surface.refined(batch.points, length.points), DECIMALS)
        return cls(batch.first, length.first, seconds.tolist())

    def at(self, batch: float, length: float) -> float:
        """The time of a call, s: straight along both axes between the four points around it."""
        rows = self.rows
        mantissa, exponent = frexp(batch)
        along = (exponent - 2 + 2.0 * mantissa) * POINTS - self.batch_first
        i = min(max(int(along), 0), len(rows) - 2)
        along -= i
        below, above = rows[i], rows[i + 1]
        mantissa, exponent = frexp(length)
        across = (exponent - 2 + 2.0 * mantissa) * POINTS - self.length_first
        j = min(max(int(across), 0), len(below) - 2)
        across -= j
        low = below[j] + (below[j + 1] - below[j]) * across
        high = above[j] + (above[j + 1] - above[j]) * across
        return low + (high - low) * along
