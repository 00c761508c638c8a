"""What a step of one phase costs, learned from the steps that ran.

A line through all of them, fitted to the relative error, tells what has not been seen; cells of like steps correct it
where something has.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log2

from policies.online.least_squares import non_negative

# What a step is: prefill tokens P, prefill work W = Σ n(context + n/2) (token²), decodes D, Σ of their contexts S.
Content = tuple[float, float, float, float]

LEAST_WEIGHT = 1 / 32  # of a new step in its cell's mean
FIT_MEMORY, CELL_MEMORY = 20_000, 5_000  # steps in which a cell's weight halves, in the fit and beside it
FORGOTTEN = 100_000  # steps after which a cell is dropped
LIGHT = 0.02  # a weight of no account
PRIOR = 2.0  # weight of the fit against the cells
LOW, HIGH, IN_A_ROW = 0.4, 2.5, 5  # steps outside of these shares are dropped, until so many come in a row


class _Cell:
    """Steps alike: the means of their content and seconds, how many they were, and when the last of them was."""

    __slots__ = ("content", "count", "last", "products", "seconds")

    def __init__(self, content: Content) -> None:
        self.content = content
        self.seconds = 0.0
        self.count = 0
        self.last = 0
        self.products: list[float] = []


class LearnedCosts:
    """The costs of a phase whose steps differ in the parts of their content that `used` names (0 … 3 of Content)."""

    __slots__ = ("_cells", "_fit", "_near", "_pairs", "_strange", "_used", "samples")

    def __init__(self, used: Sequence[int]) -> None:
        self.samples = 0  # taken in
        self._used = tuple(used)
        self._cells: dict[tuple[int, int, int], _Cell] = {}
        self._fit: list[float] = []
        # Of each cell: log2 of P, D and S, its weight, and that times its ratio to the fit.
        self._near: list[tuple[float, float, float, float, float]] = []
        self._strange = 0  # in a row
        n = len(self._used) + 1
        self._pairs = [(i, j) for i in range(n) for j in range(i + 1)]

    @property
    def intercept(self) -> float:
        """Seconds that a step costs whatever is in it, by the fit."""
        return self._fit[0] if self._fit else 0.0

    def add(self, content: Content, steps: int, seconds: float, now: int) -> None:
        """`steps` steps of this content took `seconds` each; `now` counts the steps of all phases."""
        p, _, d, s = content
        key = (_half_octave(p), _half_octave(d), _half_octave(s))
        cell = self._cells.get(key)
        expected = cell.seconds if cell is not None and cell.count >= 4 else self._line(content)
        if expected > 0 and not LOW * expected <= seconds <= HIGH * expected:
            self._strange += 1
            if self._strange < IN_A_ROW:
                return
        else:
            self._strange = 0
        self.samples += 1
        if cell is None:
            cell = self._cells[key] = _Cell(content)
        cell.count += steps
        weight = max(steps / cell.count, 1 - (1 - LEAST_WEIGHT) ** steps)
        cell.seconds += weight * (seconds - cell.seconds)
        was = cell.content
        cell.content = (
            was[0] + weight * (p - was[0]),
            was[1] + weight * (content[1] - was[1]),
            was[2] + weight * (d - was[2]),
            was[3] + weight * (s - was[3]),
        )
        cell.last = now
        cell.products = []

    def refit(self, now: int) -> None:
        """Fits the line again and weighs the cells, as of step `now`."""
        for key in [key for key, cell in self._cells.items() if now - cell.last > FORGOTTEN]:
            del self._cells[key]
        cells, pairs, n = self._cells.values(), self._pairs, len(self._used) + 1
        if not cells:
            self._fit, self._near = [], []
            return
        sums = [0.0] * len(pairs)
        right = [0.0] * n
        for cell in cells:
            if not cell.products:
                features = [1.0, *(cell.content[i] for i in self._used)]
                features = [feature / cell.seconds for feature in features]
                cell.products = [features[i] * features[j] for i, j in pairs] + features
            weight = cell.count * 2.0 ** ((cell.last - now) / FIT_MEMORY)
            products = cell.products
            sums = [total + weight * product for total, product in zip(sums, products, strict=False)]
            right = [total + weight * product for total, product in zip(right, products[-n:], strict=True)]
        gram = [[0.0] * n for _ in range(n)]
        for (i, j), total in zip(pairs, sums, strict=True):
            gram[i][j] = gram[j][i] = total
        self._fit = non_negative(gram, right)
        self._near = []
        for cell in cells:
            weight = cell.count * 2.0 ** ((cell.last - now) / CELL_MEMORY)
            line = self._line(cell.content)
            if weight > LIGHT and line > 0:
                p, _, d, s = cell.content
                self._near.append((_log(p), _log(d), _log(s), weight, weight * cell.seconds / line))

    def _line(self, content: Content) -> float:
        fit = self._fit
        if not fit:
            return 0.0
        total = fit[0]
        for coefficient, i in zip(fit[1:], self._used, strict=True):
            total += coefficient * content[i]
        return total

    def seconds(self, content: Content) -> float:
        """What a step of this content is expected to take."""
        p, d, s = _log(content[0]), _log(content[2]), _log(content[3])
        weights = ratios = PRIOR
        for cell_p, cell_d, cell_s, weight, weighted in self._near:
            distance = (p - cell_p) ** 2 + (d - cell_d) ** 2 + (s - cell_s) ** 2 / 2
            if distance < 4:
                near = exp(-2 * distance)
                weights += weight * near
                ratios += weighted * near
        return self._line(content) * ratios / weights


def _half_octave(value: float) -> int:
    return int(2 * log2(value + 1))


def _log(value: float) -> float:
    return log2(value + 1)
