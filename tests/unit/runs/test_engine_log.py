"""A real engine's step log in a run directory: taken in at the end, by `recover`, and never at the requests' cost."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.records import REQUESTS
from harness.runs.run import load_run
from harness.runs.step_log import ENGINE_LOG, STEP_LOG, unfinished
from harness.runs.writer import RunWriter, recover
from policies.core import STEP_COLUMNS
from policies.plugin.step_log import ABORT, ARRIVAL, FINISH, StepLog
from tests.support.runfactory import SPEC, batch_of, request

ORIGIN_NS = 5_000_000_000
MS = 1_000_000


def begun(out: Path) -> RunWriter:
    """A run of three requests whose engine has logged a step of the warm-up and two of the run."""
    writer = RunWriter.create(out, SPEC, kind="measured", provenance={}, planned_requests=3)
    writer.learn({"async_scheduling": False}, clock={"origin_ns": ORIGIN_NS})
    writer.add_requests(batch_of(REQUESTS, [request(i, id=f"r-{i}", preemptions=None) for i in range(3)]))
    log = StepLog(writer.partial / STEP_LOG, {"policy": "v1"})
    for t_ns, phase in ((ORIGIN_NS - MS, 1), (ORIGIN_NS + MS, 1), (ORIGIN_NS + 2 * MS, 2)):
        values = dict.fromkeys(STEP_COLUMNS, 0) | {"t": t_ns, "duration": MS, "phase": phase, "state": -1}
        log.step(tuple(values.values()))
    log.event(FINISH, ORIGIN_NS, 2, 2, 4, "cmpl-r-0-0-0123abcd")
    log.event(ABORT, ORIGIN_NS, 2, 2, 1, "cmpl-r-1-0-0123abcd")
    log.close()
    return writer


def check(path: Path) -> None:
    run = load_run(path)
    steps = run.steps()
    assert steps is not None
    assert steps.column("t_s").to_pylist() == [0.001, 0.002]
    assert steps.column("phase").to_pylist() == ["prefill", "decode"]
    assert run.requests().column("preemptions").to_pylist() == [4, 1, None]
    assert run.manifest["counts"]["steps"] == 2
    assert run.manifest["counts"]["preemptions"] == 5
    assert run.manifest["engine_steps"] == {"policy": "v1"}
    assert run.manifest["provenance"]["async_scheduling"] is False


def test_the_end_of_a_run_takes_the_steps_in(tmp_path: Path) -> None:
    path = begun(tmp_path).finish()
    check(path)
    assert (path / STEP_LOG).is_file()


def test_a_killed_run_has_its_steps_too(tmp_path: Path) -> None:
    writer = begun(tmp_path)
    writer.close()
    path, changed = recover(writer.partial)
    assert changed
    check(path)


def test_a_damaged_log_costs_the_steps_alone(tmp_path: Path) -> None:
    writer = begun(tmp_path)
    (writer.partial / STEP_LOG).write_bytes(b"nothing of ours")
    run = load_run(writer.finish())
    assert run.requests().num_rows == 3
    assert run.steps() is None
    assert any(STEP_LOG in note for note in run.manifest["notes"])


def test_a_run_whose_engine_lives_is_not_recovered(tmp_path: Path) -> None:
    writer = begun(tmp_path)
    writer.close()
    with (writer.partial / ENGINE_LOG).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="still goes on"):
            recover(writer.partial)
    recover(writer.partial)


def test_an_engine_without_our_scheduler_has_no_steps(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, SPEC, kind="measured", provenance={}, planned_requests=1)
    writer.learn(clock={"origin_ns": ORIGIN_NS})
    writer.add_requests(batch_of(REQUESTS, [request(0, preemptions=None)]))
    run = load_run(writer.finish())
    assert run.steps() is None
    assert run.requests().column("preemptions").to_pylist() == [None]


def test_a_log_tells_who_has_not_ended(tmp_path: Path) -> None:
    assert unfinished(tmp_path / "none") is None
    log = StepLog(tmp_path / STEP_LOG, {})
    for kind, name in ((ARRIVAL, "a"), (ARRIVAL, "b"), (ARRIVAL, "c"), (FINISH, "a"), (ABORT, "c")):
        log.event(kind, ORIGIN_NS, 0, 1, 0, f"cmpl-{name}-0-0123abcd")
    log.close()
    assert unfinished(tmp_path / STEP_LOG) == 1
