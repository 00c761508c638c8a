"""What many boards need, computed by several processes before the pages are written; each leaves it in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.core.machine import cores
from harness.pages import compare
from harness.pages.boards import REMEMBERED, board_of, grouped
from harness.published.cache import Keep
from harness.published.corpus import Entry
from harness.report.comparison import Reading

# Fewer runs than these are done before another process has started.
WORTHWHILE = 60


def compute(entries: Sequence[Entry], keep: Keep, jobs: int | None = None) -> None:
    """Keeps the details and comparisons of all runs that have none yet; `jobs` processes, as many as cores unless told.

    What is wrong with a run is not said here: who looks at it will find out.
    """
    groups = [group for group in grouped(entries) if not all(keep.known(entry.digest)[0] for entry in group)]
    wanted = sum(map(len, groups))
    jobs = min(jobs or cores(), max(1, wanted // WORTHWHILE))
    if jobs == 1 or keep.why_not:
        for group in groups:
            _board(group, keep)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # The largest first, so that none is left to one process at the end.
    groups.sort(key=len, reverse=True)
    tasks = [[(entry.id, entry.where, entry.run.path, entry.digest) for entry in group] for group in groups]
    # Not forked: pyarrow has threads.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for _ in pool.map(_task, tasks, [keep.parent] * len(tasks), [keep.code] * len(tasks), chunksize=4):
            pass


def _task(told: list[tuple[str, str, Path, str]], parent: Path, code: str) -> None:
    from harness.runs.run import load_run

    keep = Keep(parent, code)
    _board([Entry(name, where, load_run(path), digest, keep) for name, where, path, digest in told], keep)


def _board(entries: list[Entry], keep: Keep) -> None:
    sound = [entry for entry in entries if _is_sound(entry)]
    if sound:
        reading = Reading(REMEMBERED)
        compare.of_board(keep, board_of(sound, keep, reading), reading)


def _is_sound(entry: Entry) -> bool:
    try:
        return entry.differs is None
    except Exception:
        # Whatever a run's files bring about: it is told where the run is looked at.
        return False
