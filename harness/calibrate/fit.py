"""Fitting step times: least squares on relative errors that outliers cannot pull, and the three fits of model 1."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from harness.core.errors import UserError
from harness.profiles.linear import lowest_beta_mb

Floats = npt.NDArray[np.float64]

# Fewer steps of a kind tell nothing; below the second figure the report says that they are few.
LEAST_STEPS = 10
FEW_STEPS = 100
# A slope wants loads that differ by this much.
LEAST_RATIO = 2.0
# Off the median of steps of about the same load by more than this many robust standard deviations: an outlier.
# A spread below 1 % counts as 1 %, so that nothing within 4 % is one.
OUTLIER = 4.0
LEAST_SPREAD = 0.01
# How many steps of about the same load an outlier is told by.
_NEIGHBOURS = 51
# Steps whose cost differs by less than this are one load; each load counts by the root of its steps.
_LOAD = 1.1
# Columns (scaled to equal length) closer to dependent than this tell no constants apart.
WORST_CONDITION = 1e3
MIXED_CONSTANTS = ("α_MB", "a", "b", "c")
_BLOCKS = 30  # steps in a row resemble each other: intervals count them by blocks
_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Fitted:
    """Coefficients of seconds = matrix · coefficients with what is known of them.

    `half_widths` of the 95 % intervals; `r2` over the steps kept; `spread` the robust standard deviation of the
    steps about others of their load, as a share; `trimmed` how many of `steps` were left out as outliers;
    `explained` predicted over measured seconds of all steps, outliers included; `bend` predicted over measured
    seconds of the load where that is farthest from 1, and `bend_s` the measured seconds there.
    """

    coefficients: tuple[float, ...]
    half_widths: tuple[float, ...]
    r2: float
    spread: float
    steps: int
    trimmed: int
    explained: float
    bend: float
    bend_s: float


def fit(matrix: Floats, seconds: Floats) -> Fitted:
    """Robust least squares of `seconds`, shape (steps,), on `matrix`, shape (steps, coefficients).

    Errors count relative to the step's time: a long step's noise is longer. Outliers are told among steps of
    about the same load, since a cost that bends is no noise. A load counts by the root of its number of steps, so that
    a thousand short prompts do not outvote the long ones. Steps must take above 0 s.
    """
    coefficients = _least_absolute(matrix / seconds[:, None])
    kept, spread = _without_outliers(matrix @ coefficients, seconds)
    rows = target = np.empty(0)
    for _ in range(3):
        predicted = _above_zero(matrix @ coefficients, seconds)
        loads = np.floor(np.log(predicted / predicted.min()) / math.log(_LOAD)).astype(np.int64)
        weights = np.bincount(loads[kept], minlength=loads.max() + 1)[loads[kept]] ** -0.25
        scale = predicted[kept] / weights
        rows, target = matrix[kept] / scale[:, None], seconds[kept] / scale
        coefficients = _solve(rows, target)
    predicted = matrix @ coefficients
    error = seconds[kept] - predicted[kept]
    total = float(np.sum((seconds[kept] - seconds[kept].mean()) ** 2))
    bend, bend_s = _bend(predicted[kept], seconds[kept], loads[kept])
    return Fitted(
        coefficients=tuple(map(float, coefficients)),
        half_widths=_half_widths(rows, target - rows @ coefficients),
        r2=1 - float(np.sum(error**2)) / total if total > 0 else 1.0,
        spread=spread,
        steps=len(seconds),
        trimmed=int(len(seconds) - kept.sum()),
        explained=float(predicted.sum() / seconds.sum()),
        bend=bend,
        bend_s=bend_s,
    )


def _least_absolute(rows: Floats) -> Floats:
    """Coefficients of the least absolute relative errors: no outlier pulls them."""
    target = np.ones(len(rows))
    coefficients = _solve(rows, target)
    for _ in range(_ROUNDS):
        # Weights of 1/|residual| make squares absolute values.
        weights = 1 / np.sqrt(np.maximum(np.abs(target - rows @ coefficients), 1e-12))
        before, coefficients = coefficients, _solve(rows * weights[:, None], target * weights)
        if np.allclose(rows @ before, rows @ coefficients, rtol=0, atol=1e-7):
            break
    return coefficients


def _without_outliers(predicted: Floats, seconds: Floats) -> tuple[npt.NDArray[np.bool_], float]:
    """Which steps are near their neighbours in load, and the robust relative standard deviation about them."""
    from scipy.ndimage import median_filter

    order = np.argsort(predicted, kind="stable")
    ratio = (seconds / _above_zero(predicted, seconds))[order]
    size = min(_NEIGHBOURS, len(ratio))
    middle = median_filter(ratio, size, mode="mirror")
    off = np.abs(ratio / middle - 1)
    spread = 1.4826 * median_filter(off, size, mode="mirror")
    kept = np.empty(len(ratio), dtype=bool)
    kept[order] = off <= OUTLIER * np.maximum(spread, LEAST_SPREAD)
    return kept, 1.4826 * float(np.median(off))


def _bend(predicted: Floats, seconds: Floats, loads: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Predicted over measured where it is farthest from 1, and the seconds there, over loads of enough steps."""
    counts = np.bincount(loads)
    enough = counts >= LEAST_STEPS
    if not enough.any():
        return 1.0, float(seconds.mean())
    sums, measured = np.bincount(loads, predicted)[enough], np.bincount(loads, seconds)[enough]
    ratio = sums / measured
    worst = int(np.argmax(np.abs(ratio - 1)))
    return float(ratio[worst]), float(measured[worst] / counts[enough][worst])


def _above_zero(predicted: Floats, seconds: Floats) -> Floats:
    """Predictions that can be divided by: a line may dip below zero where it has no steps to hold it."""
    return np.maximum(predicted, np.median(seconds) * 1e-3)


def fit_line(load: Floats, seconds: Floats, what: str, remedy: str) -> Fitted:
    """α ≥ 0 and β > 0 of seconds = α + β·load; `what` and `remedy` name the slope and the runs that would tell it.

    Raises UserError where the loads do not differ or the slope is not positive.
    """
    if load.min() == load.max():
        raise UserError(f"{what}: every step has the same load of {load.min():g}, so no slope can be told: {remedy}")
    fitted = fit(np.column_stack((np.ones_like(load), load)), seconds)
    alpha, beta = fitted.coefficients
    if alpha < 0 < beta:
        held = fit(load[:, None], seconds)
        fitted = replace(held, coefficients=(0.0, *held.coefficients), half_widths=(0.0, *held.half_widths))
        beta = held.coefficients[0]
    if beta <= 0:
        raise UserError(
            f"{what} comes out as {beta:.3g}, not positive, over loads of {load.min():g} to {load.max():g}: {remedy}"
        )
    return fitted


@dataclass(frozen=True, slots=True)
class MixedFit:
    """α_MB, a, b, c of α_MB + (a + b·r + c·r²)·tokens; `free` names those that were fitted, `held` says the rest."""

    alpha_s: float
    a_s: float
    b_s: float
    c_s: float
    free: tuple[str, ...]
    held: str
    fitted: Fitted


def fit_mixed(prefill_tokens: Floats, decodes: Floats, seconds: Floats, alpha_p_s: float) -> MixedFit | None:
    """The richest form of a mixed step's cost that these steps tell apart; None where they tell none.

    In order: α_MB, a, b, c; c held at 0; α_MB held at α_p; both. A form must not be ill-conditioned, must give
    α_MB ≥ 0 and a cost a token above 0 for every r in [0, 1].
    """
    tokens = prefill_tokens + decodes
    terms = np.column_stack((np.ones_like(tokens), tokens, decodes, decodes**2 / tokens))
    forms = (
        ((0, 1, 2, 3), ""),
        ((0, 1, 2), "c held at 0"),
        ((1, 2, 3), "α_MB held at α_p"),
        ((1, 2), "α_MB held at α_p, c at 0"),
    )
    for columns, held in forms:
        matrix = terms[:, columns]
        if len(seconds) < LEAST_STEPS * len(columns) or _condition(matrix / seconds[:, None]) > WORST_CONDITION:
            continue
        fixed = 0.0 if 0 in columns else alpha_p_s
        rest = seconds - fixed
        if rest.min() <= 0:
            # Faster than α_p alone: take the steps for what they are.
            rest = np.maximum(rest, seconds * 1e-3)
        fitted = fit(matrix, rest)
        free = tuple(MIXED_CONSTANTS[i] for i in columns)
        coefficient = dict(zip(columns, fitted.coefficients, strict=True))
        alpha, a, b, c = coefficient.get(0, fixed), coefficient[1], coefficient[2], coefficient.get(3, 0.0)
        if alpha >= 0 and lowest_beta_mb(a, b, c) > 0:
            return MixedFit(alpha, a, b, c, free, held, fitted)
    return None


def _solve(rows: Floats, target: Floats) -> Floats:
    # Columns scaled to equal length: constants differ by six orders of magnitude.
    length = np.linalg.norm(rows, axis=0)
    length[length == 0] = 1.0
    return np.asarray(np.linalg.lstsq(rows / length, target, rcond=None)[0] / length)


def _condition(rows: Floats) -> float:
    """The condition number, its columns scaled to equal length; infinite where one is all zeros."""
    length = np.linalg.norm(rows, axis=0)
    return float(np.linalg.cond(rows / length)) if length.all() else float("inf")


def _half_widths(rows: Floats, residual: Floats) -> tuple[float, ...]:
    """Of 95 % intervals: the sandwich estimate over blocks of steps in a row, Student's t over the blocks."""
    from scipy.special import stdtrit

    blocks = min(_BLOCKS, len(rows) // 2)
    if blocks <= rows.shape[1]:
        return tuple(math.inf for _ in range(rows.shape[1]))
    bread = np.linalg.pinv(rows.T @ rows)
    scores = [part.sum(axis=0) for part in np.array_split(rows * residual[:, None], blocks)]
    meat = np.array(scores).T @ np.array(scores) * blocks / (blocks - 1)
    variance = np.diag(bread @ meat @ bread)
    students = float(stdtrit(blocks - 1, 0.975))
    return tuple(students * math.sqrt(max(float(x), 0.0)) for x in variance)
