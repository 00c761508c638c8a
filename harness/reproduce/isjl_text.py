"""The tables of arXiv 2608.02244 beside ours as text, and what the differences are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.reproduce.isjl_published import PublishedRow
from harness.reproduce.isjl_tables import RemadeRow

_TITLES = {
    "table1": "Table 1: profit and cost, n = 400, B = 50 (gain %: throughput against LJF; gap: tokens, mean of steps)",
    "table2": "Table 2: steps saved against LJF, and the step cost c* from which that pays",
    "table3": "Table 3: tokens/s and mean end-to-end latency (s); ours in independent pools, fitted to the tokens/s",
}
_COLUMNS = {
    "profit": ("profit", ".2f"),
    "cost": ("cost", ".2f"),
    "tau_q": ("τQ", ".2f"),
    "c_t": ("cT", ".2f"),
    "tau_e": ("τE", ".2f"),
    "gain": ("gain %", ".2f"),
    "gap": ("gap", ".1f"),
    "saved": ("saved", ".1f"),
    "break_even": ("c*", ".4f"),
    "throughput16": ("tok/s B=16", ".0f"),
    "latency16": ("AEL B=16", ".1f"),
    "throughput32": ("tok/s B=32", ".0f"),
    "latency32": ("AEL B=32", ".1f"),
}


def tables_text(again: dict[str, list[RemadeRow]], source: str, seeds: int) -> str:
    """All tables, a published row and ours below it, with the differences of each column at the end."""
    lines = [f"published: {source}", f"ours: token-step model, mean over {seeds} samples of lengths, all lengths known"]
    for name, rows in again.items():
        lines += ["", _TITLES[name], *_table(rows), *_differences(rows)]
    return "\n".join(lines)


def _table(rows: Sequence[RemadeRow]) -> list[str]:
    columns = [_COLUMNS[name] for name in rows[0].row.cells]
    lines = [f"{'':<13}{'':<18}" + "".join(f"{title:>11}" for title, _ in columns)]
    for remade in rows:
        row = remade.row
        name = row.policy if row.alpha is None else f"{row.policy}({row.alpha})"
        for who, cells in (("published", row.cells), *remade.ours.items()):
            text = "".join(f"{cells[key]:>11{_COLUMNS[key][1]}}" if key in cells else f"{'-':>11}" for key in row.cells)
            lines.append(f"{name if who == 'published' else '':<13}{who:<18}{text}")
    return lines


def _differences(rows: Sequence[RemadeRow]) -> list[str]:
    """Per form and column the median and the greatest difference, in % of what is published (gain: in points)."""
    lines = ["difference, median (greatest, where) of the rows with another value than 0:"]
    for form, pairs in _groups(rows).items():
        columns = [_difference(key, pairs) for key in rows[0].row.cells]
        lines.append(f"  {form}: {'; '.join(column for column in columns if column)}")
    return lines


def _groups(rows: Sequence[RemadeRow]) -> dict[str, list[tuple[PublishedRow, dict[str, float]]]]:
    """The rows that a form of ISJL made, each with its cells; where no form made the baselines, they are a group."""
    forms = dict.fromkeys(form for remade in rows for form in remade.ours if remade.row.alpha is not None)
    baselines = [remade for remade in rows if remade.row.alpha is None]
    groups = {form: [(remade.row, remade.ours[form]) for remade in rows if form in remade.ours] for form in forms}
    shared = {form for form in forms if all(form in remade.ours for remade in baselines)}
    if baselines and not shared:
        of_baselines = [(remade.row, cells) for remade in baselines for cells in remade.ours.values()]
        groups = {"fcfs, ljf": of_baselines} | groups
    return groups


def _difference(key: str, pairs: Sequence[tuple[PublishedRow, dict[str, float]]]) -> str:
    """The median and the greatest difference of a column; empty where no row has it."""
    differences = [
        (_off(key, cells[key], row.cells[key]), row.alpha or row.policy)
        for row, cells in pairs
        if key in cells and row.cells[key]
    ]
    if not differences:
        return ""
    worst, where = max(differences, key=lambda difference: abs(difference[0]))
    unit = " points" if key == "gain" else " %"
    middle = float(np.median([abs(off) for off, _ in differences]))
    return f"{_COLUMNS[key][0]} {middle:.1f} ({worst:+.1f}{unit}, {where})"


def _off(key: str, ours: float, theirs: float) -> float:
    return ours - theirs if key == "gain" else 100 * (ours / theirs - 1)
