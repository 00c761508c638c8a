"""The course of a board's runs: waits, gaps, thresholds and modes over time, and what the steps held."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import drawn_arms

# Stretches of a run's course that make one here, so that several policies fit a page.
TOGETHER = 2
# Policies whose steps are drawn phase by phase: the baseline and the first of the ranking.
MOST_LANES = 4
PHASES = ("prefill", "mixed", "decode")
_TIME_AXIS = "seconds since the run’s start"


def with_course(board: Board) -> list[tuple[int, Arm]]:
    """The arms with a step log among those that are drawn, each with its place in the palette."""
    return [(style, arm) for style, arm in enumerate(drawn_arms(board)) if arm.first.detail["course"]]


def phase_names(board: Board) -> list[str]:
    """The phases of a workload that changes on the way."""
    return [mark["name"] for mark in board.first.detail["marks"]]


def course(arm: Arm) -> dict[str, list[Any]]:
    """The course of the arm's first repeat, TOGETHER stretches in one: numbers as means, what else as it last was."""
    columns = {}
    for name, values in arm.first.detail["course"].items():
        groups = [values[i : i + TOGETHER] for i in range(0, len(values), TOGETHER)]
        columns[name] = [_mean_or_last(group) for group in groups]
    return columns


def _mean_or_last(group: list[Any]) -> Any:
    known = [value for value in group if value is not None]
    if not known:
        return None
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return float(f"{math.fsum(known) / len(known):.4g}")
    return known[-1]


# Charts with all policies in them: id, title, column, axis, logarithmic.
_WAITS = (
    ("over-ttft", "Time to first token over time", "ttft_s", "TTFT mean, seconds", True),
    ("over-waiting", "Requests that wait", "waiting", "requests", False),
)
_GAPS = (("over-gap", "Gap between requests that decode together", "gap", "tokens, mean of each stretch", False),)
_THRESHOLDS = (
    ("over-k", "k: free slots that start a prefill phase", "policy_k", "requests", False),
    ("over-n", "N: slots in use at most", "policy_n", "requests", False),
)


def wait_charts(board: Board) -> list[Chart]:
    """How long requests waited, and how many did, over time."""
    return _over_time(board, _WAITS)


def gap_charts(board: Board) -> list[Chart]:
    """The gap over time."""
    return _over_time(board, _GAPS)


def threshold_charts(board: Board) -> list[Chart]:
    """The thresholds that policies kept to, and the mode that each held to be best, over time."""
    modes = _mode_chart(board)
    return [*_over_time(board, _THRESHOLDS), *([modes] if modes else [])]


def _over_time(board: Board, charts: Sequence[tuple[str, str, str, str, bool]]) -> list[Chart]:
    """A chart a column of the courses of all arms, where one has it."""
    arms = [(style, arm, course(arm)) for style, arm in with_course(board)]
    marks = marks_of(arms[0][1]) if len(arms) == 1 else ()
    found = []
    for name, title, column, axis, log in charts:
        there = [(style, arm, columns) for style, arm, columns in arms if any(_known(columns, column))]
        if not there:
            continue
        series = [
            Series(arm.label, columns["t_s"], columns[column], style, look={"connect": True})
            for style, arm, columns in there
        ]
        headers, rows = _table([(arm.label, columns["t_s"], columns[column]) for _, arm, columns in there], axis)
        note = board.kind_words + "; each policy in its own time"
        if column == "ttft_s":
            note += ", the requests sent in each stretch"
        values = [value for *_, columns in there for value in columns[column] if value is not None]
        logarithmic = log and min(values) > 0
        found.append(
            Chart(name, title, _TIME_AXIS, axis, tuple(series), headers, rows, note, y_log=logarithmic, marks=marks)
        )
    return found


def _known(columns: dict[str, list[Any]], name: str) -> list[bool]:
    return [value is not None for value in columns.get(name, [])]


def _table(lines: Sequence[tuple[str, list[Any], list[Any]]], what: str) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Headers and rows of a table with two columns an arm: its own seconds, and its value."""
    headers = tuple(f"{label}: {column}" for label, *_ in lines for column in ("seconds", what))
    columns = [values for _, *pair in lines for values in pair]
    return headers, tuple(itertools.zip_longest(*columns))


def _mode_chart(board: Board) -> Chart | None:
    """Which way of batching each policy held to be best, over time."""
    arms = [(style, arm, course(arm)) for style, arm in with_course(board)]
    there = [(style, arm, columns) for style, arm, columns in arms if any(_known(columns, "policy_mode"))]
    words = sorted({str(mode) for *_, columns in there for mode in columns["policy_mode"] if mode is not None})
    if not there:
        return None
    series = []
    for style, arm, columns in there:
        places = [None if mode is None else words.index(str(mode)) for mode in columns["policy_mode"]]
        series.append(Series(arm.label, columns["t_s"], places, style, look={"step": True, "connect": True}))
    headers, rows = _table([(arm.label, columns["t_s"], columns["policy_mode"]) for _, arm, columns in there], "mode")
    note = f"{board.kind_words}; each policy in its own time"
    title = "The mode that the policy chose"
    return Chart("over-mode", title, _TIME_AXIS, "mode", tuple(series), headers, rows, note, y_words=tuple(words))


def lanes(board: Board) -> list[Chart]:
    """What the steps of the baseline and of the first of the ranking held, with the phases of the traffic marked."""
    arms = sorted(with_course(board), key=lambda one: one[1].policy != board.baseline)[:MOST_LANES]
    return [_lane(arm, place, board.kind_words) for place, (_, arm) in enumerate(arms)]


def _lane(arm: Arm, place: int, kind: str) -> Chart:
    columns = course(arm)
    times = columns["t_s"]
    shares = [[None if share is None else round(100 * share, 2) for share in columns[name]] for name in PHASES]
    series = tuple(Series(name, times, shares[style], style, "area") for style, name in enumerate(PHASES))
    return Chart(
        f"steps-{place}",
        f"{arm.label}: what the steps held",
        _TIME_AXIS,
        "% of step time",
        series,
        ("seconds", *(f"{name} %" for name in PHASES)),
        tuple(zip(times, *shares, strict=True)),
        kind,
        marks=marks_of(arm),
    )


def marks_of(arm: Arm) -> tuple[tuple[float, str], ...]:
    """The second at which each phase of the arm's traffic began, with its name."""
    return tuple((mark["t_s"], mark["name"]) for mark in arm.first.detail["marks"])
