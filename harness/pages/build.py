"""`bench site build`: from run directories to a static site that opens from file://."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.pages import compare, crossover, drift, frontier, index, latency, reading, runs
from harness.pages.assets import plotly_script, site_directory
from harness.pages.boards import boards
from harness.pages.corpus import collect
from harness.pages.keep import Keep
from harness.pages.render import Writer
from harness.pages.site import Site

MARK = ".bench-site"


# Each page's module writes its files; they know the site and nothing of each other.
PAGES: tuple[Callable[[Site, Writer], None], ...] = (
    index.write,
    latency.write,
    frontier.write,
    crossover.write,
    drift.write,
    compare.write,
    runs.write,
    reading.write,
)


@dataclass(frozen=True, slots=True)
class Built:
    """What a build did."""

    runs: int
    problems: int
    written: int


def build(results: Path, out: Path, cache: Path | None = None) -> Built:
    """Builds the site of the runs under `results` into `out`; what did not change is not written again.

    Two builds of the same runs are the same bytes. UserError where `out` holds something that is no site of ours,
    or lies in `results`.
    """
    _usable(results, out)
    keep = Keep(cache or out.with_name(f"{out.name}.cache"))
    corpus = collect(results, keep)
    site = Site(results, corpus, tuple(boards(corpus, keep)), keep)
    writer = Writer(out)
    writer.file(MARK, b"made by `bench site build`\n")
    for path in sorted((site_directory() / "assets").iterdir()):
        writer.file(f"assets/{path.name}", path.read_bytes())
    writer.file("assets/plotly.min.js", plotly_script())
    for write in PAGES:
        write(site, writer)
    writer.sweep()
    keep.sweep()
    return Built(len(corpus.entries), len(corpus.problems), writer.written)


def _usable(results: Path, out: Path) -> None:
    if results.resolve() in (out.resolve(), *out.resolve().parents):
        raise UserError(f"--out {out}: lies in the results directory: give another")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: not a directory")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).exists():
        raise UserError(f"--out {out}: holds files that are no site of ours: give an empty or new directory")
