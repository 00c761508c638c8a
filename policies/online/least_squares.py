"""Least squares with no negative coefficient, for systems of a few unknowns."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

Matrix = Sequence[Sequence[float]]

RIDGE = 1e-4


def solve(matrix: Matrix, right: Sequence[float]) -> list[float]:
    """x of matrix·x = right, the matrix symmetric and positive definite (Cholesky)."""
    n = len(right)
    lower: list[list[float]] = []
    for i in range(n):
        row: list[float] = []
        for j in range(i + 1):
            rest = matrix[i][j] - sum(row[k] * (lower[j][k] if j < i else row[k]) for k in range(j))
            row.append(sqrt(max(rest, 1e-300)) if j == i else rest / lower[j][j])
        lower.append(row)
    x: list[float] = []
    for i in range(n):
        x.append((right[i] - sum(lower[i][k] * x[k] for k in range(i))) / lower[i][i])
    for i in reversed(range(n)):
        x[i] = (x[i] - sum(lower[k][i] * x[k] for k in range(i + 1, n))) / lower[i][i]
    return x


def non_negative(gram: Matrix, right: Sequence[float]) -> list[float]:
    """x ≥ 0 that makes x'·gram·x − 2·right'·x least, `RIDGE` added once each unknown has the scale 1.

    Lawson and Hanson's active set. An unknown with nothing on its diagonal is 0.
    """
    n = len(right)
    scale = [sqrt(gram[i][i]) for i in range(n)]
    used = [i for i in range(n) if scale[i] > 0]
    a = {i: {j: gram[i][j] / (scale[i] * scale[j]) + (RIDGE if i == j else 0.0) for j in used} for i in used}
    b = {i: right[i] / scale[i] for i in used}
    x = dict.fromkeys(used, 0.0)
    free: list[int] = []
    for _ in range(3 * n):
        slopes = {i: b[i] - sum(a[i][j] * x[j] for j in free) for i in used if i not in free}
        steepest = max(slopes, key=slopes.__getitem__, default=None)
        if steepest is None or slopes[steepest] <= 1e-12:
            break
        free.append(steepest)
        while True:
            best = dict(zip(free, solve([[a[i][j] for j in free] for i in free], [b[i] for i in free]), strict=True))
            if min(best.values()) > 0:
                x.update(best)
                break
            # As far towards it as nothing falls below 0; what then lies at 0 is bound again.
            share = min(x[i] / (x[i] - best[i]) for i in free if best[i] <= 0)
            for i in free:
                x[i] += share * (best[i] - x[i])
            bound = [i for i in free if x[i] <= 1e-12]
            for i in bound:
                x[i] = 0.0
                free.remove(i)
            if not free:
                break
    return [x[i] / scale[i] if i in x else 0.0 for i in range(n)]
