"""What the theory of exclusive batching says of a workload on a GPU, before anything runs (arXiv 2606.00516)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.profiles.pair import Pair
from harness.trace.stats import Hazard, hazard_of, phase_rows
from policies.core import StepCosts
from policies.online.controller import CORRECTION_CAP, ControlOptions
from policies.online.threshold import crossover, delta_theta, n_star, n_star_limited, theta0, throughput_eb
from workloads.core.trace import Ints, Trace

if TYPE_CHECKING:
    from rich.console import RenderableType

BLOCK = 16
_LIMITS = ControlOptions()
# Of the table: phases shown beside the whole, and its lines, each with the figures of a prediction.
_MOST_PHASES = 8
_LINES = (
    ("concurrency", "{concurrency:,}"),
    ("μ_L, μ_O tokens", "{mu_l:,.0f}, {mu_o:,.0f}"),
    ("r", "{decode_ratio:.3f}"),
    ("p̄ 1/token", "{p_bar:.3g}"),
    ("hazard line", "{hazard_p0:.2g} + {hazard_eta:.2g}·t"),
    ("θ0", "{theta_0:.3f}"),
    ("θ*", "{theta_star:.3f}{capped}"),
    ("N*", "{n_star:,}"),
    ("k*", "{k_star:,}"),
    ("N_obs", "{n_obs:,}"),
    ("β_MB(r) − β_EB µs/token", "{left_us:.3f}"),
    ("right side µs/token", "{right_us:.3f}"),
    ("EB wins from N_obs", "{wins_from}"),
    ("predicted to win", "{wins}"),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """The engine and load to predict for: N slots, B tokens a step, requests in flight, δ in s/token."""

    slots: int = 1024
    token_budget: int = 14336
    concurrency: int = 2048
    delta_s: float = 0.0


def predict(trace: Trace, pair: Pair, setting: Setting) -> dict[str, Any]:
    """θ0, θ*, k*, N*, and both sides of the crossover for the trace, and for each phase of a drift.

    A phase with a level of concurrency of its own is judged at that level.
    """
    whole = _predict(trace.prompt_tokens, trace.output_tokens, pair, setting, setting.concurrency)
    phases = []
    for mark, rows in phase_rows(trace):
        level = mark.get("concurrency", setting.concurrency)
        prediction = _predict(trace.prompt_tokens[rows], trace.output_tokens[rows], pair, setting, level)
        phases.append({"name": mark["name"], **prediction})
    return {
        "gpu": pair.gpu.name,
        "model": pair.model_name,
        "costs": pair.describe(),
        "slots": setting.slots,
        "token_budget": setting.token_budget,
        "kv_tokens": pair.kv_tokens,
        "delta_s_per_token": setting.delta_s,
        **whole,
        "phases": phases,
    }


@dataclass(frozen=True, slots=True)
class Threshold:
    """θ0 of a flat hazard, θ* with the correction of its slope, N* at θ*, and whether the correction was capped."""

    theta_0: float
    theta_star: float
    n_star: int
    capped: bool


def _predict(prompt: Ints, output: Ints, pair: Pair, setting: Setting, concurrency: int) -> dict[str, Any]:
    """The prediction for requests of these lengths, tokens, with so many in flight."""
    mu_l, mu_o = float(prompt.mean()), float(output.mean())
    costs = pair.policy_constants(mu_l, mu_o, setting.token_budget)
    hazard = hazard_of(output)
    p0 = hazard.p_bar
    threshold = _threshold(hazard, mu_l, pair.kv_tokens, setting.slots, costs)
    theta, slots = threshold.theta_star, threshold.n_star
    # The engine's limits of N* are for the threshold; no more can run than the cache holds.
    n_obs = max(1, min(concurrency, setting.slots, n_star(pair.kv_tokens, _LIMITS.epsilon, p0, mu_l, theta)))
    left, right = crossover(theta, mu_l, mu_o, n_obs, setting.delta_s, costs)
    rate = throughput_eb(theta, slots, p0, mu_l, costs)
    return {
        "concurrency": concurrency,
        "mu_l": mu_l,
        "mu_o": mu_o,
        "decode_ratio": mu_o / (mu_l + mu_o),
        "p_bar": p0,
        "hazard_p0": hazard.p0,
        "hazard_eta": hazard.eta,
        "theta_0": threshold.theta_0,
        "theta_star": theta,
        "correction_capped": threshold.capped,
        "n_star": slots,
        "k_star": max(1, int(theta * slots)),
        "n_obs": n_obs,
        "crossover_left": left,
        "crossover_right": right,
        "winner": "MB" if left < right else "EB",
        "eb_wins_from_n_obs": wins_from(theta, mu_l, mu_o, setting.delta_s, costs),
        "eb_requests_per_s": rate if concurrency >= slots else None,
    }


def _threshold(hazard: Hazard, mu_l: float, kv_tokens: int, most_slots: int, costs: StepCosts) -> Threshold:
    """The controller's fixed point, which it reaches in a few updates: Δθ needs N* and N* needs θ*."""
    start = theta0(hazard.p_bar, costs.alpha_p_s, costs.alpha_d_s)
    theta, slots, capped = start, most_slots, False
    for _ in range(50):
        correction = delta_theta(hazard.eta, hazard.p0, start, slots, costs.alpha_d_s, costs.beta_d_s)
        capped = hazard.eta > hazard.p0**2 and correction > CORRECTION_CAP
        correction = CORRECTION_CAP if capped else correction
        theta = min(max(start + correction, _LIMITS.theta_min), _LIMITS.theta_max)
        before, slots = slots, n_star_limited(kv_tokens, _LIMITS.epsilon, hazard.p_bar, mu_l, theta, most_slots)
        if slots == before:
            break
    return Threshold(start, theta, slots, capped)


def wins_from(theta: float, mu_l: float, mu_o: float, delta_s: float, costs: StepCosts) -> float | None:
    """The number of running requests from which the crossover (form 6) favours exclusive batching; None: from none on.

    The right side is X/((μ_L+μ_O)·N_obs) + δ, so the sides meet where N_obs = X/((μ_L+μ_O)·(left − δ)).
    """
    left, at_one = crossover(theta, mu_l, mu_o, 1.0, 0.0, costs)
    if at_one <= 0:
        return 0.0 if left >= delta_s else None
    return at_one / (left - delta_s) if left > delta_s else None


def theory_table(prediction: dict[str, Any]) -> RenderableType:
    """The prediction for a terminal: a column for the trace, one for each phase of a drift."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from harness.core.folding import Folding

    phases = prediction["phases"]
    columns = [("whole trace", prediction), *((phase["name"], phase) for phase in phases[:_MOST_PHASES])]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name, _ in columns:
        table.add_column(name, justify="right")
    cells = [_cells(of_column) for _, of_column in columns]
    for label, form in _LINES:
        table.add_row(label, *(form.format_map(values) for values in cells))
    head = (
        f"exclusive batching on {prediction['costs']}: N = {prediction['slots']:,}, "
        f"B = {prediction['token_budget']:,}, C = {prediction['kv_tokens']:,} tokens, "
        f"δ = {prediction['delta_s_per_token']:g} s/token"
    )
    foot = (
        "MB wins where β_MB(r) − β_EB is below the right side, which falls as 1/N_obs. N_obs is taken as the smallest "
        "of concurrency, N and what the cache holds; EB+ measures its own. Saturation is assumed: lengths alone, "
        "no arrivals."
    )
    more = len(phases) - _MOST_PHASES
    parts: list[RenderableType] = [Text(head, style="bold"), Folding(table)]
    if more > 0:
        parts.append(Text(f"and {more} more phases (--json lists all)"))
    return Group(*parts, Text(foot, style="dim"))


def _cells(prediction: dict[str, Any]) -> dict[str, Any]:
    """The figures of a prediction, with those that are shown otherwise than they are kept."""
    wins_from_n_obs = prediction["eb_wins_from_n_obs"]
    return prediction | {
        "capped": " (capped)" if prediction["correction_capped"] else "",
        "left_us": prediction["crossover_left"] * 1e6,
        "right_us": prediction["crossover_right"] * 1e6,
        "wins_from": "none" if wins_from_n_obs is None else f"{math.ceil(wins_from_n_obs):,}",
        "wins": {"EB": "exclusive", "MB": "mixed"}[prediction["winner"]],
    }
