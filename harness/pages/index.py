"""The first page: every board with its arms, filters over all of them, and throughput against speed."""

from __future__ import annotations

from typing import Any

from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import facets, filters, pages_of, ranked, source_of
from harness.pages.render import Writer
from harness.pages.site import Site

# What reported figures are shown of, where a board has them.
REPORTED = {
    "request_throughput": "Requests/s",
    "output_throughput": "Output tok/s",
    "total_throughput": "Total tok/s",
    "ttft_s": "TTFT mean",
    "tpot_s": "TPOT mean",
    "tpot_s.p99": "TPOT p99",
    "itl_s": "ITL mean",
    "profit_tokenstep": "Profit, token-step",
    "gap_mean": "Gap mean, tokens",
}


def reported_columns(board: Board) -> dict[str, str]:
    """The columns of a board of reported figures: name and label of what at least one of its arms has."""
    return {name: label for name, label in REPORTED.items() if any(name in arm.values for arm in board.arms)}


def write(site: Site, writer: Writer) -> None:
    """index.html and problems.html."""
    writer.page(
        "index.html",
        "index.html.j2",
        boards=[(board, facets(board)) for board in site.boards],
        filters=filters(list(site.boards)),
        pages={board.id: pages_of(board) for board in site.boards},
        reported_columns=reported_columns,
        source_of=source_of,
        site=site,
        pareto=_pareto(site),
    )
    writer.page("problems.html", "problems.html.j2", site=site)


def _pareto(site: Site) -> Chart:
    """Output tokens a second of one GPU against 1/TPOT, a point an arm; INVALID and reported ones are not drawn."""
    points: dict[str, list[tuple[Board, Arm]]] = {}
    for board in site.boards:
        for arm in ranked(board):
            if {"output_throughput", "tpot_s"} <= arm.values.keys():
                points.setdefault(arm.policy.partition(":")[0], []).append((board, arm))
    series = []
    rows: list[tuple[Any, ...]] = []
    for style, (policy, some) in enumerate(sorted(points.items())):
        x = [1 / arm.values["tpot_s"].mean for _, arm in some]
        y = [arm.values["output_throughput"].mean for _, arm in some]
        text = [f"{arm.policy} · {b.first.run.spec.gpu} · {b.first.run.spec.workload} · {b.kind}" for b, arm in some]
        series.append(Series(policy, x, y, style, "markers", text))
        rows += [(*label.split(" · "), a, b) for label, a, b in zip(text, x, y, strict=True)]
    return Chart(
        "pareto",
        "Throughput of a GPU against the speed that each user sees",
        "1 / TPOT mean (output tokens per second of one request)",
        "Output tokens per second of the GPU",
        tuple(series),
        ("policy", "GPU", "workload", "kind", "1/TPOT", "output tok/s"),
        tuple(rows),
        x_log=True,
        y_log=True,
    )
