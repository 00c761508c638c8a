"""Policies by loads: the first headline change of each pair, with means over the loads and wins, ties and losses."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.report.sentences import change_with_interval, shown_word
from harness.report.words import BETTER, WORSE, ComparedMetric
from harness.runs.run import Run

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.report.comparison import Comparison

_NOT_THE_LOAD = ("policy", "policy_sha256", "lengths", "seed", "repeat")


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy under one load: its row, None where the arms were not compared."""

    policy: str
    load: str
    row: ComparedMetric | None

    @property
    def word(self) -> str:
        """The row's word."""
        return self.row.word if self.row is not None else "not compared"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Cells by policy; every policy is held against the baseline of its load."""

    cells: tuple[Cell, ...]

    @property
    def policies(self) -> list[str]:
        """The policies, in the order of their first cell."""
        return list(dict.fromkeys(cell.policy for cell in self.cells))

    @property
    def loads(self) -> list[str]:
        """The loads, in the order of their first cell."""
        return list(dict.fromkeys(cell.load for cell in self.cells))

    def tally(self, policy: str) -> dict[str, Any]:
        """The geometric mean of a policy's ratios over the loads that have one, and its wins, ties and losses."""
        own = [cell for cell in self.cells if cell.policy == policy]
        ratios = [cell.row.ratio for cell in own if cell.row is not None and cell.row.ratio]
        wins, losses = (sum(cell.word == word for cell in own) for word in (BETTER, WORSE))
        compared = sum(cell.row is not None for cell in own)
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else None
        return {"geometric_mean": mean, "wins": wins, "ties": compared - wins - losses, "losses": losses}

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `bench compare --matrix`."""
        policies = {}
        for policy in self.policies:
            own = [cell for cell in self.cells if cell.policy == policy]
            cells = {cell.load: cell.row.to_dict() if cell.row else None for cell in own}
            policies[policy] = self.tally(policy) | {"cells": cells}
        return {"loads": self.loads, "policies": policies}

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a policy: the change under each load in percent, the mean, and the tally."""
        rows = []
        for policy in self.policies:
            row: dict[str, Any] = {"policy": policy}
            for cell in self.cells:
                if cell.policy == policy:
                    change = cell.row.ratio if cell.row is not None else None
                    row[cell.load] = None if change is None else 100 * (change - 1)
            rows.append(row | self.tally(policy))
        return rows


def by_load(folders: Sequence[Sequence[Run]]) -> list[list[list[Run]]]:
    """One folder again for every load (what a spec says besides the policy); several as they are."""
    if len(folders) > 1:
        # What else two folders may differ in is what they are held against each other for.
        return [[list(runs) for runs in folders]]
    loads = list(dict.fromkeys(_load_key(run) for runs in folders for run in runs))
    return [[[run for run in runs if _load_key(run) == load] for runs in folders] for load in loads]


def _load_key(run: Run) -> str:
    spec = {name: value for name, value in run.known_spec.items() if name not in _NOT_THE_LOAD}
    return json.dumps([run.kind, spec], sort_keys=True)


def matrix_of(comparisons: Sequence[Comparison]) -> Matrix:
    """The matrix of these comparisons."""
    cells = []
    for comparison in comparisons:
        a, b = comparison.a[0].spec, comparison.b[0].spec
        load = f"{b.workload} {b.arrival} {b.gpu}"
        name = next(iter(comparison.headline), None)
        row = comparison.metrics[name] if comparison.ranks and name is not None else None
        cells.append(Cell(b.label if a.label != b.label else f"{b.label} (after)", load, row))
    return Matrix(tuple(cells))


def matrix_table(matrix: Matrix) -> RenderableType:
    """The matrix for a terminal: a block a policy, a line a load."""
    from rich.table import Table

    from harness.core.folding import Folding

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("policy", "load", "metric", "change"):
        table.add_column(column, overflow="fold")
    table.add_column("is", no_wrap=True)
    for policy in matrix.policies:
        for cell in matrix.cells:
            if cell.policy == policy:
                told = change_with_interval(cell.row) if cell.row else "-"
                word = shown_word(cell.row) if cell.row else cell.word
                table.add_row(policy, cell.load, cell.row.metric if cell.row else "-", told, word)
        tally = matrix.tally(policy)
        mean = tally["geometric_mean"]
        told = "-" if mean is None else f"{100 * (mean - 1):+.1f} %"
        table.add_row(
            policy, f"all {len(matrix.loads)}", "geometric mean", told,
            f"{tally['wins']} wins, {tally['ties']} ties, {tally['losses']} losses",
        )  # fmt: skip
    return Folding(table)
