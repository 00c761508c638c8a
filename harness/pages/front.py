"""The first page: a grid of answers, GPU by traffic, under a load; and behind it a page a GPU and one with all."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.pages.answers import GAIN, KEEP, NOTHING, Answer, answer_of, ranks_of, twins_of
from harness.pages.boards import Board
from harness.pages.charts import script_json
from harness.pages.facets import drawn_arms, facets_of, filters_of, reported_columns, source_of
from harness.pages.pareto import pareto_chart
from harness.pages.render import Writer
from harness.pages.reported import ReportedChange, reported_changes
from harness.pages.site import Site
from harness.pages.tradeoff import rate_of
from harness.pages.traffic import LOADS, TRAFFIC, Traffic, gpu_label, load_of, traffic_of
from harness.published.corpus import PublishedRun
from harness.runs.run import gpu_name, slug

# GPUs of the grid at most; the others have their pages.
MOST_GPUS = 8
NEWEST = 5
# What a column has no room for.
_VARIANT = re.compile(r" (?:\d+GB|SXM|PCIe|NVL\d*|Blackwell)\b")


@dataclass(frozen=True, slots=True)
class CellAnswer:
    """A board in a cell of the grid; `published` is what somebody measured of a policy, the answer's where there is."""

    answer: Answer
    published: tuple[str, ReportedChange] | None


@dataclass(frozen=True, slots=True)
class Grid:
    """The answers of one load: rows of traffic, each with the answers by GPU, the most trusted first."""

    load: str
    rows: tuple[tuple[Traffic, dict[str, list[CellAnswer]]], ...]

    @property
    def count(self) -> int:
        """How many cells have an answer."""
        return sum(len(cells) for _, cells in self.rows)


def write(site: Site, writer: Writer) -> None:
    """index.html, gpus/GPU.html, all.html and problems.html."""
    published = reported_changes(site.boards)
    gpus = _gpus(site.boards)
    # What ran on a CPU only says nothing of a GPU: it has its page, and cells where there is nothing else.
    real = [board for board in site.boards if not board.is_toy and board.kind != "reported"] or site.boards
    ran = [board for board in site.boards if board.kind != "reported"]
    columns = _columns([board for board in real if board.kind != "reported"])
    grids = grids_of(real, published)
    usual = max(grids, key=lambda grid: grid.count, default=None)
    models = Counter(board.spec.model for board in site.boards if board.kind != "reported")
    writer.page(
        "index.html",
        "index.html.j2",
        boards=site.boards,
        columns=columns,
        further=[gpu for gpu in _gpus(ran).items() if gpu[0] not in dict(columns)],
        gpus=gpus,
        grids=grids,
        usual=usual,
        loads=LOADS,
        models=[model for model, _ in sorted(models.items(), key=lambda one: (-one[1], one[0]))],
        kinds=list(dict.fromkeys(board.kind for board in site.boards if board.kind != "reported")),
        first=_first_chart(usual),
        arms=script_json(_points(grids)),
        newest=newest_boards(site.boards)[:NEWEST],
    )
    for name, label in gpus.items():
        boards = [board for board in site.boards if slug(gpu_name(board.spec.gpu)) == name]
        _write_gpu(writer, name, label, boards, published)
    writer.page(
        "all.html",
        "all.html.j2",
        boards=[(board, facets_of(board), ranks_of(board), twins_of(board)) for board in site.boards],
        filters=filters_of(site.boards),
    )
    writer.page("problems.html", "problems.html.j2", problems=site.corpus.problems, superseded=superseded(site))


def _gpus(boards: Sequence[Board]) -> dict[str, str]:
    """Every GPU's name in addresses, with its label, in the order of the boards."""
    found: dict[str, str] = {}
    for board in boards:
        found.setdefault(slug(gpu_name(board.spec.gpu)), gpu_label(board.spec.gpu))
    return found


def _columns(boards: Sequence[Board]) -> list[tuple[str, str]]:
    """The GPUs that the first page has room for, those of most boards first: what is asked most is seen first."""
    count = Counter(slug(gpu_name(board.spec.gpu)) for board in boards)
    gpus = sorted(_gpus(boards).items(), key=lambda gpu: -count[gpu[0]])[:MOST_GPUS]
    short = {name: _VARIANT.sub("", label) for name, label in gpus}
    # What tells two apart stays.
    once = Counter(short.values())
    return [(name, short[name] if once[short[name]] == 1 else label) for name, label in gpus]


def _write_gpu(
    writer: Writer, name: str, label: str, boards: Sequence[Board], published: dict[str, dict[str, ReportedChange]]
) -> None:
    chart = dataclasses.replace(pareto_chart(boards), title=f"Throughput of the {label} against the speed of a user")
    writer.page(
        f"gpus/{name}.html",
        "gpu.html.j2",
        label=label,
        boards=[(board, facets_of(board), ranks_of(board), twins_of(board), answer_of(board)) for board in boards],
        filters=filters_of(boards),
        published=published,
        reported_columns=reported_columns,
        source_of=source_of,
        pareto=chart if chart.rows else None,
    )


def grids_of(boards: Sequence[Board], published: dict[str, dict[str, ReportedChange]]) -> list[Grid]:
    """A grid a load that has boards, the lightest first; reported figures have none, since nobody knows their load."""
    cells: dict[str, dict[str, dict[str, list[CellAnswer]]]] = {}
    for board in boards:
        if board.kind == "reported":
            continue
        answer, load = answer_of(board), load_of(board)
        row = cells.setdefault(load, {}).setdefault(traffic_of(board.spec.workload).key, {})
        told = _published_of(answer, published.get(board.id, {}))
        row.setdefault(slug(gpu_name(board.spec.gpu)), []).append(CellAnswer(answer, told))
    for by_traffic in cells.values():
        for row in by_traffic.values():
            for answers in row.values():
                # What has an answer before what has none; else as boards stand, the most trusted first.
                answers.sort(key=lambda one: one.answer.tone == NOTHING)
    return [
        Grid(load, tuple((traffic, cells[load][key]) for key, traffic in TRAFFIC.items() if key in cells[load]))
        for load in LOADS
        if load in cells
    ]


def _published_of(answer: Answer, published: dict[str, ReportedChange]) -> tuple[str, ReportedChange] | None:
    """What was published of the answer's policy; where the baseline is kept, of the one with the largest gain."""
    for arm in answer.arms:
        if arm.policy in published:
            return arm.policy, published[arm.policy]
    return max(published.items(), key=lambda one: one[1].ratio, default=None) if answer.tone == KEEP else None


def _points(grids: Sequence[Grid]) -> dict[str, Any]:
    """By board what the chart beside the grid shows: title, axis, and each arm's TTFT and rate."""
    found = {}
    for grid in grids:
        for _, row in grid.rows:
            for answers in row.values():
                for one in answers:
                    found[one.answer.board.id] = _board_points(one.answer.board)
    return found


def _board_points(board: Board) -> dict[str, Any]:
    (rate, axis), ttft = rate_of(board), board.row("ttft_s")
    arms = [arm for arm in drawn_arms(board) if {rate, ttft} <= arm.values.keys()]
    return {
        "title": f"{traffic_of(board.spec.workload).label} on {gpu_label(board.spec.gpu)}",
        "axis": axis,
        "arms": [[a.label, *(float(f"{a.values[name].mean:.4g}") for name in (ttft, rate))] for a in arms],
    }


def _first_chart(grid: Grid | None) -> Answer | None:
    """The answer that the chart shows until somebody points at another: the first with a gain, else the first."""
    answers = [cell[0].answer for _, row in grid.rows for cell in row.values()] if grid else []
    return next((answer for answer in answers if answer.tone == GAIN), answers[0] if answers else None)


def newest_boards(boards: Sequence[Board]) -> list[tuple[str, Board]]:
    """Boards with runs of ours by when their newest run began, the newest first."""
    started = [(board.newest, board) for board in boards if board.kind != "reported"]
    return sorted(started, key=lambda one: (one[0], one[1].id), reverse=True)


def superseded(site: Site) -> list[tuple[PublishedRun, PublishedRun]]:
    """Runs that stand in no table, each with the earlier one of the same spec that does."""
    on_boards = {
        published.run.manifest["digest"]: published
        for board in site.boards
        for arm in board.arms
        for published in arm.runs
    }
    pairs = [(published, on_boards.get(published.run.manifest["digest"])) for published in site.corpus.runs]
    return [(published, first) for published, first in pairs if first is not None and first.id != published.id]
