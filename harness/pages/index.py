"""The first page: every board with its arms, filters over all of them, and what they come to."""

from __future__ import annotations

from harness.pages.boards import Board
from harness.pages.facets import facets, filters, pages_of, source_of
from harness.pages.glance import glance
from harness.pages.pareto import pareto_chart
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
    """index.html, pareto.html and problems.html."""
    pareto = pareto_chart(site.boards)
    # With the chart script, not before: the first page is to be there at once.
    writer.file("pareto.js", f"window.benchCharts.pareto = {pareto.data};\n".encode())
    writer.page("pareto.html", "pareto.html.j2", pareto=pareto)
    writer.page(
        "index.html",
        "index.html.j2",
        boards=[(board, facets(board)) for board in site.boards],
        filters=filters(list(site.boards)),
        glance=glance(site.boards),
        pages={board.id: pages_of(board) for board in site.boards},
        reported_columns=reported_columns,
        source_of=source_of,
        site=site,
        pareto=pareto,
    )
    writer.page("problems.html", "problems.html.j2", site=site)
