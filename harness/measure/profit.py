"""Profit in two forms, token-step and money, and the curves over α, step cost and GPU price: pure functions.

Token-step: Π = ρ0·O - τ·Q - c·T - τ·E (arXiv 2608.02244, theorem 5.1), in units of its own. Money: what the
tokens are sold for less what the GPU costs, in a currency. Neither is part of a run's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.measure.fairness import Fairness, alpha_of_policy

# Points of a curve over a price: it is a line, so that two would do.
POINTS = 11


@dataclass(frozen=True, slots=True)
class TokenStep:
    """ρ0 a token produced, τ a token held or charged for a step, c a step with work."""

    rho0: float
    tau: float
    c: float


# The constants behind the tables of arXiv 2608.02244, as far as these give them away (it prints none).
PAPER = TokenStep(rho0=0.002, tau=1e-6, c=5e-4)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per prompt token, per output token and per hour of the GPU, all in one currency."""

    prompt_token: float
    output_token: float
    gpu_hour: float
    currency: str


@dataclass(frozen=True, slots=True)
class Account:
    """What the runs of one policy did, added up over `runs` repeats.

    Tokens are those of completed requests; `seconds` go from first send to last token. `alpha` is the policy's
    own (0 for LJF), None where it has none, and `against` the one that its gaps are held against. `fairness` is
    None without a step log, `prices` where not asked. `name` tells it from other arms of its policy; empty where the
    policy does.
    """

    policy: str
    alpha: float | None
    runs: int
    prompt_tokens: int
    output_tokens: int
    seconds: float
    fairness: Fairness | None
    against: float | None = None
    prices: Prices | None = None
    name: str = ""

    @property
    def hours(self) -> float:
        """Hours of the GPU, all repeats together."""
        return self.seconds / 3600


@dataclass(frozen=True, slots=True)
class BreakEven:
    """For which step cost c a policy's profit exceeds the baseline's: `above` or `below` c, `always` or `never`.

    `c` is None where no c makes the two equal; `steps_saved` and `externality_added` (tokens) are a run's.
    """

    pays: Literal["above", "below", "always", "never"]
    c: float | None
    steps_saved: float
    externality_added: float


def alpha_on_path(policy: str) -> float | None:
    """Where a policy stands on the path of α: its own, 0 for LJF, None where it has none."""
    return 0.0 if policy == "ljf" else alpha_of_policy(policy)


def profit_tokenstep(work: Fairness, constants: TokenStep) -> float:
    """Π = ρ0·O - τ·Q - c·T - τ·E; T counts the steps with work."""
    spent = constants.tau * work.held + constants.c * work.working + constants.tau * work.externality
    return constants.rho0 * work.tokens - spent


def revenue(account: Account, prices: Prices) -> float:
    """What the tokens of completed requests are sold for."""
    return prices.prompt_token * account.prompt_tokens + prices.output_token * account.output_tokens


def profit_money(account: Account, prices: Prices) -> float:
    """Revenue less the GPU's hours."""
    return revenue(account, prices) - prices.gpu_hour * account.hours


def break_even(account: Account, baseline: Account, tau: float) -> BreakEven | None:
    """c* = τ(E_x - E_LJF)/(T_LJF - T_x), means of the repeats; None unless both did the same work (same O and Q)."""
    x, base = account.fairness, baseline.fairness
    if x is None or base is None:
        return None
    if (x.tokens * baseline.runs, x.held * baseline.runs) != (base.tokens * account.runs, base.held * account.runs):
        return None
    saved = base.working / baseline.runs - x.working / account.runs
    added = x.externality / account.runs - base.externality / baseline.runs
    c = tau * added / saved if saved else None
    if c is None or c < 0 or (c == 0 and saved < 0):
        # Both are better or both worse: no step cost that there is turns that round.
        better = saved > 0 or (saved == 0 and added < 0)
        return BreakEven("always" if better else "never", None, saved, added)
    return BreakEven("above" if saved > 0 else "below", c, saved, added)


def curves(accounts: Sequence[Account], constants: TokenStep, baseline: Account | None) -> dict[str, Any]:
    """Every curve as JSON values, each point with the policy that it stands for, a run's mean over the repeats.

    Points of one path ascend in α (LJF is its start); policies without an α stand after them, with `alpha` null.
    """
    ordered = sorted(accounts, key=lambda account: (account.alpha is None, account.alpha or 0.0))
    stepped = [
        (account, account.fairness) for account in ordered if account.fairness is not None and account.fairness.steps
    ]
    priced = [(account, account.prices) for account in ordered if account.prices is not None and account.seconds]
    ends = _break_evens([account for account, _ in stepped], baseline, constants.tau)
    return {
        "profit_over_throughput": {
            "tokenstep": [
                _stands_for(account)
                | {"throughput": rate(work), "profit": profit_tokenstep(work, constants) / account.runs}
                for account, work in stepped
            ],
            "money": [
                _stands_for(account)
                | {
                    "throughput": account.output_tokens / account.seconds,
                    "profit": profit_money(account, prices) / account.runs,
                }
                for account, prices in priced
            ],
        },
        "violation_over_throughput": [
            _stands_for(account)
            | {"throughput": rate(work), "gap_mean": work.gap_mean(), "gap_max": work.gap_max}
            | {"held_against": account.against, "violation_share": share_over(account)}
            for account, work in stepped
        ],
        "break_even": [_stands_for(account) | _end_document(end) for account, end in ends],
        "profit_over_c": _over_c(stepped, constants, [end for _, end in ends if end is not None]),
        "profit_over_gpu_hour": _over_gpu_hour(priced),
    }


def _break_evens(
    accounts: Sequence[Account], baseline: Account | None, tau: float
) -> list[tuple[Account, BreakEven | None]]:
    """Each account but the baseline with its break-even; none without a baseline."""
    if baseline is None:
        return []
    return [(account, break_even(account, baseline, tau)) for account in accounts if account is not baseline]


def _end_document(end: BreakEven | None) -> dict[str, Any]:
    if end is None:
        return {"pays": "other work", "c": None, "steps_saved": None, "externality_added": None}
    return {
        "pays": end.pays,
        "c": end.c,
        "steps_saved": end.steps_saved,
        "externality_added": end.externality_added,
    }


def share_over(account: Account) -> float | None:
    """The share of busy steps whose gap exceeds what it is held against; None without either."""
    if account.fairness is None or account.against is None:
        return None
    return account.fairness.violation_share(account.against)


def rate(work: Fairness) -> float:
    """Tokens a step: the throughput of the token-step model, O/T."""
    return work.tokens / work.working if work.working else 0.0


def _over_c(
    stepped: Sequence[tuple[Account, Fairness]], constants: TokenStep, ends: Sequence[BreakEven]
) -> dict[str, Any]:
    """Π as a line in c, over a range that shows every break-even."""
    highest = 1.5 * max([constants.c, *(end.c for end in ends if end.c is not None)])
    grid = [highest * i / (POINTS - 1) for i in range(POINTS)]
    lines = []
    for account, work in stepped:
        free = profit_tokenstep(work, TokenStep(constants.rho0, constants.tau, 0.0)) / account.runs
        steps = work.working / account.runs
        lines.append(_stands_for(account) | {"at_0": free, "steps": steps, "profit": [free - c * steps for c in grid]})
    return {"c": grid, "lines": lines}


def _over_gpu_hour(priced: Sequence[tuple[Account, Prices]]) -> dict[str, Any]:
    """The profit in money as a line in the price of a GPU hour, and the price at which nothing is left."""
    highest = 2 * max((prices.gpu_hour for _, prices in priced), default=0.0)
    grid = [highest * i / (POINTS - 1) for i in range(POINTS)]
    lines = []
    for account, prices in priced:
        sold, hours = revenue(account, prices) / account.runs, account.hours / account.runs
        profits = [sold - gpu_hour * hours for gpu_hour in grid]
        lines.append(
            _stands_for(account) | {"revenue": sold, "hours": hours, "break_even": sold / hours, "profit": profits}
        )
    return {"gpu_hour": grid, "lines": lines}


def _stands_for(account: Account) -> dict[str, Any]:
    """Which policy a point of a curve stands for."""
    return {"policy": account.policy, "name": account.name or account.policy, "alpha": account.alpha}
