"""The answer in a sentence: who is better, by how much, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.text import percent

if TYPE_CHECKING:
    from harness.report.comparison import Comparison, Row

NOT_TESTED = "not tested"
_TOLD = {"goodput": "goodput", "output_throughput": "output tok/s", "ttft_s": "TTFT mean", "tpot_s": "TPOT mean"}


def words(comparison: Comparison) -> list[str]:
    """Lines for a terminal: B against A in goodput (with an SLO), throughput, TTFT and TPOT, each with its word."""
    a, b = comparison.a[0].spec.label, comparison.b[0].spec.label
    if comparison.refusal:
        return [f"{b} against {a}: not compared: {comparison.refusal}"]
    lines = [f"{b} against {a} ({comparison.method}):"]
    told = {label: row for name, label in _TOLD.items() if (row := comparison.rows.get(name)) is not None}
    if told and all(row.a == row.b for row in comparison.rows.values()):
        lines.append("  identical, so no difference shown: every request had the same times under both")
    else:
        lines += [f"  {label:<13} {change(row)}: {word(row)}" for label, row in told.items() if row.ratio is not None]
    lines += [f"  note: {note}" for note in comparison.notes]
    return lines


def change(row: Row) -> str:
    """B over A: in percent, as a factor where that is beyond ten, with its 95 % interval where there is one."""
    if row.ratio is None:
        return "-"
    factor = row.ratio > 10
    text = _times(row.ratio) if factor else f"{percent(row.ratio)} %"
    if row.low is None or row.high is None:
        return text
    if factor:
        return f"{text} (95 % interval {_times(row.low)} … {_times(row.high)})"
    return f"{text} (95 % interval {percent(row.low)} … {percent(row.high)} %)"


def _times(factor: float) -> str:
    return f"×{factor:,.0f}" if factor >= 100 else f"×{factor:.3g}"


def said(row: Row) -> str:
    """The row's word; where no difference is shown for want of an interval nothing was tested, and that is said."""
    return NOT_TESTED if row.low is None and row.word == "no difference shown" else row.word


def word(row: Row) -> str:
    """The row's word, and what to do where there is none."""
    return f"{NOT_TESTED} (no interval from this run: use --repeat)" if said(row) == NOT_TESTED else row.word
