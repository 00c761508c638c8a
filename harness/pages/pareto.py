"""Throughput of a GPU against the speed that each user sees, with the arms that no other beats in both."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import ranked_arms
from harness.pages.numbers import load_words
from harness.runs.run import gpu_name
from harness.runs.schema import KINDS

# A number that nobody measured has an open mark.
FILLED = "measured"


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """An arm: output tokens a second of one request (1/TPOT) and of the GPU; `front` where no other beats it in both.

    Others are those of the same kind, GPU, model and workload, under whatever load and settings.
    """

    board: Board
    arm: Arm
    speed: float
    throughput: float
    front: bool = False

    @property
    def rivals(self) -> tuple[str, ...]:
        """What arms share that a front may join."""
        spec = self.board.spec
        return (self.board.kind_words, gpu_name(spec.gpu), spec.model, spec.workload)

    @property
    def policy_name(self) -> str:
        """The policy without its options."""
        return self.arm.policy.partition(":")[0]


def pareto_chart(boards: Sequence[Board]) -> Chart:
    """A point an arm, a line a front; INVALID and reported arms are not drawn."""
    groups: dict[tuple[str, ...], list[ParetoPoint]] = {}
    for board in boards:
        for arm in ranked_arms(board):
            rate, tpot = (arm.values.get(board.row(name)) for name in ("output_throughput", "tpot_s"))
            if rate is not None and tpot is not None and tpot.mean > 0:
                point = ParetoPoint(board, arm, 1 / tpot.mean, rate.mean)
                groups.setdefault(point.rivals, []).append(point)
    points = [point for group in groups.values() for point in with_front(group)]
    rows = tuple(
        (
            point.arm.label,
            gpu_name(point.board.spec.gpu),
            point.board.spec.workload,
            load_words(point.board.spec.arrival),
            point.board.kind_words,
            point.speed,
            point.throughput,
            "yes" if point.front else "no",
        )
        for point in points
    )
    return Chart(
        "pareto",
        "Throughput of a GPU against the speed that each user sees",
        "1 / TPOT mean (output tokens per second of one request)",
        "Output tokens per second of the GPU",
        (*_clouds(points), *_fronts(points)),
        ("policy", "GPU", "workload", "load", "kind", "1/TPOT", "output tok/s", "on the front"),
        rows,
        note="An arm a point, open where nothing was measured; what was only reported is not drawn. A line joins the "
        "arms of one kind, GPU, model and workload, whatever the load, that no other of these beats in both. The "
        "filters hold here, too.",
        x_log=True,
        y_log=True,
    )


def with_front(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """The points of one group by falling speed, each with whether it is on the front."""
    marked: list[ParetoPoint] = []
    best = float("-inf")
    for point in sorted(points, key=lambda point: (-point.speed, -point.throughput, point.arm.first.id)):
        marked.append(dataclasses.replace(point, front=point.throughput > best))
        best = max(best, point.throughput)
    return marked


def _clouds(points: Sequence[ParetoPoint]) -> list[Series]:
    """A series a policy and kind of number."""
    clouds = []
    for style, policy in enumerate(sorted({point.policy_name for point in points})):
        for kind in KINDS:
            cloud = [point for point in points if point.policy_name == policy and point.board.kind == kind]
            if cloud:
                clouds.append(_cloud(f"{policy}, {kind}", style, kind, cloud))
    return clouds


def _cloud(name: str, style: int, kind: str, points: Sequence[ParetoPoint]) -> Series:
    text = [_words(point) for point in points]
    x, y = [point.speed for point in points], [point.throughput for point in points]
    boards = [point.board.id for point in points]
    return Series(name, x, y, style, "markers", text, boards=boards, hollow=kind != FILLED)


def _fronts(points: Sequence[ParetoPoint]) -> list[Series]:
    """One series of all fronts of more than one point, which stand group by group in `points`."""
    x: list[float | None] = []
    y: list[float | None] = []
    boards: list[str | None] = []
    last: tuple[str, ...] | None = None
    for point in points:
        if not point.front:
            continue
        if last not in (None, point.rivals):
            x, y, boards = [*x, None], [*y, None], [*boards, None]
        x, y, boards = [*x, point.speed], [*y, point.throughput], [*boards, point.board.id]
        last = point.rivals
    if not x:
        return []
    look = {"colour": "quiet", "width": 1.5, "dash": 0, "quiet": True}
    return [Series("front", x, y, 7, "lines", boards=boards, look=look)]


def _words(point: ParetoPoint) -> str:
    """What a point says when it is pointed at."""
    spec = point.board.spec
    return " · ".join(
        (point.arm.label, gpu_name(spec.gpu), spec.workload, load_words(spec.arrival), point.board.kind_words)
    )
