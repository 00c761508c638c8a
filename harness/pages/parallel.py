"""What boards need that takes long, by several processes: each leaves it in the cache, or where the site goes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.machine import cores
from harness.pages import compare, own
from harness.pages.boards import REMEMBERED, board_of, group_by_board
from harness.pages.render import Writer
from harness.published.cache import JsonCache
from harness.published.corpus import PublishedRun
from harness.published.figures import examine
from harness.published.tables import RunTables
from harness.report.reader import RunReader
from harness.runs.thin import has_figures

if TYPE_CHECKING:
    from concurrent.futures import Executor

# Fewer runs than these are done before another process has started.
WORTHWHILE = 60


class Workers:
    """Processes that start once there is enough to do, as many as cores unless told; else this one does all."""

    def __init__(self, cache: JsonCache, jobs: int | None = None) -> None:
        self._cache = cache
        self._jobs = jobs or cores()
        self._started = contextlib.ExitStack()
        self._pool: Executor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def compute(self, runs: Sequence[PublishedRun]) -> None:
        """Puts into the cache the details and comparisons of all runs that have none there yet.

        What is wrong with a run is not said here: who looks at it will find out.
        """
        groups = [
            group
            for group in group_by_board(runs)
            if not all(self._cache.look_up(published.digest)[0] for published in group)
        ]
        # The largest first, so that none is left to one process at the end.
        groups.sort(key=len, reverse=True)
        loads = [[(one.id, one.where, one.run.path, one.digest) for one in group] for group in groups]
        begun = self._begin(_compute, [(load, self._cache) for load in loads], sum(map(len, groups)))
        if begun is None or not _done(begun):
            for group in groups:
                _compute_board(group, self._cache)

    def write(self, owns: Sequence[own.Own], writer: Writer) -> Callable[[], None]:
        """Begins to write what each board has to itself; what it gives waits for the end of that."""
        stale = []
        for one in owns:
            if own.is_current(one, writer):
                own.write(one, writer)
            else:
                stale.append(one)
        stale.sort(key=lambda one: len(one.runs), reverse=True)
        about = writer.env.globals["about"]
        tasks = [(one, writer.out, self._cache, about) for one in stale]
        begun = self._begin(_write, tasks, sum(len(one.runs) for one in stale))

        def finish() -> None:
            if begun is None or not _done(begun, lambda told: writer.take_over(*told)):
                for one in stale:
                    own.write(one, writer)

        return finish

    def _begin(self, task: Callable[[Any], Any], tasks: Sequence[Any], runs: int) -> Iterator[Any] | None:
        """Has processes do the tasks, which are of so many runs; None where this one is to do them."""
        if self._jobs == 1 or self._cache.write_error or not tasks:
            return None
        if self._pool is None:
            jobs = min(self._jobs, runs // WORTHWHILE)
            if jobs < 2:
                return None
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            # Not forked: pyarrow has threads.
            self._pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
            self._started.callback(self._pool.shutdown, cancel_futures=True)
        return self._pool.map(task, tasks, chunksize=2)


def _done(begun: Iterator[Any], take: Callable[[Any], object] = bool) -> bool:
    """Takes what each task gives; False where a process was ended by a file, of which this one will find out."""
    from concurrent.futures.process import BrokenProcessPool

    try:
        for told in begun:
            take(told)
    except BrokenProcessPool:
        return False
    return True


def _compute(task: tuple[Sequence[tuple[str, str, Path, str]], JsonCache]) -> None:
    """In another process: reads the runs (id, where, path, digest) of a board again."""
    from harness.runs.run import load_run

    loads, cache = task
    _compute_board(
        [PublishedRun(name, where, load_run(path), digest, cache) for name, where, path, digest in loads], cache
    )


def _write(task: tuple[own.Own, Path, JsonCache, dict[str, str]]) -> tuple[set[str], int, set[str]]:
    """In another process: what was written, how much of it was new, and the keys of the cache that were asked for."""
    one, out, cache, about = task
    writer = Writer(out, cache)
    writer.env.globals["about"] = about
    own.write(one, writer)
    return writer.names, writer.written, cache.take_used()


def _compute_board(runs: list[PublishedRun], cache: JsonCache) -> None:
    """Leaves what a board's pages need in the cache."""
    reader = RunReader(REMEMBERED)
    sound = [published for published in runs if _is_sound(published, reader)]
    if sound:
        compare.board_document(cache, board_of(sound, cache, reader), reader)


def _is_sound(published: PublishedRun, reader: RunReader) -> bool:
    """Whether a run is as its tables say; those are read once, for this and for its comparisons."""
    try:
        has_tables = published.run.kind != "reported" and not has_figures(published.run.path)
        if has_tables and not published.cache.look_up(published.digest)[0]:
            tables = RunTables.of(published.run)
            reader.keep(published.run, tables.requests, tables.measured)
            published.cache.put(published.digest, examine(published.run, tables))
        return published.difference is None
    except Exception:
        # Whatever a run's files bring about: it is told where the run is looked at.
        return False
