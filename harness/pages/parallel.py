"""What many boards need, computed by several processes before the pages are written; each leaves it in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.core.machine import cores
from harness.pages import compare
from harness.pages.boards import REMEMBERED, board_of, group_by_board
from harness.published.cache import JsonCache
from harness.published.corpus import PublishedRun
from harness.report.reader import RunReader

# Fewer runs than these are done before another process has started.
WORTHWHILE = 60

# What another process needs to know of a published run: id, where, path, digest.
_RunToLoad = tuple[str, str, Path, str]


def compute(runs: Sequence[PublishedRun], cache: JsonCache, jobs: int | None = None) -> None:
    """Puts into the cache the details and comparisons of all runs that have none there yet.

    `jobs` processes, as many as cores unless told. What is wrong with a run is not said here: who looks at it will
    find out.
    """
    groups = [
        group for group in group_by_board(runs) if not all(cache.look_up(published.digest)[0] for published in group)
    ]
    jobs = min(jobs or cores(), max(1, sum(map(len, groups)) // WORTHWHILE))
    if jobs == 1 or cache.write_error:
        for group in groups:
            _compute_board(group, cache)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    # The largest first, so that none is left to one process at the end.
    groups.sort(key=len, reverse=True)
    tasks = [
        [(published.id, published.where, published.run.path, published.digest) for published in group]
        for group in groups
    ]
    # Not forked: pyarrow has threads.
    try:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            for _ in pool.map(_task, tasks, [cache.parent] * len(tasks), [cache.code] * len(tasks), chunksize=4):
                pass
    except BrokenProcessPool:
        # A file has ended a process, which cannot say its name; this one reads on apart and can.
        for group in groups:
            _compute_board(group, cache)


def _task(runs: list[_RunToLoad], parent: Path, code: str) -> None:
    from harness.runs.run import load_run

    cache = JsonCache(parent, code)
    _compute_board(
        [PublishedRun(name, where, load_run(path), digest, cache) for name, where, path, digest in runs], cache
    )


def _compute_board(runs: list[PublishedRun], cache: JsonCache) -> None:
    """Leaves what a board's pages need in the cache."""
    sound = [published for published in runs if _is_sound(published)]
    if sound:
        reader = RunReader(REMEMBERED)
        compare.board_document(cache, board_of(sound, cache, reader), reader)


def _is_sound(published: PublishedRun) -> bool:
    try:
        return published.difference is None
    except Exception:
        # Whatever a run's files bring about: it is told where the run is looked at.
        return False
