"""What regret looks like on a terminal, and as flat rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.report.regret import BELOW, Regret

if TYPE_CHECKING:
    from rich.console import RenderableType


def regret_table(rows: Sequence[Regret], cells: int, hindsight: Sequence[str], reference: str) -> RenderableType:
    """A line a policy, and what the columns mean."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    best = ", ".join(hindsight) or "all policies"
    table = Table(title=f"regret over {cells} cells", box=None, pad_edge=False, header_style="bold")
    table.title_justify = "left"
    table.add_column("policy", overflow="fold")
    for name in ("cells", "mean %", "positive %", "p95 %", "worst %", f"over {reference} %", "below %", "good %"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("worst in", overflow="fold")
    for row in rows:
        shares = (row.mean, row.positive, row.p95, row.worst)
        table.add_row(
            row.policy,
            str(row.cells),
            *(f"{100 * share:.1f}" for share in shares),
            *("–" if share is None else f"{100 * share:{form}}" for share, form in _rest(row)),
            row.worst_in,
        )
    notes = [
        f"regret: output tok/s lost against the best in hindsight of a cell ({best}); below 0 where a policy beats it",
        f"below: cells more than {100 * BELOW:g} % below {reference}; good: requests within the runs' --slo",
    ]
    return Group(table, *(Text(note, style="dim") for note in notes))


def _rest(row: Regret) -> tuple[tuple[float | None, str], ...]:
    return (row.over, "+.1f"), (row.below, ".0f"), (row.good, ".1f")


def regret_rows(rows: Sequence[Regret]) -> list[dict[str, Any]]:
    """One flat row a policy; shares, not percent."""
    return [row.to_dict() for row in rows]
