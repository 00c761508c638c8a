"""What a grid's directory knows after any stop: finished, cut off, failed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.session.grid_file import Point
from harness.session.grid_index import INDEX, FinishedIndex
from harness.session.grid_plan import Plan, plan_grid
from harness.session.grid_run import resume
from harness.session.grid_state import (
    FOLDER,
    alone_in,
    clear,
    find_cells,
    is_running,
    place_below,
    remember_cells,
    remember_failure,
)
from harness.session.grid_status import status_of, told_status
from harness.session.grid_worker import run_cell
from tests.support.disk import file_size_limit


@pytest.fixture
def plan() -> Plan:
    values = {"gpu": "l40s", "workload": "lmsys", "requests": 20, "engine": "simulated", "repeat": 2, "alone": True}
    return plan_grid([Point(values, ("v1", "v0"))])


def ran(plan: Plan, number: int, out: Path) -> Path:
    outcome = run_cell(plan.cells[number], out, lambda: False)
    assert outcome.status == "complete", outcome
    assert outcome.wall_s > 0
    return Path(outcome.path)


def edit(path: Path, **values: Any) -> None:
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(manifest | values))


def test_what_is_finished_does_not_run_again(plan: Plan, tmp_path: Path) -> None:
    first = ran(plan, 0, tmp_path)
    todo = resume(plan, tmp_path, retry_failed=False)
    assert todo.found.finished == {plan.cells[0].key: str(first)}
    assert [cell for unit in todo.units for cell in unit] == plan.cells[1:]
    again = resume(plan, tmp_path, retry_failed=False, again=True)
    assert [cell for unit in again.units for cell in unit] == plan.cells


def test_a_run_of_before_a_field_of_the_spec_is_the_same_cell(plan: Plan, tmp_path: Path) -> None:
    path = ran(plan, 0, tmp_path)
    manifest = json.loads((path / "run.json").read_text())
    del manifest["spec"]["policy_costs"]
    edit(path, spec=manifest["spec"], digest="0" * 64)
    found = find_cells(tmp_path, {plan.cells[0].digest}, FinishedIndex(tmp_path / FOLDER))
    assert found.finished == {plan.cells[0].key: str(path)}


def test_a_clock_that_steps_changes_nothing_of_what_is_finished(plan: Plan, tmp_path: Path) -> None:
    # One run is of a time to come, the other's file of long ago.
    run, other = (ran(plan, number, tmp_path) for number in range(2))
    ahead = run.rename(run.with_name(f"2099{run.name[4:]}"))
    os.utime(other / "run.json", ns=(0, 0))
    with alone_in(tmp_path):
        for _ in range(2):
            todo = resume(plan, tmp_path, retry_failed=False)
            assert todo.found.finished == {plan.cells[0].key: str(ahead), plan.cells[1].key: str(other)}
            todo.index.write()


def test_what_the_index_knows_is_not_read_and_what_changed_is_read_again(plan: Plan, tmp_path: Path) -> None:
    known, changed, gone = (ran(plan, number, tmp_path) for number in range(3))
    with alone_in(tmp_path):
        resume(plan, tmp_path, retry_failed=False).index.write()
    # Bytes that nobody could read, under the stamp of before.
    stamp = (known / "run.json").stat()
    (known / "run.json").write_bytes(b"?" * stamp.st_size)
    os.utime(known / "run.json", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    edit(changed, status="failed", reason="its disk")
    shutil.rmtree(gone)
    todo = resume(plan, tmp_path, retry_failed=False)
    assert todo.found.finished == {plan.cells[0].key: str(known)}
    assert todo.failed == {plan.cells[1].key: "its disk"}


@pytest.mark.parametrize("damage", ["", "another form\n", "\0\xff", "{form}\nplace\t1\n/l40s\tx\t2\t3\n"])
def test_a_damaged_index_costs_a_look_and_no_cell(plan: Plan, tmp_path: Path, damage: str) -> None:
    run = ran(plan, 0, tmp_path)
    with alone_in(tmp_path) as folder:
        resume(plan, tmp_path, retry_failed=False).index.write()
        form = (folder / INDEX).read_text().split("\n")[0]
        (folder / INDEX).write_bytes(damage.format(form=form).encode("latin-1"))
        for _ in range(2):
            todo = resume(plan, tmp_path, retry_failed=False)
            assert todo.found.finished == {plan.cells[0].key: str(run)}
            todo.index.write()
        place = place_below(tmp_path, str(run), second=False)
        assert FinishedIndex(folder).look_up(place, f"{run}/run.json") == plan.cells[0].digest


def test_what_was_cut_off_is_taken_away_and_runs_again(plan: Plan, tmp_path: Path) -> None:
    interrupted, killed, young = (ran(plan, number, tmp_path) for number in range(3))
    edit(interrupted, status="interrupted")
    killed = killed.rename(killed.with_name(f"{killed.name}.partial"))
    edit(killed, status="running")
    young = young.rename(young.with_name(f"{young.name}.partial"))
    (young / "run.json").unlink()
    other = tmp_path / "notes"
    other.mkdir()
    todo = resume(plan, tmp_path, retry_failed=False)
    assert len(todo.units) == 2
    left = [path for paths in todo.found.left.values() for path in paths]
    assert sorted(left) == sorted([interrupted, killed, young])
    assert clear(left) == 3
    assert [interrupted.exists(), killed.exists(), young.exists(), other.exists()] == [False, False, False, True]


def test_failed_cells_wait_until_they_are_asked_for(plan: Plan, tmp_path: Path) -> None:
    with alone_in(tmp_path) as folder:
        remember_cells(folder, plan.cells)
        remember_failure(folder, plan.cells[1], "no room")
        with (folder / "failed.jsonl").open("a") as file:
            file.write('{"key": "torn')
    edit(ran(plan, 0, tmp_path), status="failed", reason="the server died")
    status = status_of(tmp_path)
    assert (status["state"], status["finished"], status["failed"], status["left"]) == ("stopped", 0, 2, 2)
    assert {one["reason"] for one in status["failures"]} == {"no room", "the server died"}
    assert any("no room" in line for line in told_status(status))
    assert sum(map(len, resume(plan, tmp_path, retry_failed=False).units)) == 2
    assert sum(map(len, resume(plan, tmp_path, retry_failed=True).units)) == 4
    # One that succeeds later has failed no more.
    ran(plan, 1, tmp_path)
    assert status_of(tmp_path)["failed"] == 1


def test_where_nothing_can_be_written_it_is_a_line_and_no_cell_is_lost(plan: Plan, tmp_path: Path) -> None:
    with alone_in(tmp_path) as folder:
        # As on a full disk: what is to be written cannot be opened.
        (folder / "failed.jsonl").mkdir()
        remember_failure(folder, plan.cells[0], "no room")
        assert sum(map(len, resume(plan, tmp_path, retry_failed=False).units)) == 4
        (folder / "finished.tsv").mkdir()
        ran(plan, 0, tmp_path)
        todo = resume(plan, tmp_path, retry_failed=False)
        todo.index.write()
        assert sum(map(len, todo.units)) == 3
        (folder / "cells.tsv").mkdir()
        with pytest.raises(UserError, match=r"cannot be written .*what is finished stays"):
            remember_cells(folder, plan.cells)


def test_one_grid_at_a_time_works_in_a_directory(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    with alone_in(tmp_path):
        assert is_running(tmp_path)
        with pytest.raises(UserError, match="another grid works there"), alone_in(tmp_path):
            pass
    assert not is_running(tmp_path)
    assert (tmp_path / FOLDER / ".gitignore").read_text() == "*\n"


def test_a_directory_without_a_grid(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no grid was begun there"):
        status_of(tmp_path)


def test_cells_that_find_no_room_fail_alike(plan: Plan, tmp_path: Path) -> None:
    with file_size_limit(100):
        outcomes = [run_cell(cell, tmp_path, lambda: False) for cell in plan.cells[:2]]
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert {outcome.reason for outcome in outcomes} == {
        "its directory: cannot start a run there (File too large): give another --out"
    }
    with file_size_limit(9000):
        reason = run_cell(plan.cells[0], tmp_path, lambda: False).reason
    assert reason.startswith("its directory")
    assert reason.endswith(": make room")
