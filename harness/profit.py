"""`bench profit`: profit, break-even and curves of runs from their records, without running again."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.comparable import arm_names, arms, differences, one_line
from harness.document import at_alpha, is_twin, run_document
from harness.errors import UserError
from harness.lengths import fair
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
    rate,
    revenue,
    share_over,
)
from harness.runs import Run

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

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


def profit_table(found: Profit) -> RenderableType:
    """Both forms, a line an arm in the order of α, means of the repeats; then Π over c."""
    from rich.console import Group
    from rich.text import Text

    rows = sorted(found.rows, key=lambda row: (row.total.alpha is None, row.total.alpha or 0.0))
    kinds = " and ".join(
        sorted({run.kind + (", twin lengths" if is_twin(run) else "") for r in rows for run in r.runs})
    )
    k = found.constants
    parts: list[RenderableType] = []
    if any(row.total.fairness for row in rows):
        told = f"ρ0 {k.rho0:g}, τ {k.tau:g}, c {k.c:g}, {found.footprint} counts"
        parts += [Text(f"{kinds}: token-step profit Π in units of its own ({told})"), _tokenstep_table(found, rows)]
    if any(row.total.prices for row in rows):
        currency = next(row.total.prices.currency for row in rows if row.total.prices)
        parts += [Text(f"{kinds}: profit in money, {currency}"), _money_table(rows)]
    if found.curves and len(found.curves["profit_over_c"]["lines"]) > 1:
        parts += [Text("Π as the cost of a step c grows"), _over_c_table(found.curves["profit_over_c"])]
    parts += [Text(f"  {note}") for note in found.notes]
    return Group(*parts)


def _table(columns: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("policy", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _tokenstep_table(found: Profit, rows: Sequence[Row]) -> Any:
    k = found.constants
    table = _table(("Π", "tok/step", "τQ", "cT", "τE", "gap mean", "over α", "c*"))
    ends = {one["name"]: one for one in found.curves["break_even"]} if found.curves else {}
    for row in rows:
        work, runs = row.total.fairness, row.total.runs
        if work is None:
            continue
        share = share_over(row.total)
        table.add_row(
            _name(row),
            _figure(profit_tokenstep(work, k) / runs),
            _figure(rate(work)),
            _figure(k.tau * work.held / runs),
            _figure(k.c * work.working / runs),
            _figure(k.tau * work.externality / runs),
            _figure(work.gap_mean()),
            "-" if share is None else f"{100 * share:.3g}%",
            _break_even(ends.get(row.total.name)) if row.valid else "INVALID",
        )
    return table


def _money_table(rows: Sequence[Row]) -> Any:
    columns = ("profit", "revenue", "GPU cost", "output tok/s", "no profit from an hour at")
    table = _table(columns)
    for row in rows:
        one, prices = row.total, row.total.prices
        if prices is None:
            continue
        sold = revenue(one, prices)
        table.add_row(
            _name(row),
            _figure(profit_money(one, prices) / one.runs),
            _figure(sold / one.runs),
            _figure(prices.gpu_hour * one.hours / one.runs),
            _figure(one.output_tokens / one.seconds if one.seconds else None),
            _figure(sold / one.hours if one.hours else None),
        )
    return table


def _over_c_table(curve: dict[str, Any]) -> Any:
    from rich.text import Text

    places = range(0, len(curve["c"]), 2)
    table = _table([f"c {curve['c'][i]:.3g}" for i in places])
    for line in curve["lines"]:
        table.add_row(Text(line["name"]), *(_figure(line["profit"][i]) for i in places))
    return table


def _name(row: Row) -> Text:
    from rich.text import Text

    return Text(row.total.name + (f" ×{row.total.runs}" if row.total.runs > 1 else ""))


def _break_even(point: dict[str, Any] | None) -> str:
    if point is None:
        return "-"
    c = point["c"]
    return str(point["pays"]) if c is None else f"{'>' if point['pays'] == 'above' else '<'} {_figure(c)}"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
