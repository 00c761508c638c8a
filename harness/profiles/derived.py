"""Policy constants of a pair that nobody measured: model 1 fitted to another model by least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from harness.core.errors import UserError
from harness.profiles.cost import CostModel
from policies.core import StepCosts

# The grids of the published calibrations.
PREFILL_TOKENS = (256, 512, 1024, 2048, 4096)
DECODE_REQUESTS = (16, 32, 64, 128, 256, 384, 512, 768, 1024)
DECODE_RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

Floats = npt.NDArray[np.float64]


class HostBound(CostModel, Protocol):
    """A cost model that knows the host's time, which no step is shorter than."""

    @property
    def host_s(self) -> float:
        """The host's time of a step, s."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line alpha_s + beta_s·x fitted with alpha_s ≥ a floor; `free_alpha_s` is the intercept without it."""

    alpha_s: float
    beta_s: float
    free_alpha_s: float


def prefill_line(cost: HostBound) -> Line:
    """α_p (s) and β_p (s/token) over steps of one prompt each, no context before it.

    The floor is the host's time: no step is shorter. It matters where attention over one long prompt, which
    grows with its square, bends the line so far that its intercept would be near or below zero (A100).
    """
    seconds = [cost.seconds(n, n * n / 2, 0, 0, 0) for n in PREFILL_TOKENS]
    return _line(PREFILL_TOKENS, seconds, cost.host_s)


def step_costs(cost: HostBound, mu_l: float, mu_o: float, token_budget: int, label: str) -> StepCosts:
    """The constants of model 1 that the policies need, from the pair's cost model at a workload and a token budget.

    `mu_l`, `mu_o` mean prompt and output, tokens; a decode has the context μ_L + μ_O/2; a mixed step fills
    the budget with r·B decodes and prompts of μ_L; α_MB = α_p. `label` names the pair in errors. Raises
    UserError where the means or the budget are too small to fit, or a slope or α_d is not positive.
    """
    if not (mu_l > 0 and mu_o > 0):
        raise UserError(f"{label}: policy constants need a mean prompt and output above 0, got {mu_l:g}, {mu_o:g}")
    if token_budget < 2 * len(DECODE_RATIOS) + 2:
        raise UserError(f"{label}: a token budget of {token_budget} is too small to fit mixed steps: use 20 or more")
    context = mu_l + mu_o / 2
    prefill = prefill_line(cost)
    decode = _line(
        DECODE_REQUESTS,
        [cost.seconds(0, 0.0, n, round(n * context), 0) for n in DECODE_REQUESTS],
        cost.host_s,
    )
    a, b, c = _mixed(cost, mu_l, context, token_budget, prefill.alpha_s)
    for name, value in (("β_p", prefill.beta_s), ("α_d", decode.alpha_s), ("β_d", decode.beta_s)):
        if value <= 0:
            raise UserError(f"{label}: the derived {name} is {value:g}, not positive: calibrate this pair")
    return StepCosts(
        alpha_p_s=prefill.alpha_s,
        beta_p_s=prefill.beta_s,
        alpha_d_s=decode.alpha_s,
        beta_d_s=decode.beta_s,
        alpha_mb_s=prefill.alpha_s,
        mixed_a_s=a,
        mixed_b_s=b,
        mixed_c_s=c,
    )


def _line(x: tuple[int, ...], seconds: list[float], floor_s: float) -> Line:
    """Least squares with one bound: where the free intercept is too low, the best line through the floor."""
    n = np.array(x, dtype=np.float64)
    t = np.array(seconds)
    free, slope = _solve(np.column_stack((np.ones_like(n), n)), t)
    if free >= floor_s:
        return Line(free, slope, free)
    (held,) = _solve(n[:, None], t - floor_s)
    return Line(floor_s, held, free)


def _mixed(
    cost: HostBound, mu_l: float, context: float, token_budget: int, alpha_mb_s: float
) -> tuple[float, float, float]:
    """a, b, c (s/token) of β_MB(r) = a + b·r + c·r² over steps that fill the budget."""
    ratios, per_token = [], []
    for target in DECODE_RATIOS:
        decodes = round(target * token_budget)
        prefill = token_budget - decodes
        work = prefill * min(mu_l, prefill) / 2
        seconds = cost.seconds(prefill, work, decodes, round(decodes * context), 0)
        ratios.append(decodes / token_budget)
        per_token.append((seconds - alpha_mb_s) / token_budget)
    r = np.array(ratios)
    a, b, c = _solve(np.column_stack((np.ones_like(r), r, r * r)), np.array(per_token))
    return a, b, c


def _solve(matrix: Floats, values: Floats) -> list[float]:
    """The least-squares coefficients as Python floats, shape (columns,).

    To a femtosecond: the last bits differ from one BLAS to the next, and a run must not.
    """
    # Adding 0.0 turns -0.0 into 0.0.
    return [round(float(value), 15) + 0.0 for value in np.linalg.lstsq(matrix, values, rcond=None)[0]]
