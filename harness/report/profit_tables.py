"""What `bench profit` shows on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.measure.profit import profit_money, profit_tokenstep, rate, revenue, share_over
from harness.report.document import kind_words

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from harness.report.profit import ArmProfit, ProfitReport


def profit_table(report: ProfitReport) -> RenderableType:
    """Both forms, a line an arm in the order of α, means of the repeats; then Π over c."""
    from rich.console import Group
    from rich.text import Text

    from harness.core.folding import Folding

    arms = sorted(report.arms, key=lambda arm: (arm.total.alpha is None, arm.total.alpha or 0.0))
    kinds = " and ".join(sorted({kind_words(run) for arm in arms for run in arm.runs}))
    parts: list[RenderableType] = []
    if any(arm.total.fairness for arm in arms):
        constants = report.constants
        settings = f"ρ0 {constants.rho0:g}, τ {constants.tau:g}, c {constants.c:g}, {report.footprint} counts"
        parts.append(Text(f"{kinds}: token-step profit Π in units of its own ({settings})"))
        parts.append(Folding(_tokenstep_table(report, arms)))
    if any(arm.total.prices for arm in arms):
        currency = next(arm.total.prices.currency for arm in arms if arm.total.prices)
        parts += [Text(f"{kinds}: profit in money, {currency}"), Folding(_money_table(arms))]
    if report.curves and len(report.curves["profit_over_c"]["lines"]) > 1:
        parts += [Text("Π as the cost of a step c grows"), Folding(_over_c_table(report.curves["profit_over_c"]))]
    parts += [Text(f"  {note}") for note in report.notes]
    return Group(*parts)


def _table(columns: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("policy", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _tokenstep_table(report: ProfitReport, arms: Sequence[ArmProfit]) -> Table:
    constants = report.constants
    table = _table(("Π", "tok/step", "τQ", "cT", "τE", "gap mean", "over α", "c*"))
    break_evens = {point["name"]: point for point in report.curves["break_even"]} if report.curves else {}
    for arm in arms:
        work, runs = arm.total.fairness, arm.total.runs
        if work is None:
            continue
        share = share_over(arm.total)
        table.add_row(
            _name(arm),
            _figure(profit_tokenstep(work, constants) / runs),
            _figure(rate(work)),
            _figure(constants.tau * work.held / runs),
            _figure(constants.c * work.working / runs),
            _figure(constants.tau * work.externality / runs),
            _figure(work.gap_mean()),
            "-" if share is None else f"{100 * share:.3g}%",
            _break_even(break_evens.get(arm.total.name)) if arm.valid else "INVALID",
        )
    return table


def _money_table(arms: Sequence[ArmProfit]) -> Table:
    table = _table(("profit", "revenue", "GPU cost", "output tok/s", "no profit from an hour at"))
    for arm in arms:
        account, prices = arm.total, arm.total.prices
        if prices is None:
            continue
        sold = revenue(account, prices)
        table.add_row(
            _name(arm),
            _figure(profit_money(account, prices) / account.runs),
            _figure(sold / account.runs),
            _figure(prices.gpu_hour * account.hours / account.runs),
            _figure(account.output_tokens / account.seconds if account.seconds else None),
            _figure(sold / account.hours if account.hours else None),
        )
    return table


def _over_c_table(curve: dict[str, Any]) -> Table:
    from rich.text import Text

    places = range(0, len(curve["c"]), 2)
    table = _table([f"c {curve['c'][i]:.3g}" for i in places])
    for line in curve["lines"]:
        table.add_row(Text(line["name"]), *(_figure(line["profit"][i]) for i in places))
    return table


def _name(arm: ArmProfit) -> Text:
    from rich.text import Text

    return Text(arm.total.name + (f" ×{arm.total.runs}" if arm.total.runs > 1 else ""))


def _break_even(point: dict[str, Any] | None) -> str:
    """The step cost from which the policy pays, as a cell: `> 0.001`, `always`, a dash for the baseline."""
    if point is None:
        return "-"
    c = point["c"]
    return str(point["pays"]) if c is None else f"{'>' if point['pays'] == 'above' else '<'} {_figure(c)}"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
