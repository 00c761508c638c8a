"""The course of a board's runs: waits, gaps, thresholds and modes over time, and what the steps held."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import drawn_arms

# Stretches of a run's course that make one here, so that several policies fit a page.
TOGETHER = 2
# Policies whose steps are drawn phase by phase: the baseline and the first of the ranking.
MOST_LANES = 4
PHASES = ("prefill", "mixed", "decode")
# The columns of a course that charts have.
DRAWN = ("t_s", *PHASES, "waiting", "gap", "ttft_s", "policy_k", "policy_n", "policy_mode")
_TIME_AXIS = "seconds since the run’s start"


@dataclass(frozen=True, slots=True)
class Lane:
    """An arm with a step log: its place in the palette, and the course of its first repeat by column."""

    style: int
    arm: Arm
    columns: dict[str, list[Any]]


def lanes_of(board: Board) -> list[Lane]:
    """The arms with a step log among those that are drawn."""
    return [Lane(style, arm, course(arm)) for style, arm in enumerate(drawn_arms(board)) if arm.first.detail["course"]]


def phase_names(board: Board) -> list[str]:
    """The phases of a workload that changes on the way."""
    return [mark["name"] for mark in board.first.detail["marks"]]


def course(arm: Arm) -> dict[str, list[Any]]:
    """The course of the arm's first repeat, TOGETHER stretches in one: numbers as means, what else as it last was."""
    columns = arm.first.detail["course"]
    return {name: _together(columns[name]) for name in DRAWN if name in columns}


def _together(values: list[Any]) -> list[Any]:
    groups = [[one for one in values[i : i + TOGETHER] if one is not None] for i in range(0, len(values), TOGETHER)]
    if all(type(one) in (int, float) for group in groups for one in group):
        return [float(f"{math.fsum(group) / len(group):.4g}") if group else None for group in groups]
    return [group[-1] if group else None for group in groups]


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


def wait_charts(board: Board, lanes: Sequence[Lane]) -> list[Chart]:
    """How long requests waited, and how many did, over time."""
    return _over_time(board, lanes, _WAITS)


def gap_charts(board: Board, lanes: Sequence[Lane]) -> list[Chart]:
    """The gap over time."""
    return _over_time(board, lanes, _GAPS)


def threshold_charts(board: Board, lanes: Sequence[Lane]) -> list[Chart]:
    """The thresholds that policies kept to, and the mode that each held to be best, over time."""
    modes = _mode_chart(board, lanes)
    return [*_over_time(board, lanes, _THRESHOLDS), *([modes] if modes else [])]


def _over_time(board: Board, lanes: Sequence[Lane], charts: Sequence[tuple[str, str, str, str, bool]]) -> list[Chart]:
    """A chart a column of the courses of all arms, where one has it."""
    marks = marks_of(lanes[0].arm) if len(lanes) == 1 else ()
    found = []
    for name, title, column, axis, log in charts:
        there = [lane for lane in lanes if any(_known(lane.columns, column))]
        if not there:
            continue
        series = [
            Series(one.arm.label, one.columns["t_s"], one.columns[column], one.style, look={"connect": True})
            for one in there
        ]
        headers, rows = _table([(one.arm.label, one.columns["t_s"], one.columns[column]) for one in there], axis)
        note = board.kind_words + "; each policy in its own time"
        if column == "ttft_s":
            note += ", the requests sent in each stretch"
        values = [value for one in there for value in one.columns[column] if value is not None]
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


def _mode_chart(board: Board, lanes: Sequence[Lane]) -> Chart | None:
    """Which way of batching each policy held to be best, over time."""
    there = [lane for lane in lanes if any(_known(lane.columns, "policy_mode"))]
    words = sorted({str(mode) for lane in there for mode in lane.columns["policy_mode"] if mode is not None})
    if not there:
        return None
    series = []
    for one in there:
        places = [None if mode is None else words.index(str(mode)) for mode in one.columns["policy_mode"]]
        look = {"step": True, "connect": True}
        series.append(Series(one.arm.label, one.columns["t_s"], places, one.style, look=look))
    headers, rows = _table([(one.arm.label, one.columns["t_s"], one.columns["policy_mode"]) for one in there], "mode")
    note = f"{board.kind_words}; each policy in its own time"
    title = "The mode that the policy chose"
    return Chart("over-mode", title, _TIME_AXIS, "mode", tuple(series), headers, rows, note, y_words=tuple(words))


def step_charts(board: Board, lanes: Sequence[Lane]) -> list[Chart]:
    """What the steps of the baseline and of the first of the ranking held, with the phases of the traffic marked."""
    first = sorted(lanes, key=lambda one: one.arm.policy != board.baseline)[:MOST_LANES]
    return [_step_chart(one, place, board.kind_words) for place, one in enumerate(first)]


def _step_chart(lane: Lane, place: int, kind: str) -> Chart:
    times = lane.columns["t_s"]
    shares = [[None if share is None else round(100 * share, 2) for share in lane.columns[name]] for name in PHASES]
    series = tuple(Series(name, times, shares[style], style, "area") for style, name in enumerate(PHASES))
    return Chart(
        f"steps-{place}",
        f"{lane.arm.label}: what the steps held",
        _TIME_AXIS,
        "% of step time",
        series,
        ("seconds", *(f"{name} %" for name in PHASES)),
        tuple(zip(times, *shares, strict=True)),
        kind,
        marks=marks_of(lane.arm),
    )


def marks_of(arm: Arm) -> tuple[tuple[float, str], ...]:
    """The second at which each phase of the arm's traffic began, with its name."""
    return tuple((mark["t_s"], mark["name"]) for mark in arm.first.detail["marks"])
