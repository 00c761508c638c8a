"""The online controller on estimates given by hand: where the correction is capped and where it is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from policies.core import StepCosts
from policies.online.controller import CORRECTION_CAP, ControlOptions, OnlineController
from policies.online.hazard import HazardLine
from policies.online.threshold import delta_theta, theta0

COSTS = StepCosts(
    alpha_p_s=0.0123,
    beta_p_s=4.1e-5,
    alpha_d_s=0.0121,
    beta_d_s=1.1e-5,
    alpha_mb_s=0.0136,
    mixed_a_s=4.4e-5,
    mixed_b_s=-1e-5,
    mixed_c_s=2e-5,
)
SLOTS = 1024
VIEW: Any = SimpleNamespace(slots=SLOTS, total_blocks=10**6, block_size=16, num_output_tokens=list)


def target_with(p0: float, eta: float) -> Any:
    """The target of a controller whose estimator says p̄ = 0.01, p0 and η."""
    controller = OnlineController(ControlOptions(theta_max=0.99), COSTS)
    controller.estimator = SimpleNamespace(  # type: ignore[assignment]
        completions=1000, p_bar=0.01, mu_l=100.0, line=lambda _: HazardLine(p0, eta)
    )
    return controller.target(VIEW)


@pytest.mark.parametrize("factor", [0.25, 1.0])
def test_a_correction_within_its_range_is_taken_as_it_is(factor: float) -> None:
    p0 = 0.02
    eta = factor * p0 * p0
    theta = theta0(0.01, COSTS.alpha_p_s, COSTS.alpha_d_s)
    correction = delta_theta(eta, p0, theta, SLOTS, COSTS.alpha_d_s, COSTS.beta_d_s)
    target = target_with(p0, eta)
    assert target.theta == pytest.approx(theta + correction)
    assert target.capped is False


def test_a_correction_beyond_its_range_is_capped() -> None:
    p0 = 0.02
    theta = theta0(0.01, COSTS.alpha_p_s, COSTS.alpha_d_s)
    assert delta_theta(400 * p0 * p0, p0, theta, SLOTS, COSTS.alpha_d_s, COSTS.beta_d_s) > CORRECTION_CAP
    target = target_with(p0, 400 * p0 * p0)
    assert target.theta == pytest.approx(theta + CORRECTION_CAP)
    assert target.capped is True
