"""`bench profit`: profit, break-even and curves of runs from their records, without running again."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UserError
from harness.core.text import one_line
from harness.measure.columns import NANOSECONDS, Requests
from harness.measure.fairness import COLUMNS, DECODE, Fairness, alpha_of, fairness, merge
from harness.measure.measured import span
from harness.measure.metrics import PROFITS
from harness.measure.profit import (
    PAPER,
    Account,
    Prices,
    TokenStep,
    alpha_on_path,
    curves,
    profit_money,
    profit_tokenstep,
    revenue,
)
from harness.report.arms import arm_names, arms_of
from harness.report.comparable import differences, knowledge_may_differ
from harness.report.document import at_alpha, run_document
from harness.runs.run import Run

# What r counts in the token-step form, by the name of --footprint.
FOOTPRINTS = dict(zip(("decode", "kv"), COLUMNS, strict=True))

# Arms of one set of curves may differ in these alone.
_MAY_DIFFER = {"policy", "policy_sha256", "alpha", "seed"}


@dataclass(frozen=True, slots=True)
class ArmProfit:
    """One arm: its runs, each run's own account, and what they did together."""

    runs: tuple[Run, ...]
    accounts: tuple[Account, ...]
    total: Account

    @property
    def valid(self) -> bool:
        """Whether it may stand in a curve: no run of it is INVALID."""
        return all(run.level != "INVALID" for run in self.runs)


@dataclass(frozen=True, slots=True)
class ProfitReport:
    """What `bench profit` found: arms in the order given, the curves of those that may stand in one, and why not."""

    arms: tuple[ArmProfit, ...]
    constants: TokenStep
    footprint: str
    alpha: float | None
    baseline: ArmProfit | None
    curves: dict[str, Any] | None
    notes: tuple[str, ...]


def profit_report(
    runs: Sequence[Run],
    constants: TokenStep = PAPER,
    prices: dict[int, Prices] | None = None,
    footprint: str = "decode",
    alpha: float | None = None,
    baseline: str = "ljf",
) -> ProfitReport:
    """Profits and curves of runs; `prices` maps the place of a run in `runs` to its prices, none without.

    `baseline` names the policy that break-even is held against; `alpha` is what gaps are, where not the run's own
    or its policy's. UserError where no profit can be computed.
    """
    prices = prices or {}
    place = {id(run): i for i, run in enumerate(runs)}
    runs_of_arms = arms_of(runs)
    arms = []
    for name, arm_runs in zip(arm_names(runs_of_arms), runs_of_arms, strict=True):
        accounts = tuple(
            _account(run, name, FOOTPRINTS[footprint], prices.get(place[id(run)]), alpha) for run in arm_runs
        )
        arms.append(ArmProfit(tuple(arm_runs), accounts, functools.reduce(_together, accounts)))
    unlogged = [arm for arm in arms if arm.total.fairness is None]
    if len(unlogged) == len(arms) and not prices:
        raise UserError(
            "these runs have no step log, so there is no token-step profit: give --price-in, --price-out and --gpu-hour"
        )
    notes = [f"{one_line(arm.total.name)} has no step log: no token-step profit of it" for arm in unlogged]
    if not prices:
        notes.append("no profit in money without --price-in, --price-out and --gpu-hour (or --prices profile)")
    curves_of_arms, baseline_arm, curve_notes = _curves(arms, constants, baseline)
    return ProfitReport(
        arms=tuple(arms),
        constants=constants,
        footprint=footprint,
        alpha=alpha,
        baseline=baseline_arm,
        curves=curves_of_arms,
        notes=(*notes, *curve_notes),
    )


def _curves(
    arms: Sequence[ArmProfit], constants: TokenStep, baseline: str
) -> tuple[dict[str, Any] | None, ArmProfit | None, list[str]]:
    """The curves of the arms that may stand in one, the arm that is the baseline, and what to say."""
    notes = [f"{one_line(arm.total.name)} is INVALID: shown, in no curve" for arm in arms if not arm.valid]
    ranked = [arm for arm in arms if arm.valid]
    if not ranked:
        return None, None, notes
    first_runs = [arm.runs[0] for arm in ranked]
    differing = sorted({name for pair in itertools.combinations(first_runs, 2) for name in _differing(*pair)})
    if differing:
        return None, None, [*notes, f"no curves: the runs differ in {', '.join(differing)}"]
    baseline_arm = next((arm for arm in ranked if arm.total.policy == baseline), None)
    if baseline_arm is None and len(ranked) > 1:
        notes.append(f"no break-even: none of the runs has the policy {baseline} (--baseline names another)")
    totals = [arm.total for arm in ranked]
    return curves(totals, constants, baseline_arm.total if baseline_arm else None), baseline_arm, notes


def _differing(a: Run, b: Run) -> set[str]:
    """What keeps two runs out of one set of curves; lengths do not where one of them would not look at any."""
    lengths = {"lengths"} if knowledge_may_differ([a.spec, b.spec]) else set()
    return differences(a, b).keys() - _MAY_DIFFER - lengths


def _account(run: Run, name: str, variant: str, prices: Prices | None, against: float | None) -> Account:
    """What a run did; gaps are held against `against`, else the run's own α. UserError for a reported run."""
    if run.kind == "reported":
        raise UserError(f"{run.path}: reported figures come without the records that a profit is made from")
    requests = Requests.of(run.requests())
    start, end = span(requests)
    steps = run.steps()
    alpha = alpha_on_path(run.spec.policy)
    if against is None:
        against = alpha_of(run.spec, variant)
    if against is None and run.spec.policy == "ljf" and variant == DECODE:
        against = alpha
    return Account(
        policy=run.spec.policy,
        alpha=alpha,
        runs=1,
        prompt_tokens=int(requests.prompt_tokens[requests.completed].sum()),
        output_tokens=int(requests.output_tokens[requests.completed].sum()),
        seconds=(end - start) / NANOSECONDS,
        fairness=None if steps is None else fairness(steps, variant),
        against=against,
        prices=prices,
        name=name,
    )


def _together(a: Account, b: Account) -> Account:
    """The account of two repeats added up; without a step log of both there is no fairness."""
    both: Fairness | None = merge(a.fairness, b.fairness) if a.fairness and b.fairness else None
    return dataclasses.replace(
        a,
        runs=a.runs + b.runs,
        prompt_tokens=a.prompt_tokens + b.prompt_tokens,
        output_tokens=a.output_tokens + b.output_tokens,
        seconds=a.seconds + b.seconds,
        fairness=both,
    )


def profit_document(report: ProfitReport, sources: dict[str, Any]) -> dict[str, Any]:
    """The JSON document: `runs` as `bench show` has them with profits among their metrics, and the curves."""
    constants = report.constants
    return {
        "runs": [
            _run_document(run, account, report)
            for arm in report.arms
            for run, account in zip(arm.runs, arm.accounts, strict=True)
        ],
        "tokenstep": {"rho0": constants.rho0, "tau": constants.tau, "c": constants.c, "footprint": report.footprint},
        "prices": sources,
        "baseline": report.baseline.total.policy if report.baseline else None,
        "curves": report.curves,
        "notes": list(report.notes),
    }


def _run_document(run: Run, account: Account, report: ProfitReport) -> dict[str, Any]:
    """A run as `bench show` has it, with its profits among the metrics and what they are made from."""
    document = run_document(run if report.alpha is None else at_alpha(run, report.alpha))
    made_from: dict[str, Any] = {}
    work, prices = account.fairness, account.prices
    profits: dict[str, tuple[float, str]] = {}
    if work is not None:
        profits["profit_tokenstep"] = (profit_tokenstep(work, report.constants), "")
        made_from["tokenstep"] = {
            "tokens": work.tokens,
            "intrinsic": work.held,
            "charged": work.charged,
            "externality": work.externality,
            "steps": work.steps,
            "working_steps": work.working,
            "busy_steps": work.busy,
        }
    if prices is not None:
        profits["profit_money"] = (profit_money(account, prices), prices.currency)
        made_from["money"] = {
            "prompt_tokens": account.prompt_tokens,
            "output_tokens": account.output_tokens,
            "hours": account.hours,
            "revenue": revenue(account, prices),
            "gpu_cost": prices.gpu_hour * account.hours,
        }
    values = {
        name: {"value": value, "unit": unit, "low": None, "high": None} for name, (value, unit) in profits.items()
    }
    assert values.keys() <= PROFITS.keys()
    return document | {"name": account.name, "metrics": document["metrics"] | values, "profit": made_from}
