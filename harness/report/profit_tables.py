"""What `bench profit` shows on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.measure.profit import (
    profit_money,
    profit_tokenstep,
    rate,
    revenue,
    share_over,
)
from harness.report.document import is_twin

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text
from harness.report.profit import Profit, Row


def profit_table(found: Profit) -> RenderableType:
    """Both forms, a line an arm in the order of α, means of the repeats; then Π over c."""
    from rich.console import Group
    from rich.text import Text

    from harness.core.folding import Folding

    rows = sorted(found.rows, key=lambda row: (row.total.alpha is None, row.total.alpha or 0.0))
    kinds = " and ".join(
        sorted({run.kind + (", twin lengths" if is_twin(run) else "") for r in rows for run in r.runs})
    )
    k = found.constants
    parts: list[RenderableType] = []
    if any(row.total.fairness for row in rows):
        told = f"ρ0 {k.rho0:g}, τ {k.tau:g}, c {k.c:g}, {found.footprint} counts"
        parts += [
            Text(f"{kinds}: token-step profit Π in units of its own ({told})"),
            Folding(_tokenstep_table(found, rows)),
        ]
    if any(row.total.prices for row in rows):
        currency = next(row.total.prices.currency for row in rows if row.total.prices)
        parts += [Text(f"{kinds}: profit in money, {currency}"), Folding(_money_table(rows))]
    if found.curves and len(found.curves["profit_over_c"]["lines"]) > 1:
        parts += [Text("Π as the cost of a step c grows"), Folding(_over_c_table(found.curves["profit_over_c"]))]
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
