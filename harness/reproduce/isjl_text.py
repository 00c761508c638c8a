"""The tables of arXiv 2608.02244 beside ours as text, and what the differences are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.reproduce.isjl_tables import Again

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


def tables_text(again: dict[str, list[Again]], source: str, seeds: int) -> str:
    """All tables, a published row and ours below it, with the differences of each column at the end."""
    lines = [f"published: {source}", f"ours: token-step model, mean over {seeds} samples of lengths, all lengths known"]
    for name, rows in again.items():
        lines += ["", _TITLES[name], *_table(rows), *_differences(rows)]
    return "\n".join(lines)


def _table(rows: Sequence[Again]) -> list[str]:
    columns = [_COLUMNS[name] for name in rows[0].row.cells]
    lines = [f"{'':<13}{'':<18}" + "".join(f"{title:>11}" for title, _ in columns)]
    for one in rows:
        name = one.row.policy if one.row.alpha is None else f"{one.row.policy}({one.row.alpha})"
        for who, cells in (("published", one.row.cells), *one.ours.items()):
            told = "".join(
                f"{cells[key]:>11{_COLUMNS[key][1]}}" if key in cells else f"{'-':>11}" for key in one.row.cells
            )
            lines.append(f"{name if who == 'published' else '':<13}{who:<18}{told}")
    return lines


def _differences(rows: Sequence[Again]) -> list[str]:
    """Per form and column the median and the greatest difference, in % of what is published (gain: in points)."""
    lines = ["difference, median (greatest, where) of the rows with another value than 0:"]
    forms = dict.fromkeys(form for one in rows for form in one.ours if one.row.alpha is not None)
    baselines = [one for one in rows if one.row.alpha is None]
    groups = {form: [(one, one.ours[form]) for one in rows if form in one.ours] for form in forms}
    shared = {form for form in forms if all(form in one.ours for one in baselines)}
    if baselines and not shared:
        groups = {"fcfs, ljf": [(one, cells) for one in baselines for cells in one.ours.values()]} | groups
    for form, pairs in groups.items():
        told = []
        for key in rows[0].row.cells:
            found = [
                (_off(key, cells[key], one.row.cells[key]), one.row.alpha or one.row.policy)
                for one, cells in pairs
                if key in cells and one.row.cells[key]
            ]
            if found:
                worst, where = max(found, key=lambda pair: abs(pair[0]))
                unit = " points" if key == "gain" else " %"
                middle = float(np.median([abs(off) for off, _ in found]))
                told.append(f"{_COLUMNS[key][0]} {middle:.1f} ({worst:+.1f}{unit}, {where})")
        lines.append(f"  {form}: {'; '.join(told)}")
    return lines


def _off(key: str, ours: float, theirs: float) -> float:
    return ours - theirs if key == "gain" else 100 * (ours / theirs - 1)
