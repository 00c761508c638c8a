"""The closed forms of exclusive batching (arXiv 2606.00516), each a plain function of numbers.

Symbols: α_p, β_p prefill step (s, s/token); α_d, β_d decode step (s, s/request); θ = k/N; ζ = −ln(1−θ);
p0 hazard rate of the output length (1/token), η its slope (1/token²); μ_L, μ_O mean prompt and output (tokens).
"""

from __future__ import annotations

import math

from policies.core import PolicyError, StepCosts

# θ0 of a right side beyond 1e16 rounds to 1, where ζ and Δθ have no value.
BELOW_ONE = math.nextafter(1.0, 0.0)


def _exp_tail(x: float) -> float:
    """e^x − 1 − x, to full precision also where x is small (the difference would cancel)."""
    if abs(x) > 0.5:
        return math.expm1(x) - x
    term = x * x / 2
    total = 0.0
    n = 2
    while total + term != total:
        total += term
        n += 1
        term *= x / n
    return total


def theta0(p0: float, alpha_p: float, alpha_d: float) -> float:
    """θ0, the threshold for a constant hazard: the root in [0, 1) of θ/(1−θ) + ln(1−θ) = p0·α_p/α_d (form 2).

    p0 in 1/token, α_p and α_d in seconds. Raises PolicyError where α_d ≤ 0, or p0 or α_p is negative.
    In ζ = −ln(1−θ) the equation reads e^ζ − 1 − ζ = rhs; Newton from above meets a convex function and
    comes down to the root without crossing it.
    """
    if not alpha_d > 0:
        raise PolicyError(f"α_d is {alpha_d}: with α_d = 0 the threshold θ0 is 1; calibrate again")
    if not (p0 >= 0 and alpha_p >= 0 and math.isfinite(p0 * alpha_p)):
        raise PolicyError(f"p0 = {p0} and α_p = {alpha_p} must be finite and not negative")
    rhs = p0 * alpha_p / alpha_d
    if rhs == 0:
        return 0.0
    zeta = min(math.sqrt(2 * rhs), math.log1p(rhs + math.sqrt(2 * rhs)))
    for _ in range(100):
        step = (_exp_tail(zeta) - rhs) / math.expm1(zeta)
        following = zeta - step
        if not 0 < following < zeta:
            break
        zeta = following
    return min(-math.expm1(-zeta), BELOW_ONE)


def zeta_of(theta: float) -> float:
    """ζ = −ln(1−θ) for θ in [0, 1)."""
    return -math.log1p(-theta)


def delta_theta(eta: float, p0: float, theta: float, slots: float, alpha_d: float, beta_d: float) -> float:
    """Δθ, the first-order correction of θ0 for an increasing hazard p0 + η·t (form 3).

    η in 1/token², p0 in 1/token, θ = θ0 in (0, 1), slots N, α_d in s, β_d in s/request. η ≤ 0 gives 0.
    """
    if eta <= 0 or theta <= 0:
        return 0.0
    zeta = zeta_of(theta)
    bracket = zeta * (theta / (1 - theta) - zeta / 2) + beta_d * slots / alpha_d * _exp_tail(-zeta)
    return eta * (1 - theta) ** 2 / (p0 * p0 * theta) * bracket


def throughput_eb(theta: float, slots: int, p0: float, mu_l: float, costs: StepCosts) -> float:
    """Requests per second of EB in saturation with θ = k/N (form 1)."""
    per_request = (costs.alpha_p_s + costs.alpha_d_s * zeta_of(theta) / p0) / (theta * slots)
    return 1 / (per_request + costs.beta_p_s * mu_l + costs.beta_d_s / p0)


def mean_age(theta: float, p0: float) -> float:
    """A = (1−θ)ζ/(θ·p0): tokens that the surviving requests hold on average when a decode phase starts."""
    return (1 - theta) * zeta_of(theta) / (theta * p0) if theta < 1 else 0.0


def n_star(capacity: float, epsilon: float, p0: float, mu_l: float, theta: float) -> int:
    """N*, the slots that a KV cache of `capacity` tokens holds with probability 1 − ε (form 4).

    Where the numerator is not positive the plain mean-footprint bound floor(C/(μ_L + 1/p0)) stands in.
    """
    numerator = capacity - math.log(1 / epsilon) / (p0 * p0 * mu_l)
    if numerator <= 0:
        return math.floor(capacity / (mu_l + 1 / p0))
    return math.floor(numerator / (mu_l + mean_age(theta, p0)))


def n_star_limited(capacity: float, epsilon: float, p0: float, mu_l: float, theta: float, slots: int) -> int:
    """N* kept between a tenth of the engine's N, rounded up, and N."""
    return min(slots, max(-(-slots // 10), n_star(capacity, epsilon, p0, mu_l, theta)))


def growth_reserve(theta: float, p0: float, mu_l: float) -> float:
    """Tokens a request by which the KV of a batch still grows from a decode phase's start to its peak.

    With A the mean age at the start and x = clip(1 − p0(μ_L+A), 0, ζ):
    max(0, e^(−x)(μ_L + A + x/p0) − (μ_L + A)).
    """
    if theta <= 0:
        return 0.0
    start = mu_l + mean_age(theta, p0)
    x = max(1 - p0 * start, 0.0)
    if theta < 1:  # at k = N the decode phase has no end before the last request, and ζ no bound
        x = min(x, zeta_of(theta))
    return max(0.0, math.exp(-x) * (start + x / p0) - start)


def beta_eb(mu_l: float, mu_o: float, costs: StepCosts) -> float:
    """β_EB = (β_p·μ_L + β_d·μ_O)/(μ_L+μ_O), s/token."""
    return (costs.beta_p_s * mu_l + costs.beta_d_s * mu_o) / (mu_l + mu_o)


def crossover(
    theta: float, mu_l: float, mu_o: float, n_obs: float, delta: float, costs: StepCosts
) -> tuple[float, float]:
    """Both sides of the crossover inequality, s/token: mixed batching wins where left < right (form 6).

    left = β_MB(r) − β_EB with r = μ_O/(μ_L+μ_O);
    right = [(α_p + α_d·ζ·μ_O)/θ − α_MB(1+μ_O)]/((μ_L+μ_O)·N_obs) + δ.
    """
    tokens = mu_l + mu_o
    left = costs.beta_mb(mu_o / tokens) - beta_eb(mu_l, mu_o, costs)
    exclusive = (costs.alpha_p_s + costs.alpha_d_s * zeta_of(theta) * mu_o) / theta
    right = (exclusive - costs.alpha_mb_s * (1 + mu_o)) / (tokens * n_obs) + delta
    return left, right
