"""A grid's runs on their way to a store: each is there once, and what could not go goes later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from harness.published.store import fetch
from harness.runs.run import find_runs
from harness.session.grid_store import GridStore
from tests.support.runfactory import write_toy

URL = "memory://grid"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of this test's own, and an empty store."""
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "one"))
    fsspec.filesystem("memory").store.clear()
    yield
    fsspec.filesystem("memory").store.clear()


def test_what_one_machine_ran_another_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = GridStore(URL)
    here.begin()
    run = write_toy(here.folder, policy="v1", n=60)
    here.send(run)
    assert here.end() is None
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "other"))
    there = GridStore(URL)
    there.begin()
    assert [one.relative_to(there.folder) for one in find_runs(there.folder)] == [run.relative_to(here.folder)]
    # Sent twice it is there once, and said nowhere.
    there.send(there.folder / run.relative_to(here.folder))
    assert there.end() is None
    assert len(find_runs(fetch(URL))) == 1


def test_what_was_not_sent_goes_with_the_next_command() -> None:
    stopped = GridStore(URL)
    left = write_toy(stopped.folder, policy="v1", n=60)
    write_toy(stopped.folder, policy="v0", n=60).rename(stopped.folder / "cut.partial")
    GridStore(URL).begin(running=False)
    assert not fsspec.filesystem("memory").find("/grid")
    GridStore(URL).begin()
    assert [run.name for run in find_runs(fetch(URL))] == [left.name]


def test_what_cannot_be_sent_is_told_and_stops_no_other() -> None:
    store = GridStore(URL)
    store.begin()
    broken, whole = (write_toy(store.folder, policy=policy, n=60) for policy in ("v1", "v0"))
    (broken / "steps.parquet").unlink()
    store.send(broken)
    store.send(whole)
    told = store.end()
    assert told is not None
    assert told.startswith("1 run is not in the store yet, the same command sends what is left: ")
    assert "steps.parquet: not there" in told
    assert [run.name for run in find_runs(fetch(URL))] == [whole.name]
