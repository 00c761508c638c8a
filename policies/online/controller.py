"""From what has been seen to what to do: θ*, N*, k* and the KV reserve, made anew every so many completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from policies.core import StepCosts, View
from policies.online.hazard import ExposureEstimator
from policies.online.threshold import delta_theta, growth_reserve, n_star_limited, theta0

# η/p0² beyond 1 is out of range of a first-order term: Δθ is then held at this.
CORRECTION_CAP = 0.1

# Until lengths have been seen, the gate leaves this share of the KV cache free for growth: the paper's open
# code admits up to 0.6 of it (VLLM_PD_KV_THRESHOLD_MAX).
UNSEEN_GROWTH_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """When to look and within which limits.

    `theta_init` serves until `min_completions` requests have completed (0.7 is what the paper's open code
    uses there). `correction` is `first_order` or `none`. `gate` is `paper` (N* and the growth reserve, which take
    lengths to have no memory) or `forecast` (all N slots, k = θ·N*, and the gate of policies/online/forecast.py).
    """

    theta_min: float = 0.01
    theta_max: float = 0.8
    theta_init: float = 0.7
    epsilon: float = 0.01
    update_every: int = 100
    window: int = 500
    min_completions: int = 30
    correction: str = "first_order"
    gate: str = "paper"

    @property
    def forecasts(self) -> bool:
        """KV is kept by the forecast, not by N* and a reserve."""
        return self.gate == "forecast"


@dataclass(frozen=True, slots=True)
class Target:
    """What exclusive batching aims at until the next update.

    `k` free slots of `slots` trigger a prefill phase; the gate keeps `growth_tokens` a running request
    and `floor_blocks` KV blocks besides. Where a forecast keeps the cache, k is a share of `n_star`.
    The rest is what the figures came from, None where not estimated.
    """

    k: int
    slots: int
    theta: float
    growth_tokens: float
    floor_blocks: int = 0
    p_bar: float | None = None
    eta: float | None = None
    mu_l: float | None = None
    capped: bool | None = None
    n_star: int | None = None


class Controller(Protocol):
    """Gives the target, estimating anew when enough more requests have completed."""

    estimator: ExposureEstimator

    def target(self, view: View) -> Target:
        """The target in force; the same object until an update."""


def _unseen(k: int, theta: float, view: View) -> Target:
    """The target before any length has been seen."""
    # At θ = 1/N (v0) requests of every age run together and the KV in use does not grow on the whole.
    floor = int(UNSEEN_GROWTH_SHARE * view.total_blocks) if k > 1 else 0
    return Target(k, view.slots, theta, 0.0, floor)


class FixedController:
    """A threshold k given by the user, on all N slots; only the KV reserve follows the traffic."""

    __slots__ = ("_due", "_k", "_options", "_target", "estimator")

    def __init__(self, k: int, options: ControlOptions) -> None:
        self.estimator = ExposureEstimator(options.window)
        self._k = k
        self._options = options
        self._due = options.min_completions
        self._target: Target | None = None

    def target(self, view: View) -> Target:
        """k of N; the same object until an update of the KV reserve."""
        theta = self._k / view.slots
        if self.estimator.completions >= self._due:
            self._due = self.estimator.completions + self._options.update_every
            p_bar, mu_l = self.estimator.p_bar, self.estimator.mu_l
            growth = 0.0 if self._options.forecasts else growth_reserve(theta, p_bar, mu_l)
            self._target = Target(self._k, view.slots, theta, growth, p_bar=p_bar, mu_l=mu_l)
        elif self._target is None:
            self._target = _unseen(self._k, theta, view)
        return self._target


class OnlineController:
    """θ* = clip(θ0 + Δθ), N* and k* = max(1, floor(θ*·N*)) from the traffic (forms 2 to 5)."""

    __slots__ = ("_costs", "_due", "_options", "_target", "estimator")

    def __init__(self, options: ControlOptions, costs: StepCosts) -> None:
        self.estimator = ExposureEstimator(options.window)
        self._options = options
        self._costs = costs
        self._due = options.min_completions
        self._target: Target | None = None

    @property
    def updates_due(self) -> bool:
        """Enough has completed for another update."""
        return self.estimator.completions >= self._due

    def target(self, view: View) -> Target:
        """The latest estimate, or θ_init of all slots before there is one."""
        if self.updates_due:
            self._target = self._update(view)
        elif self._target is None:
            options = self._options
            theta = min(max(options.theta_init, options.theta_min), options.theta_max)
            self._target = _unseen(max(1, int(theta * view.slots)), theta, view)
        return self._target

    def _update(self, view: View) -> Target:
        options, costs = self._options, self._costs
        self._due = self.estimator.completions + options.update_every
        p_bar, mu_l = self.estimator.p_bar, self.estimator.mu_l
        theta = theta0(p_bar, costs.alpha_p_s, costs.alpha_d_s)
        eta, capped = 0.0, False
        if options.correction == "first_order":
            line = self.estimator.line(view.num_output_tokens())
            eta = line.eta
            # Δθ needs N, and N* needs θ: one fixed-point step an update, from the N* before.
            slots = view.slots if self._target is None else self._target.slots
            correction = delta_theta(eta, line.p0, theta, slots, costs.alpha_d_s, costs.beta_d_s)
            if eta > line.p0 * line.p0 and correction > CORRECTION_CAP:
                correction, capped = CORRECTION_CAP, True
            theta += correction
        theta = min(max(theta, options.theta_min), options.theta_max)
        capacity = view.total_blocks * view.block_size
        slots = n_star_limited(capacity, options.epsilon, p_bar, mu_l, theta, view.slots)
        k = max(1, int(theta * slots))
        growth = growth_reserve(theta, p_bar, mu_l)
        n_star_used = None
        if options.forecasts:
            # N* is the batch that k is a share of, and no limit.
            slots, growth, n_star_used = view.slots, 0.0, slots
        return Target(k, slots, theta, growth, 0, p_bar, eta, mu_l, capped, n_star_used)
