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
from harness.measure.fairness import COLUMNS, DECODE, Fairness, alpha_of, alpha_of_policy, fairness, merge
from harness.measure.measured import span
from harness.measure.metrics import PROFITS
from harness.measure.profit import (
    PAPER,
    Account,
    Prices,
    TokenStep,
    curves,
    profit_money,
    profit_tokenstep,
    revenue,
)
from harness.report.arms import arm_names, arms
from harness.report.comparable import differences, fair
from harness.report.document import at_alpha, run_document
from harness.runs.run import Run

# What r counts in the token-step form, by the name of --footprint.
FOOTPRINTS = dict(zip(("decode", "kv"), COLUMNS, strict=True))

# Arms of one set of curves may differ in these alone.
_MAY_DIFFER = {"policy", "alpha", "seed"}


@dataclass(frozen=True, slots=True)
class Row:
    """One arm: its runs, what they did together, and each run's own account."""

    runs: tuple[Run, ...]
    accounts: tuple[Account, ...]
    total: Account

    @property
    def valid(self) -> bool:
        """Whether it may stand in a curve: no run of it is INVALID."""
        return all(run.level != "INVALID" for run in self.runs)


@dataclass(frozen=True, slots=True)
class Profit:
    """What `bench profit` found: rows in the order given, the curves of those that may stand in one, and why not."""

    rows: tuple[Row, ...]
    constants: TokenStep
    footprint: str
    alpha: float | None
    baseline: Row | None
    curves: dict[str, Any] | None
    notes: tuple[str, ...]


def profit(
    runs: Sequence[Run],
    constants: TokenStep = PAPER,
    prices: dict[int, Prices] | None = None,
    footprint: str = "decode",
    alpha: float | None = None,
    baseline: str = "ljf",
) -> Profit:
    """Profits and curves of runs; `prices` maps the place of a run in `runs` to its prices, none without.

    `baseline` names the policy that break-even is held against; `alpha` is what gaps are, where not the run's own
    or its policy's. UserError where no profit can be computed.
    """
    prices = prices or {}
    place = {id(run): i for i, run in enumerate(runs)}
    rows = []
    found = arms(runs)
    for name, arm in zip(arm_names(found), found, strict=True):
        accounts = tuple(_account(run, name, FOOTPRINTS[footprint], prices.get(place[id(run)]), alpha) for run in arm)
        rows.append(Row(tuple(arm), accounts, functools.reduce(_together, accounts)))
    if all(row.total.fairness is None for row in rows) and not prices:
        raise UserError(
            "these runs have no step log, so there is no token-step profit: give --price-in, --price-out and --gpu-hour"
        )
    notes = [
        f"{one_line(row.total.name)} has no step log: no token-step profit of it"
        for row in rows
        if row.total.fairness is None
    ]
    if not prices:
        notes.append("no profit in money without --price-in, --price-out and --gpu-hour (or --prices profile)")
    drawn, base, why = _curves(rows, constants, baseline)
    return Profit(tuple(rows), constants, footprint, alpha, base, drawn, (*notes, *why))


def _curves(
    rows: Sequence[Row], constants: TokenStep, baseline: str
) -> tuple[dict[str, Any] | None, Row | None, list[str]]:
    """The curves of the rows that may stand in one, the row that is the baseline, and what to say."""
    notes = [f"{one_line(row.total.name)} is INVALID: shown, in no curve" for row in rows if not row.valid]
    ranked = [row for row in rows if row.valid]
    if not ranked:
        return None, None, notes
    firsts = [row.runs[0] for row in ranked]
    other = sorted({name for pair in itertools.combinations(firsts, 2) for name in _unequal(*pair)})
    if other:
        return None, None, [*notes, f"no curves: the runs differ in {', '.join(other)}"]
    base = next((row for row in ranked if row.total.policy == baseline), None)
    if base is None and len(ranked) > 1:
        notes.append(f"no break-even: none of the runs has the policy {baseline} (--baseline names another)")
    totals = [row.total for row in ranked]
    return curves(totals, constants, base.total if base else None), base, notes


def _unequal(a: Run, b: Run) -> set[str]:
    """What keeps two runs out of one set of curves; lengths do not where one of them would not look at any."""
    return differences(a, b).keys() - _MAY_DIFFER - ({"lengths"} if fair([a.spec, b.spec]) else set())


def _account(run: Run, name: str, variant: str, prices: Prices | None, against: float | None) -> Account:
    if run.kind == "reported":
        raise UserError(f"{run.path}: reported figures come without the records that a profit is made from")
    requests = Requests.of(run.requests())
    start, end = span(requests)
    steps = run.steps()
    alpha = 0.0 if run.spec.policy == "ljf" else alpha_of_policy(run.spec.policy)
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
    known: Fairness | None = merge(a.fairness, b.fairness) if a.fairness and b.fairness else None
    return dataclasses.replace(
        a,
        runs=a.runs + b.runs,
        prompt_tokens=a.prompt_tokens + b.prompt_tokens,
        output_tokens=a.output_tokens + b.output_tokens,
        seconds=a.seconds + b.seconds,
        fairness=known,
    )


def profit_document(found: Profit, sources: dict[str, Any]) -> dict[str, Any]:
    """The JSON document: `runs` as `bench show` has them with profits among their metrics, and the curves."""
    constants = found.constants
    return {
        "runs": [
            _document(run, account, found)
            for row in found.rows
            for run, account in zip(row.runs, row.accounts, strict=True)
        ],
        "tokenstep": {"rho0": constants.rho0, "tau": constants.tau, "c": constants.c, "footprint": found.footprint},
        "prices": sources,
        "baseline": found.baseline.total.policy if found.baseline else None,
        "curves": found.curves,
        "notes": list(found.notes),
    }


def _document(run: Run, account: Account, found: Profit) -> dict[str, Any]:
    document = run_document(run if found.alpha is None else at_alpha(run, found.alpha))
    own: dict[str, Any] = {}
    work, prices = account.fairness, account.prices
    profits: dict[str, tuple[float, str]] = {}
    if work is not None:
        profits["profit_tokenstep"] = (profit_tokenstep(work, found.constants), "")
        own["tokenstep"] = {
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
        own["money"] = {
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
    return document | {"name": account.name, "metrics": document["metrics"] | values, "profit": own}
