"""The first page: every board with its arms, filters over all of them, and what they come to."""

from __future__ import annotations

from harness.pages.facets import facets_of, filters_of, pages_of, reported_columns, source_of
from harness.pages.glance import glance
from harness.pages.pareto import pareto_chart
from harness.pages.render import Writer
from harness.pages.reported import reported_changes
from harness.pages.site import Site
from harness.published.corpus import PublishedRun


def write(site: Site, writer: Writer) -> None:
    """index.html, pareto.html and problems.html."""
    pareto = pareto_chart(site.boards)
    # With the chart script, not before: the first page is to be there at once.
    writer.file("pareto.js", f"window.benchCharts.pareto = {pareto.data};\n".encode())
    writer.page("pareto.html", "pareto.html.j2", pareto=pareto)
    writer.page(
        "index.html",
        "index.html.j2",
        boards=[(board, facets_of(board)) for board in site.boards],
        filters=filters_of(site.boards),
        glance=glance(site.boards),
        reported_changes=reported_changes(site.boards),
        pages={board.id: pages_of(board) for board in site.boards},
        reported_columns=reported_columns,
        source_of=source_of,
        pareto=pareto,
    )
    problems = site.corpus.problems
    writer.page("problems.html", "problems.html.j2", problems=problems, superseded=superseded(site))


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
