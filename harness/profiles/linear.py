"""Model 1: a step costs a fixed part and a part a token or request (arXiv 2606.00516)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from policies.core import StepCosts


@dataclass(frozen=True, slots=True)
class Linear:
    """Step costs from a fit: α_p + β_p·tokens, α_d + β_d·requests, and α_MB + β_MB(r)·tokens where both run.

    r is decodes over all tokens of the step and β_MB(r) = a + b·r + c·r². Seconds, seconds a token,
    seconds a request. `source` is `published` or `calibrated`. A step without any work costs α_d.
    """

    name: ClassVar[str] = "linear"

    alpha_p_s: float
    beta_p_s: float
    alpha_d_s: float
    beta_d_s: float
    alpha_mb_s: float
    mixed_a_s: float
    mixed_b_s: float
    mixed_c_s: float
    source: str

    @classmethod
    def of(cls, costs: StepCosts, source: str) -> Linear:
        """The model with the constants that the policies also know."""
        return cls(**dataclasses.asdict(costs), source=source)

    def seconds(
        self,
        prefill_tokens: int,
        prefill_work: float,  # this model reads counts only
        decodes: int,
        decode_context: int,
        longest: int,
    ) -> float:
        """The cost of one step, s."""
        if not prefill_tokens:
            return self.alpha_d_s + self.beta_d_s * decodes
        if not decodes:
            return self.alpha_p_s + self.beta_p_s * prefill_tokens
        tokens = prefill_tokens + decodes
        r = decodes / tokens
        return self.alpha_mb_s + (self.mixed_a_s + r * (self.mixed_b_s + r * self.mixed_c_s)) * tokens

    def decode_seconds(
        self,
        decodes: int,
        decode_context: int,
        longest: int,
        steps: int,
    ) -> npt.NDArray[np.float64]:
        """The costs of `steps` decode-only steps in a row, s, shape (steps,): contexts do not enter."""
        return np.full(steps, self.alpha_d_s + self.beta_d_s * decodes)

    def parameters(self) -> dict[str, float]:
        """The eight constants of the fit, s, s/token and s/request."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "source"}


def lowest_beta_mb(a_s: float, b_s: float, c_s: float) -> float:
    """The least of β_MB(r) = a + b·r + c·r² over r in [0, 1], s/token: a parabola is lowest at an end or its vertex."""
    vertex = min(1.0, max(0.0, -b_s / (2 * c_s))) if c_s else 0.0
    return min(a_s + r * (b_s + r * c_s) for r in (0.0, 1.0, vertex))
