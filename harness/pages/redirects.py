"""Addresses of before: each leads on to where its content lies now, with what its query said."""

from __future__ import annotations

from harness.pages.render import Writer
from harness.pages.site import Site

# A page of before, and what shows its content now.
PAGES = {
    "latency.html": "all.html",
    "frontier.html": "all.html",
    "drift.html": "all.html",
    "pareto.html": "all.html",
    "crossover.html": "policies/eb.html#crossover",
}
# A directory with a page a board, and the section of the board's page that has its content.
OF_BOARDS = {"latency": "latency", "frontier": "profit", "drift": "thresholds"}


def write(_site: Site, writer: Writer) -> None:
    """A short page at each address of a page of before that was no board's."""
    for old, new in PAGES.items():
        target, _, fragment = new.partition("#")
        writer.page(old, "moved.html.j2", **moved(old, target, fragment))


def moved(old: str, target: str, fragment: str = "") -> dict[str, str]:
    """What the template at `old` is given, to lead on to `target`; both are paths under the site."""
    return {"target": "../" * old.count("/") + target, "fragment": fragment}
