"""What a grid's directory knows after any stop: finished, cut off, failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.session.grid_file import Point
from harness.session.grid_plan import Plan, plan_grid
from harness.session.grid_run import resume
from harness.session.grid_state import (
    FOLDER,
    alone_in,
    clear,
    find_cells,
    is_running,
    remember_cells,
    remember_failure,
)
from harness.session.grid_status import status_of, told_status
from harness.session.grid_worker import run_cell


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
    assert todo.found.finished == {plan.cells[0].key: first}
    assert [cell for unit in todo.units for cell in unit] == plan.cells[1:]


def test_a_run_of_before_a_field_of_the_spec_is_the_same_cell(plan: Plan, tmp_path: Path) -> None:
    path = ran(plan, 0, tmp_path)
    manifest = json.loads((path / "run.json").read_text())
    del manifest["spec"]["policy_costs"]
    edit(path, spec=manifest["spec"], digest="0" * 64)
    assert find_cells(tmp_path, {plan.cells[0].digest}).finished == {plan.cells[0].key: path}


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
