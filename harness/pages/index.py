"""The first page: every board with its arms, filters over all of them, and what they come to."""

from __future__ import annotations

from harness.pages.facets import facets, filters, pages_of, reported_columns, source_of
from harness.pages.glance import glance
from harness.pages.pareto import pareto_chart
from harness.pages.render import Writer
from harness.pages.reported import published
from harness.pages.site import Site
from harness.published.corpus import Entry


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
        published=published(site.boards),
        pages={board.id: pages_of(board) for board in site.boards},
        reported_columns=reported_columns,
        source_of=source_of,
        site=site,
        pareto=pareto,
    )
    writer.page("problems.html", "problems.html.j2", site=site, superseded=superseded(site))


def superseded(site: Site) -> list[tuple[Entry, Entry]]:
    """Runs that stand in no table, each with the earlier one of the same spec that does."""
    counted = {e.run.manifest["digest"]: e for board in site.boards for arm in board.arms for e in arm.entries}
    known = [(entry, counted.get(entry.run.manifest["digest"])) for entry in site.corpus.entries]
    return [(entry, first) for entry, first in known if first is not None and first.id != entry.id]
