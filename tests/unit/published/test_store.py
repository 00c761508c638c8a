"""Runs in a store: whole or not there, and what arrives is what was sent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from harness.core.errors import UserError
from harness.published.check import check
from harness.published.publish import AlreadyPublished
from harness.published.store import SUMS, fetch, folder_of, publish_to
from harness.runs.run import find_runs, load_run
from tests.support.runfactory import write_toy

URL = "memory://store/results"


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    """The store itself, empty; and a cache of this test's own."""
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


@pytest.fixture
def sent(tmp_path: Path) -> str:
    """The place of a run that was published to the store."""
    there, _ = publish_to(write_toy(tmp_path / "runs", policy="v1", n=60), URL)
    return there.removeprefix(f"{URL}/")


def test_a_run_comes_back_as_it_was_published(tmp_path: Path, sent: str) -> None:
    mirror = fetch(URL)
    (path,) = find_runs(mirror)
    assert path == mirror / sent
    run, before = load_run(path), load_run(next(iter(find_runs(tmp_path / "runs"))))
    assert run.requests().equals(before.requests())
    assert run.manifest["digest"] == before.manifest["digest"]
    assert check(mirror).problems == ()


def test_the_url_of_one_run_is_that_run(sent: str) -> None:
    for _ in range(2):
        (path,) = find_runs(fetch(f"{URL}/{sent}/"))
        assert load_run(path).requests().num_rows == 60
        assert path.parent.name == folder_of(f"{URL}/{sent}").name


def test_nothing_published_is_overwritten(tmp_path: Path, sent: str) -> None:
    (path,) = find_runs(tmp_path / "runs")
    with pytest.raises(AlreadyPublished, match=f"{URL}/{sent}: there already"):
        publish_to(path, URL)


def test_what_is_here_is_not_fetched_again(memory: fsspec.AbstractFileSystem, sent: str) -> None:
    path = fetch(URL) / sent
    before = (path / "requests.parquet").stat().st_ino
    # Bytes that are asked for again would not be those of the sums.
    memory.pipe_file(f"/store/results/{sent}/requests.parquet", b"other")
    assert (fetch(URL) / sent / "requests.parquet").stat().st_ino == before


@pytest.mark.parametrize("change", ["cut", "more", "edited", "away"])
def test_what_is_changed_here_is_fetched_again(sent: str, change: str) -> None:
    path = fetch(URL) / sent
    was = (path / "run.json").read_bytes()
    if change == "more":
        (path / "notes.txt").write_text("mine")
    elif change == "away":
        shutil.rmtree(path)
    else:
        (path / "run.json").write_bytes(was[:-9] if change == "cut" else was.replace(b"l40s", b"h200"))
    assert {file.name for file in (fetch(URL) / sent).iterdir()} >= {"run.json", "summary.json", "requests.parquet"}
    assert (path / "run.json").read_bytes() == was
    assert not (path / "notes.txt").exists()


def test_what_arrives_damaged_is_named(memory: fsspec.AbstractFileSystem, sent: str) -> None:
    file = f"/store/results/{sent}/summary.json"
    memory.pipe_file(file, memory.cat_file(file).replace(b"1", b"2", 1))
    with pytest.raises(UserError, match=r"summary.json: damaged .* publish it again"):
        fetch(URL)
    memory.rm_file(file)
    with pytest.raises(UserError, match=f"{URL}: cannot be reached or read"):
        fetch(URL)


def test_a_run_that_was_not_sent_to_its_end_is_none(
    memory: fsspec.AbstractFileSystem, tmp_path: Path, sent: str
) -> None:
    other, _ = publish_to(write_toy(tmp_path / "other", policy="v0", n=60), URL)
    memory.rm_file(other.replace("memory:/", "") + f"/{SUMS}")
    assert find_runs(fetch(URL)) == [fetch(URL) / sent]
    # Sent again it is whole.
    publish_to(next(iter(find_runs(tmp_path / "other"))), URL)
    assert len(find_runs(fetch(URL))) == 2
    memory.rm(f"/store/results/{sent}", recursive=True)
    assert len(find_runs(fetch(URL))) == 1
    memory.rm_file(other.replace("memory:/", "") + f"/{SUMS}")
    with pytest.raises(UserError, match="no whole run there"):
        fetch(URL)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("x", {"files": {"../../run.json": "0"}}),
        ("x", {"files": {"id_rsa": "0"}}),
        ("x", {"files": {"run.json": 3}}),
        ("x", []),
        ("..", {"files": {"run.json": "0"}}),
    ],
)
def test_sums_that_name_what_no_run_has_are_refused(
    memory: fsspec.AbstractFileSystem, sent: str, where: str, text: object
) -> None:
    memory.pipe_file(f"/store/results/{where}/{SUMS}", json.dumps(text).encode())
    with pytest.raises(UserError, match="names other files than a run's"):
        fetch(URL)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nothing://there", "no URL of a store"),
        ("memory://empty", "no whole run there .*: `bench publish RUN --results memory://empty` sends one"),
        ("ftp://127.0.0.1:1/x", "cannot be reached or read .ConnectionRefusedError"),
    ],
)
def test_a_url_that_cannot_be_had_is_a_line(url: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        fetch(url)


def test_a_secret_in_a_url_is_shown_nowhere() -> None:
    with pytest.raises(UserError) as told:
        fetch("ftp://me:hunter2@127.0.0.1:1/results")
    assert "hunter2" not in str(told.value)
