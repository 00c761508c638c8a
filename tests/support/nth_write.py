"""Every write of something fails once, and everything after it: what is left then, and whether the next try is whole.

Run as `python -m tests.support.nth_write FOLDER` with failing_writes.c preloaded. Its only line is JSON: for each of
what is written how many writes it takes, and how many tries ended in an error.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.core.errors import USER_ERRORS, RunFailed
from harness.core.records import REQUESTS, STEPS
from harness.pages.build import build
from harness.published.cache import JsonCache
from harness.published.publish import publish
from harness.runs.run import find_runs, load_run
from harness.runs.writer import RunWriter, recover
from tests.support.runfactory import SPEC, batch_of, toy_run, write_toy

LIBRARY = ctypes.CDLL(None)
ALWAYS = 1 << 40
# So many places of a long row of writes are tried, spread evenly.
MOST = int(os.environ.get("BENCH_FAILED_WRITES", "5"))
told: list[str] = []


@contextmanager
def refusing(first: int, last: int = ALWAYS) -> Iterator[None]:
    """The writes from `first` to before `last` are refused."""
    LIBRARY.fail_writes(ctypes.c_long(first), ctypes.c_long(last))
    try:
        yield
    finally:
        LIBRARY.fail_writes(ctypes.c_long(-1), ctypes.c_long(-1))


def writes_of(act: Callable[[Path], object], place: Path) -> int:
    """How many writes it takes."""
    LIBRARY.fail_writes(ctypes.c_long(-1), ctypes.c_long(-1))
    act(place)
    return int(LIBRARY.fail_writes(ctypes.c_long(-1), ctypes.c_long(-1)))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file's bytes by its path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def store(place: Path, added: list[int] | None = None) -> None:
    """A run of thirty requests in three batches; `added` is told what was taken."""
    requests, steps = toy_run(30)
    writer = RunWriter.create(place, SPEC, kind="simulated", provenance={})
    try:
        for at in range(0, 30, 10):
            writer.add_requests(batch_of(REQUESTS, requests[at : at + 10]))
            if added is not None:
                added.append(10)
        writer.add_steps(batch_of(STEPS, steps))
        writer.finish()
    finally:
        writer.close()


def after_store(place: Path, added: list[int]) -> None:
    """What was taken is there, in a run or in one that can be recovered."""
    runs = [path.parent for path in place.rglob("run.json")]
    if not runs:
        assert not added, added
        return
    (found,) = runs
    run = load_run(recover(found)[0] if found.suffix == ".partial" else found)
    assert run.requests().num_rows >= sum(added)


def try_store(place: Path) -> int:
    count = writes_of(store, place / "whole")
    for nth, last in each(count):
        here, added = place / f"{nth}", list[int]()
        with refusing(nth, last), suppressed():
            store(here, added)
        after_store(here, added)
        shutil.rmtree(here, ignore_errors=True)
    return count


def try_publish(place: Path) -> int:
    run = write_toy(place / "runs", n=30)
    count = writes_of(lambda results: publish(run, results), place / "whole")
    for nth, last in each(count):
        results = place / f"{nth}"
        with refusing(nth, last), suppressed():
            publish(run, results)
        # A run stands there whole or not at all, and nothing stands in the way of the next try.
        assert not list(results.rglob("*.publishing")), nth
        for there in find_runs(results) if results.exists() else ():
            assert contents(there) == contents(find_runs(place / "whole")[0]), nth
        with suppressed():
            publish(run, results)
        (there,) = find_runs(results)
        assert contents(there) == contents(find_runs(place / "whole")[0])
    return count


def try_cache(place: Path) -> int:
    value = {"a": [1, 2.5], "b": "x" * 100}
    count = writes_of(lambda root: JsonCache(root, "c").put("ab12", value), place / "whole")
    for nth, last in each(count):
        cache = JsonCache(place / f"{nth}", "c")
        with refusing(nth, last):
            assert cache.get_or_make("ab12", lambda: value) == value
            assert cache.look_up("ab12") == (True, value)
        assert cache.write_error
        # Who comes next finds it whole or not at all.
        assert JsonCache(place / f"{nth}", "c").get_or_make("ab12", lambda: value) == value
    return count


def try_site(place: Path) -> int:
    write_toy(place / "results", n=30)
    write_toy(place / "results", policy="eb", n=30)
    count = writes_of(lambda out: build(place / "results", out), place / "whole")
    for nth, last in each(count):
        out = place / f"{nth}"
        with refusing(nth, last), suppressed():
            build(place / "results", out)
        build(place / "results", out)
        assert contents(out) == contents(place / "whole"), nth
    return count


def each(count: int) -> Iterator[tuple[int, int]]:
    """Writes that fail, the first and the last that is refused: one alone, then it and all after it, in turn."""
    assert count, "nothing is written: the library is not preloaded"
    places = range(count) if count <= MOST else [round(i * (count - 1) / (MOST - 1)) for i in range(MOST)]
    for turn, nth in enumerate(places):
        yield nth, (nth + 1 if turn % 2 else ALWAYS)


@contextmanager
def suppressed() -> Iterator[None]:
    """It may fail with one line for the user and in no other way."""
    try:
        yield
    except (*USER_ERRORS, RunFailed) as error:
        told.append(str(error))
    assert not any(len(line.splitlines()) > 1 for line in told), told[-1]


def main() -> None:
    """Try all of it below a folder."""
    tried = {}
    for act in (try_store, try_publish, try_cache, try_site):
        told.clear()
        place = Path(sys.argv[1]) / act.__name__
        place.mkdir()
        tried[act.__name__] = (act(place), len(told))
    print(json.dumps(tried))


if __name__ == "__main__":
    main()
