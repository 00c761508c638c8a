"""What latency–throughput curves look like on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.report.curve import AXES, KNEE_RULE, Curve, Point
from harness.report.document import kind_words

if TYPE_CHECKING:
    from rich.console import RenderableType

# Column, metric, and what its value is multiplied by.
_COLUMNS = (
    ("req/s", "request_throughput.value", 1.0),
    ("tok/s", "output_throughput.value", 1.0),
    ("TTFT p50 s", "ttft_s.p50", 1.0),
    ("p95 s", "ttft_s.p95", 1.0),
    ("TPOT mean ms", "tpot_s.mean", 1000.0),
    ("E2EL mean s", "e2el_s.mean", 1.0),
    ("goodput", "goodput.value", 1.0),
)


def curve_table(curves: Sequence[Curve]) -> RenderableType:
    """Curves on the same axis, a line a load, the knee of each policy marked."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from harness.core.folding import Folding

    axis = curves[0].axis
    kinds = " and ".join(sorted({kind_words(curve.first) for curve in curves}))
    steady = "; start and end left out" if all(curve.steady for curve in curves) else ""
    table = Table(title=f"{kinds}, by {AXES[axis]}{steady}", box=None, pad_edge=False, header_style="bold")
    table.title_justify = "left"
    table.add_column("policy", overflow="fold")
    table.add_column(axis, justify="right", no_wrap=True)
    columns = [column for column in _COLUMNS if any(_value(curves, column[1]))]
    for name, _, _ in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("", no_wrap=True)
    notes = []
    for curve in curves:
        label = curve.first.spec.label
        for point in curve.points:
            cells = [_cell(point, metric, scale) for _, metric, scale in columns]
            mark = "← knee" if point is curve.knee else ""
            table.add_row(Text(label), f"{point.load:g}", *cells, point.level, mark)
        if curve.knee_note:
            notes.append(Text(f"  {label}: {curve.knee_note}"))
    parts: list[RenderableType] = [Folding(table), *notes]
    if any(curve.knee for curve in curves):
        parts.append(Text(f"  knee: {KNEE_RULE}", style="dim"))
    return Group(*parts)


def _value(curves: Sequence[Curve], metric: str) -> list[bool]:
    return [point.values[metric] is not None for curve in curves for point in curve.points]


def _cell(point: Point, metric: str, scale: float) -> str:
    value = point.values[metric]
    if value is None:
        return "-"
    value *= scale
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
