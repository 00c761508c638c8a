"""Terminals of any width: columns stand below one another, and no figure is cut."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table

from harness.core.folding import Folding
from harness.report.arms import arms_of
from harness.report.comparison import compare_runs
from harness.report.tables import compare_table, run_table, show_table
from harness.runs.run import Run, load_run
from harness.trace.info import info_table, trace_info
from tests.support.runfactory import write_toy
from workloads.catalog import load_workload

WIDTHS = (200, 120, 80, 60, 50, 40, 30, 20)
FIGURE = re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?")


def lines(what: RenderableType, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False, emoji=False).print(what)
    return out.getvalue().splitlines()


def figures(what: RenderableType, width: int) -> list[str]:
    return sorted(FIGURE.findall(" ".join(lines(what, width))))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    out = tmp_path_factory.mktemp("runs")
    return [load_run(write_toy(out, policy=policy, n=60, speed=speed)) for policy, speed in (("v1", 1.0), ("ljf", 1.3))]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_of_a_table_is_cut(pair: list[Run], width: int) -> None:
    first, second = arms_of(pair)
    trace = load_workload("synthetic", {"mu_l": "64", "mu_o": "16"}, requests=50, seed=0, model="m/m")
    shown = [compare_table(compare_runs(first, second)), run_table(pair), show_table(pair[0])]
    for what in (*shown, info_table(trace_info(trace))):
        wide = lines(what, 400)
        narrow = lines(what, width)
        assert max(map(cell_len, narrow)) <= width
        told = set(figures(what, width))
        # A digest is one long word, which a line may break.
        assert {one for one in figures(what, 400) if len(one) < width - 6} - told <= {
            one for line in wide if "digest" in line or "sha256" in line for one in FIGURE.findall(line)
        }


def test_columns_that_do_not_fit_stand_below_with_the_names_of_their_rows() -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("metric")
    for name in ("A", "B", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("rate", "123,456", "234,567", "+90.0 %")
    table.add_row("steady", "1", "2", "+100.0 %")
    assert lines(Folding(table), 60) == lines(table, 60)
    folded = [line.split() for line in lines(Folding(table), 28)]
    assert folded == [
        *(["metric", "A", "B"], ["rate", "123,456", "234,567"], ["steady", "1", "2"]),
        *(["metric", "change"], ["rate", "+90.0", "%"], ["steady", "+100.0", "%"]),
    ]
    assert [line.strip() for line in lines(Folding(table), 15)[:2]] == ["rate, A:", "123,456"]
