"""The drift pages: what each policy made of traffic that changed on the way."""

from __future__ import annotations

import math
from typing import Any

from harness.pages.board_pages import write_board, write_list
from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import is_drift, ranked_arms
from harness.pages.render import Writer
from harness.pages.site import Site

# Stretches of a run's course that make one here, so that several policies fit a page.
TOGETHER = 2
# Policies drawn on a page: the baseline and the first of the ranking; the others have their runs' own pages.
MOST = 6
PHASES = ("prefill", "mixed", "decode")
_TIME_AXIS = "seconds since the run’s start"


def write(site: Site, writer: Writer) -> None:
    """drift.html, which lists the boards, and drift/BOARD.html."""
    boards = [board for board in site.boards if is_drift(board)]
    write_list(writer, "drift", boards, {board.id: _phase_names(board) for board in boards})
    for board in boards:
        arms = drawn_arms(board)
        write_board(
            writer,
            "drift",
            board,
            marks=[(arm, arm.first.detail["marks"]) for arm in arms],
            phases=_phase_names(board),
            common=[_over_time(board, arms, *settings) for settings in _COMMON],
            lanes=[(arm, lane(arm, place, board.kind_words)) for place, arm in enumerate(arms)],
            rest=[arm for arm in ranked_arms(board) if arm not in arms],
        )


def drawn_arms(board: Board) -> list[Arm]:
    """The arms that the page draws: those with a step log, the baseline first, at most MOST."""
    arms = [arm for arm in ranked_arms(board) if arm.first.detail["course"]]
    return sorted(arms, key=lambda arm: arm.policy != board.baseline)[:MOST]


def _phase_names(board: Board) -> list[str]:
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
_COMMON = (
    ("ttft", "Time to first token over time", "ttft_s", "TTFT mean, seconds", True),
    ("waiting", "Requests that wait", "waiting", "requests", False),
)


def _over_time(board: Board, arms: list[Arm], name: str, title: str, column: str, axis: str, log: bool) -> Chart:
    """A chart of one column of the courses of all arms."""
    series = []
    rows: list[tuple[Any, ...]] = []
    for style, arm in enumerate(arms):
        columns = course(arm)
        times, values = columns["t_s"], columns[column]
        series.append(Series(arm.label, times, values, style, extra={"connectgaps": True}))
        rows += [(arm.label, t, value) for t, value in zip(times, values, strict=True) if value is not None]
    note = board.kind_words + "; each policy in its own time"
    if column == "ttft_s":
        note += ", the requests sent in each stretch"
    log = log and all(value > 0 for _, _, value in rows)
    headers = ("policy", "seconds", axis)
    return Chart(name, title, _TIME_AXIS, axis, tuple(series), headers, tuple(rows), note, y_log=log)


def lane(arm: Arm, place: int, kind: str) -> list[Chart]:
    """What the arm's steps held, and what its policy held to be best, with the phases of the traffic marked."""
    columns, layout = course(arm), marked(arm)
    charts = [_held_steps(columns, place, arm.label, kind, layout)]
    if any(value is not None for value in columns.get("policy_k", [])):
        charts.append(_held_best(columns, place, arm.label, kind, layout))
    return charts


def _held_steps(columns: dict[str, list[Any]], place: int, label: str, kind: str, layout: dict[str, Any]) -> Chart:
    times = columns["t_s"]
    shares = [[None if share is None else round(100 * share, 2) for share in columns[name]] for name in PHASES]
    series = tuple(Series(name, times, shares[style], style, extra=_area(style)) for style, name in enumerate(PHASES))
    return Chart(
        f"phases-{place}",
        f"{label}: what the steps held",
        _TIME_AXIS,
        "% of step time",
        series,
        ("seconds", *(f"{name} %" for name in PHASES)),
        tuple(zip(times, *shares, strict=True)),
        kind,
        layout=layout,
    )


def _area(style: int) -> dict[str, Any]:
    """An area on top of those before it, told apart by its hatching, too."""
    line = {"width": 0.5, "color": f"--s{style}"}
    return {
        "stackgroup": "phases",
        "line": line,
        "fillpattern": {"shape": ("/", "x", "")[style], "size": 8, "solidity": 0.25},
    }


def _held_best(columns: dict[str, list[Any]], place: int, label: str, kind: str, layout: dict[str, Any]) -> Chart:
    times, k = columns["t_s"], columns["policy_k"]
    none = [None] * len(times)
    n, mode = columns.get("policy_n", none), columns.get("policy_mode", none)
    series = [
        Series("k*: free slots that start a prefill phase", times, k, 0),
        Series("N*: slots in use at most", times, n, 1),
    ]
    if any(value is not None for value in mode):
        extra = {"line": {"color": "--s3", "width": 2, "dash": "dot", "shape": "hv"}}
        series.append(Series("mode (right)", times, mode, 3, axis="y2", extra=extra))
        right = {"overlaying": "y", "side": "right", "type": "category", "title": {"text": "mode"}}
        layout = {**layout, "yaxis2": right, "margin": {"l": 64, "r": 72, "t": 24, "b": 56}}
    return Chart(
        f"best-{place}",
        f"{label}: what the policy held to be best",
        _TIME_AXIS,
        "requests",
        tuple(series),
        ("seconds", "k*", "N*", "mode"),
        tuple(zip(times, k, n, mode, strict=True)),
        kind,
        layout=layout,
    )


def marked(arm: Arm) -> dict[str, Any]:
    """A line and a name where each phase of the traffic begins, as layout of a chart."""
    shapes = []
    names = []
    for mark in arm.first.detail["marks"]:
        line = {"color": "--text", "width": 1, "dash": "dash"}
        shapes.append(
            {"type": "line", "x0": mark["t_s"], "x1": mark["t_s"], "yref": "paper", "y0": 0, "y1": 1, "line": line}
        )
        names.append(
            {
                "x": mark["t_s"],
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "xanchor": "left",
                "text": mark["name"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
                "showarrow": False,
                "font": {"size": 12, "color": "--text"},
            }
        )
    return {"shapes": shapes, "annotations": names, "margin": {"l": 64, "r": 16, "t": 24, "b": 56}}
