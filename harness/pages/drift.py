"""The drift pages: what each policy made of traffic that changed on the way."""

from __future__ import annotations

import math
from typing import Any

from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import facets, filters, is_drift, kind_words, pages_of, ranked
from harness.pages.render import Writer
from harness.pages.site import Site

# Stretches of a run's course that make one here, so that several policies fit a page.
TOGETHER = 2
# Policies drawn on a page: the baseline and the first of the ranking; the others have their runs' own pages.
MOST = 6
PHASES = ("prefill", "mixed", "decode")


def write(site: Site, writer: Writer) -> None:
    """drift.html, which lists the boards, and drift/BOARD.html."""
    found = [board for board in site.boards if is_drift(board)]
    writer.page(
        "drift.html",
        "drift.html.j2",
        boards=[(board, facets(board), _names(board)) for board in found],
        filters=filters(found),
        kind_words=kind_words,
    )
    for board in found:
        arms = drawn(board)
        rest = [arm for arm in ranked(board) if arm not in arms]
        writer.page(
            f"drift/{board.id}.html",
            "drift_board.html.j2",
            board=board,
            kind=kind_words(board),
            pages=pages_of(board),
            marks=[(arm, arm.first.detail["marks"]) for arm in arms],
            phases=_names(board),
            common=[_over_time(board, arms, *one) for one in _COMMON],
            lanes=[(arm, lanes(arm, i, kind_words(board))) for i, arm in enumerate(arms)],
            rest=rest,
        )


def drawn(board: Board) -> list[Arm]:
    """The arms that the page draws: those with a step log, the baseline first, at most MOST."""
    arms = [arm for arm in ranked(board) if arm.first.detail["course"]]
    return sorted(arms, key=lambda arm: arm.policy != board.baseline)[:MOST]


def _names(board: Board) -> list[str]:
    return [one["name"] for one in board.first.detail["marks"]]


def course(arm: Arm) -> dict[str, list[Any]]:
    """The course of the arm's first repeat, TOGETHER stretches in one: numbers as means, what else as it last was."""
    found = {}
    for name, values in arm.first.detail["course"].items():
        groups = [values[i : i + TOGETHER] for i in range(0, len(values), TOGETHER)]
        found[name] = [_one(group) for group in groups]
    return found


def _one(group: list[Any]) -> Any:
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
    series = []
    rows: list[tuple[Any, ...]] = []
    for i, arm in enumerate(arms):
        one = course(arm)
        label = arm.first.run.spec.label
        series.append(Series(label, one["t_s"], one[column], i, extra={"connectgaps": True}))
        rows += [(label, t, value) for t, value in zip(one["t_s"], one[column], strict=True) if value is not None]
    note = kind_words(board) + "; each policy in its own time"
    if column == "ttft_s":
        note += ", the requests sent in each stretch"
    log = log and all(value > 0 for _, _, value in rows)
    headers = ("policy", "seconds", axis)
    return Chart(
        name, title, "seconds since the run’s start", axis, tuple(series), headers, tuple(rows), note, y_log=log
    )


def lanes(arm: Arm, place: int, kind: str) -> list[Chart]:
    """What the arm's steps held, and what its policy held to be best, with the phases of the traffic marked."""
    one = course(arm)
    layout = marked(arm)
    shares = {name: [None if x is None else round(100 * x, 2) for x in one[name]] for name in PHASES}
    series = tuple(Series(name, one["t_s"], shares[name], i, extra=_area(i)) for i, name in enumerate(PHASES))
    rows = tuple(zip(one["t_s"], *(shares[name] for name in PHASES), strict=True))
    time = "seconds since the run’s start"
    label = arm.first.run.spec.label
    found = [
        Chart(
            f"phases-{place}",
            f"{label}: what the steps held",
            time,
            "% of step time",
            series,
            ("seconds", *(f"{name} %" for name in PHASES)),
            rows,
            kind,
            layout=layout,
        )
    ]
    if any(value is not None for value in one.get("policy_k", [])):
        found.append(_held_best(one, place, label, kind, time, layout))
    return found


def _area(style: int) -> dict[str, Any]:
    """An area on top of those before it, told apart by its hatching, too."""
    line = {"width": 0.5, "color": f"--s{style}"}
    return {
        "stackgroup": "phases",
        "line": line,
        "fillpattern": {"shape": ("/", "x", "")[style], "size": 8, "solidity": 0.25},
    }


def _held_best(
    one: dict[str, list[Any]], place: int, label: str, kind: str, time: str, layout: dict[str, Any]
) -> Chart:
    none = [None] * len(one["t_s"])
    n, mode = one.get("policy_n", none), one.get("policy_mode", none)
    series = [
        Series("k*: free slots that start a prefill phase", one["t_s"], one["policy_k"], 0),
        Series("N*: slots in use at most", one["t_s"], n, 1),
    ]
    if any(value is not None for value in mode):
        extra = {"line": {"color": "--s3", "width": 2, "dash": "dot", "shape": "hv"}}
        series.append(Series("mode (right)", one["t_s"], mode, 3, axis="y2", extra=extra))
        right = {"overlaying": "y", "side": "right", "type": "category", "title": {"text": "mode"}}
        layout = {**layout, "yaxis2": right, "margin": {"l": 64, "r": 72, "t": 24, "b": 56}}
    rows = tuple(zip(one["t_s"], one["policy_k"], n, mode, strict=True))
    title = f"{label}: what the policy held to be best"
    return Chart(
        f"best-{place}",
        title,
        time,
        "requests",
        tuple(series),
        ("seconds", "k*", "N*", "mode"),
        rows,
        kind,
        layout=layout,
    )


def marked(arm: Arm) -> dict[str, Any]:
    """A line and a name where each phase of the traffic begins, as layout of a chart."""
    shapes = []
    names = []
    for one in arm.first.detail["marks"]:
        line = {"color": "--text", "width": 1, "dash": "dash"}
        shapes.append(
            {"type": "line", "x0": one["t_s"], "x1": one["t_s"], "yref": "paper", "y0": 0, "y1": 1, "line": line}
        )
        names.append(
            {
                "x": one["t_s"],
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "xanchor": "left",
                "text": one["name"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
                "showarrow": False,
                "font": {"size": 12, "color": "--text"},
            }
        )
    return {"shapes": shapes, "annotations": names, "margin": {"l": 64, "r": 16, "t": 24, "b": 56}}
