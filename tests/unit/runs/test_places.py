"""Directories of runs under any name and from anywhere, and places where no run can be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.records import REQUESTS
from harness.report.document import run_document
from harness.report.tables import list_lines
from harness.runs.run import find_runs, load_run, partial_of
from harness.runs.writer import RunWriter, recover
from tests.support.disk import file_size_limit
from tests.support.refusals import run_refusal
from tests.support.runfactory import SPEC, batch_of, toy_run, write_run


def test_here_and_above_are_directories_like_any_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path)
    assert recover(Path()) == (path, False)
    run = load_run(Path())
    assert run_document(run)["status"] == "complete"
    assert list_lines([run])
    assert find_runs(Path()) == [Path()]
    (path / "below").mkdir()
    monkeypatch.chdir(path / "below")
    assert recover(Path("..")) == (path, False)
    assert load_run(Path("..")).status == "complete"


def test_recover_inside_a_partial_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    writer.add_requests(batch_of(REQUESTS, toy_run(20)[0]))
    writer.close()
    monkeypatch.chdir(writer.partial)
    assert "did not finish" in run_refusal(Path())
    assert recover(Path()) == (writer.path, True)
    assert load_run(writer.path).status == "interrupted"


def test_a_partial_directory_under_another_name_is_finished_where_it_lies(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    writer.add_requests(batch_of(REQUESTS, toy_run(20)[0]))
    writer.close()
    moved = writer.partial.rename(tmp_path / "mine")
    assert "did not finish" in run_refusal(moved)
    assert recover(moved) == (moved, True)
    assert load_run(moved).manifest["counts"]["requests"] == 20


@pytest.mark.parametrize("given", ["/", "", "x" * 300, "/" + "y/" * 3000, "a\0b", ".partial"])
@pytest.mark.parametrize("what", [load_run, recover])
def test_what_cannot_be_a_run_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: Callable[[Path], Any], given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no run directory"):
        what(Path(given))


def test_a_colon_in_a_relative_path_is_no_scheme(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent / "noisy:sigma=1").mkdir()
    path.rename(path.parent / "noisy:sigma=1" / "run")
    monkeypatch.chdir(path.parent)
    again = load_run(Path("noisy:sigma=1/run"))
    assert again.requests().num_rows == again.manifest["counts"]["requests"]


def test_the_root_has_a_partial_name() -> None:
    assert partial_of(Path("/")) == Path("/.partial")


@pytest.mark.parametrize("out", ["x" * 300, "y/" * 3000, "a\0b", "\ud800"])
def test_an_absurd_out_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="give another --out") as caught:
        RunWriter.create(Path(out), SPEC, kind="simulated", provenance={})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_what_could_not_be_begun_leaves_nothing(tmp_path: Path) -> None:
    with file_size_limit(10), pytest.raises(UserError, match="cannot start a run there"):
        RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    assert not [one for one in tmp_path.rglob("*") if one.name.endswith(".partial")]


def test_a_run_that_completed_nothing_is_invalid(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, []))
    assert run.level == "INVALID"
    assert "INVALID: completed requests: 0 (below 1)" in run.manifest["verdict"]["reasons"]
