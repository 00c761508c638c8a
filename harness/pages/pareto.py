"""Throughput of a GPU against the speed that each user sees, with the arms that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.pages.boards import KINDS, Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import kind_words, ranked
from harness.pages.numbers import gpu_name, load_words

# A number that nobody measured has an open mark.
FILLED = "measured"


@dataclass(frozen=True, slots=True)
class Point:
    """An arm: output tokens a second of one request (1/TPOT) and of the GPU; `front` where no other beats it in both.

    Others are those of the same kind, GPU, model and workload, under whatever load and settings.
    """

    board: Board
    arm: Arm
    speed: float
    throughput: float
    front: bool = False


def pareto_chart(boards: Sequence[Board]) -> Chart:
    """A point an arm, a line a front; INVALID and reported arms are not drawn."""
    groups: dict[tuple[str, ...], list[Point]] = {}
    for board in boards:
        for arm in ranked(board):
            if {"output_throughput", "tpot_s"} <= arm.values.keys() and arm.values["tpot_s"].mean > 0:
                speed, throughput = 1 / arm.values["tpot_s"].mean, arm.values["output_throughput"].mean
                groups.setdefault(_group(board), []).append(Point(board, arm, speed, throughput))
    points = [one for some in groups.values() for one in with_front(some)]
    families = sorted({_family(one.arm) for one in points})
    series = []
    for style, family in enumerate(families):
        for kind in KINDS:
            some = [one for one in points if _family(one.arm) == family and one.board.kind == kind]
            if some:
                series.append(_cloud(f"{family}, {kind}", style, kind, some))
    series += _fronts(points)
    rows = tuple(
        (
            one.arm.first.run.spec.label,
            gpu_name(one.board.first.run.spec.gpu),
            one.board.first.run.spec.workload,
            load_words(one.board.first.run.spec.arrival),
            kind_words(one.board),
            one.speed,
            one.throughput,
            "yes" if one.front else "no",
        )
        for one in points
    )
    return Chart(
        "pareto",
        "Throughput of a GPU against the speed that each user sees",
        "1 / TPOT mean (output tokens per second of one request)",
        "Output tokens per second of the GPU",
        tuple(series),
        ("policy", "GPU", "workload", "load", "kind", "1/TPOT", "output tok/s", "on the front"),
        rows,
        note="An arm a point, open where nothing was measured; what was only reported is not drawn. A line joins the "
        "arms of one kind, GPU, model and workload, whatever the load, that no other of these beats in both. The "
        "filters hold here, too.",
        x_log=True,
        y_log=True,
    )


def with_front(points: Sequence[Point]) -> list[Point]:
    """The points of one group by falling speed, each with whether it is on the front."""
    found: list[Point] = []
    best = float("-inf")
    for one in sorted(points, key=lambda one: (-one.speed, -one.throughput, one.arm.first.id)):
        found.append(Point(one.board, one.arm, one.speed, one.throughput, one.throughput > best))
        best = max(best, one.throughput)
    return found


def _group(board: Board) -> tuple[str, ...]:
    """What arms share that a front may join."""
    spec = board.first.run.spec
    return (kind_words(board), gpu_name(spec.gpu), spec.model, spec.workload)


def _family(arm: Arm) -> str:
    return arm.policy.partition(":")[0]


def _cloud(name: str, style: int, kind: str, some: Sequence[Point]) -> Series:
    text = [_about(one) for one in some]
    x, y = [one.speed for one in some], [one.throughput for one in some]
    return Series(name, x, y, style, "markers", text, of=[one.board.id for one in some], hollow=kind != FILLED)


def _fronts(points: Sequence[Point]) -> list[Series]:
    """One series of all fronts of more than one point, which stand group by group in `points`."""
    x: list[float | None] = []
    y: list[float | None] = []
    of: list[str | None] = []
    last: tuple[str, ...] | None = None
    for one in points:
        if not one.front:
            continue
        here = _group(one.board)
        if last not in (None, here):
            x, y, of = [*x, None], [*y, None], [*of, None]
        x, y, of, last = [*x, one.speed], [*y, one.throughput], [*of, one.board.id], here
    if not x:
        return []
    extra = {"line": {"color": "--quiet", "width": 1.5}, "hoverinfo": "skip"}
    return [Series("front", x, y, 7, "lines", of=of, extra=extra)]


def _about(one: Point) -> str:
    spec = one.board.first.run.spec
    words = (one.arm.first.run.spec.label, gpu_name(spec.gpu), spec.workload, load_words(spec.arrival))
    return " · ".join((*words, kind_words(one.board)))
