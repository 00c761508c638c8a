"""`bench site build`: from run directories to a static site that opens from file://."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError
from harness.pages import compare, data, front, own, policies, redirects, runs, texts
from harness.pages.assets import code_digest, site_directory
from harness.pages.boards import boards_of
from harness.pages.parallel import Workers
from harness.pages.render import Writer
from harness.pages.site import Site
from harness.published.cache import JsonCache
from harness.published.corpus import PublishedRun, collect_corpus
from harness.report.arms import arms_of
from harness.runs.thin import has_figures, is_thin

MARK = ".bench-site"
MARKED = b"made by `bench site build`\n"


# Each page's module writes its files; they know the site and nothing of each other.
PAGES: tuple[Callable[[Site, Writer], None], ...] = (
    front.write,
    compare.write,
    policies.write,
    data.write,
    runs.write,
    texts.write,
    redirects.write,
)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """How many runs a build has pages of, how many directories it left out, and how many files it wrote."""

    runs: int
    problems: int
    written: int
    cache_error: str | None  # why the cache could not be written, if so


def build(
    results: Path, out: Path, cache: Path | None = None, make_tables: Callable[[list[Path]], object] | None = None
) -> BuildResult:
    """Builds the site of the runs under `results` into `out`; what did not change is not written again.

    `make_tables` makes those of the runs that keep none and cannot be shown without them.
    Two builds of the same runs are the same bytes. UserError where `out` holds something that is no site of ours,
    or lies in `results`.
    """
    cache = cache or out.resolve().with_name(f"{out.resolve().name}.cache")
    _make_usable(results, out, cache)
    with _alone(out):
        return _build(results, out, JsonCache(cache, code_digest()), make_tables)


def _wanting_tables(runs: Sequence[PublishedRun]) -> list[Path]:
    """The runs without tables that a build cannot do without: those without figures, and arms of one run.

    What one pair of runs shows lies in their requests; over repeats their figures are enough.
    """
    thin = [published.run for published in runs if is_thin(published.run.path)]
    alone = {arm[0].path for arm in arms_of(thin) if len(arm) == 1}
    return [run.path for run in thin if run.path in alone or not has_figures(run.path)]


def _build(
    results: Path, out: Path, cache: JsonCache, make_tables: Callable[[list[Path]], object] | None
) -> BuildResult:
    def prepare(runs: Sequence[PublishedRun]) -> list[Path]:
        wanting = _wanting_tables(runs) if make_tables else []
        if make_tables and wanting:
            make_tables(wanting)
        return wanting

    with Workers(cache) as workers:
        corpus = collect_corpus(results, cache, workers.compute, prepare)
        site = Site(corpus, tuple(boards_of(corpus, cache)), cache)
        writer = Writer(out, cache)
        writer.env.globals["about"] = data.about(site)
        finish = workers.write(own.owns_of(site), writer)
        writer.file(MARK, MARKED)
        for path in sorted((site_directory() / "assets").iterdir()):
            writer.file(f"assets/{path.name}", path.read_bytes())
        for write in PAGES:
            write(site, writer)
        finish()
    writer.sweep()
    cache.sweep()
    return BuildResult(len(corpus.runs), len(corpus.problems), writer.written, cache.write_error)


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Holds the site's mark: of two builds into one directory each would take away what the other wrote."""
    with (out / MARK).open("rb") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"--out {out}: another build writes there: wait for it, or give another") from None
        yield


def _make_usable(results: Path, out: Path, cache: Path) -> None:
    """Makes `out` a directory with the site's mark; UserError where it may not be, or lies in another's place."""
    places = {"--results": results.resolve(), "--out": out.resolve(), "--cache": cache.resolve()}
    for (option, place), (other, other_place) in itertools.permutations(places.items(), 2):
        if other_place in (place, *place.parents):
            raise UserError(f"{option} {place}: lies in {other} {other_place}: give another {option}")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: not a directory: give another")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).exists():
        raise UserError(f"--out {out}: holds files that are no site of ours: give an empty or new directory")
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Before anything else is written: a build that is killed can be built again.
        if not (out / MARK).is_file() or (out / MARK).read_bytes() != MARKED:
            (out / MARK).write_bytes(MARKED)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written ({error.strerror}): give another") from None
