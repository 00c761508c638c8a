"""A page a board: the answer, the ranking, and behind it every curve, price, threshold and run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from harness.measure.profit import PAPER
from harness.pages import courses, fairness, latency, profit, tradeoff
from harness.pages.answers import answer_of, ranks_of, twins_of
from harness.pages.boards import Board
from harness.pages.charts import Chart, script_json
from harness.pages.facets import drawn_arms, ranked_arms, reported_columns, settings_words, source_of
from harness.pages.reported import ReportedChange
from harness.published.corpus import FILES
from harness.published.detail import GAPS


def other_loads(board: Board, boards: Sequence[Board]) -> tuple[tuple[str, str, str], ...]:
    """Id, settings and kind of the boards of the same GPU, model and workload: other loads, settings or kinds."""
    spec = board.spec
    about = (spec.gpu, spec.model, spec.workload)
    return tuple(
        (other.id, settings_words(other), other.kind_words)
        for other in boards
        if other is not board and (other.spec.gpu, other.spec.model, other.spec.workload) == about
    )


def board_values(board: Board, published: dict[str, ReportedChange], prefix: str = "") -> dict[str, Any]:
    """What the template of a board is given; `prefix` tells its ids from those of another board on the same page."""
    points = profit.points_of(board)
    inputs = profit.inputs_of(board, points)
    lanes = courses.lanes_of(board)
    charts = {
        "throughput": tradeoff.tradeoff_charts(board),
        "latency": [*latency.charts_of(board), *courses.wait_charts(board, lanes)],
        "fairness": fairness.fairness_charts(board, lanes),
        "profit": profit.charts_of(board, points, inputs) if points else [],
        "thresholds": [*courses.threshold_charts(board, lanes), *courses.step_charts(board, lanes)],
    }
    return {
        "prefix": prefix,
        "answer": answer_of(board),
        "ranks": ranks_of(board),
        "twins": twins_of(board),
        "scale": bar_scale(board),
        "published": published,
        "charts": {name: [_prefixed(chart, prefix) for chart in found] for name, found in charts.items()},
        "undrawn": len(ranked_arms(board)) - len(drawn_arms(board)),
        "gaps": fairness.COLUMNS,
        "points": points,
        "inputs": inputs,
        "thresholds": GAPS,
        "held_against": profit.HELD_AGAINST,
        "break_evens": profit.break_evens(points, PAPER.tau),
        "ljf": profit.BASELINE,
        "profit_data": script_json(profit.script_data(points) | {"prefix": prefix}),
        "phases": courses.phase_names(board),
        "reported_columns": reported_columns(board.arms),
        "source": source_of(board.first.run) if board.kind == "reported" else None,
        "files": [name for name in FILES if any((p.run.path / name).is_file() for a in board.arms for p in a.runs)],
    }


def _prefixed(chart: Chart, prefix: str) -> Chart:
    return dataclasses.replace(chart, id=prefix + chart.id)


def bar_scale(board: Board) -> float:
    """The largest change of the board's intervals in its rate, as |ln ratio|: the half width of its bars."""
    ends = [0.02]
    for arm in ranked_arms(board):
        change = arm.changes.get(board.rate)
        if change is not None:
            told = (change.ratio, change.low, change.high)
            ends += [abs(math.log(end)) for end in told if end is not None and end > 0]
    # An interval without bounds would make all others invisible.
    return min(max(ends), math.log(10))
