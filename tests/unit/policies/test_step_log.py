import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.records import STEPS
from harness.runs.step_log import EVENT_TABLE, client_id, read_step_log
from policies.core import STEP_COLUMNS, PolicyState
from policies.plugin.step_log import ABORT, ADMISSION, ARRIVAL, FINISH, MAGIC, StepLog

HEADER = {"vllm": "0.32.0", "slots": 8, "policy": "eb"}


def step_row(i: int, state: int = -1) -> tuple[int, ...]:
    values = dict.fromkeys(STEP_COLUMNS, 0)
    values |= {"t": 1_000 + 10 * i, "duration": 10, "phase": i % 3, "prefill_tokens": 7 * i, "state": state}
    return tuple(values.values())


def written(path: Path, steps: int) -> None:
    log = StepLog(path, HEADER)
    log.event(ARRIVAL, 900, 0, 33, 0, "cmpl-row-4-0-0123abcd")
    for i in range(steps):
        if i == 2:
            log.state(PolicyState(k=3, mode="EB", theta=0.1 + 0.2))
        log.step(step_row(i, 0 if i >= 2 else -1))
    log.event(FINISH, 1_100, steps, 5, 1, "cmpl-row-4-0-0123abcd")
    log.close()
    assert log.fault is None


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "steps.bin"
    written(path, 5)
    log = read_step_log(path, 1_000)
    assert log.header == HEADER
    assert log.cut_off == 0
    (batch,) = log.batches()
    assert batch.schema == STEPS
    assert batch["t_s"].to_pylist() == [0.0, 1e-8, 2e-8, 3e-8, 4e-8]
    assert batch["phase"].to_pylist() == ["mixed", "prefill", "decode", "mixed", "prefill"]
    assert batch["prefill_tokens"].to_pylist() == [0, 7, 14, 21, 28]
    assert batch["policy_k"].to_pylist() == [None, None, 3, 3, 3]
    assert batch["policy_theta"].to_pylist()[4] == 0.1 + 0.2
    assert batch["policy_mode"].to_pylist() == [None, None, "EB", "EB", "EB"]
    assert log.events.schema == EVENT_TABLE
    assert log.events.to_pylist() == [
        {
            "event": "arrival",
            "t_s": -1e-7,
            "step": 0,
            "request": "row-4",
            "engine_request": "cmpl-row-4-0-0123abcd",
            "tokens": 33,
            "preemptions": 0,
        },
        {
            "event": "finish",
            "t_s": 1e-7,
            "step": 5,
            "request": "row-4",
            "engine_request": "cmpl-row-4-0-0123abcd",
            "tokens": 5,
            "preemptions": 1,
        },
    ]


def test_a_log_cut_anywhere_gives_its_whole_records(tmp_path: Path) -> None:
    path, cut = tmp_path / "steps.bin", tmp_path / "cut.bin"
    written(path, 5)
    whole = path.read_bytes()
    seen = []
    for length in range(len(MAGIC), len(whole) + 1):
        cut.write_bytes(whole[:length])
        log = read_step_log(cut, 0)
        seen.append(sum(batch.num_rows for batch in log.batches()))
        assert log.rows.tolist() == [list(step_row(i, 0 if i >= 2 else -1)) for i in range(seen[-1])]
    assert seen == sorted(seen)
    assert set(seen) == set(range(6))


def test_a_killed_engine_leaves_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "steps.bin"
    code = f"""
import itertools
from pathlib import Path
from policies.core import STEP_COLUMNS
from policies.plugin.step_log import StepLog
log = StepLog(Path({str(path)!r}), {{}})
for i in itertools.count():
    log.step((i,) * len(STEP_COLUMNS))
    if i == 100_000:
        print(flush=True)
"""
    engine = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert engine.stdout is not None
    engine.stdout.readline()
    while path.stat().st_size < 1_000_000:
        assert engine.poll() is None
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    engine.stdout.close()
    rows = read_step_log(path, 0).rows
    assert len(rows) > 1_000
    assert rows[:, 0].tolist() == list(range(len(rows)))


def test_an_engine_that_ends_in_order_writes_all_without_close(tmp_path: Path) -> None:
    path = tmp_path / "steps.bin"
    code = f"""
from pathlib import Path
from policies.core import STEP_COLUMNS
from policies.plugin.step_log import StepLog
log = StepLog(Path({str(path)!r}), {{}})
for i in range(1000):
    log.step((i,) * len(STEP_COLUMNS))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(read_step_log(path, 0).rows) == 1_000


def test_a_disk_that_takes_no_more_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "steps.bin"
    log = StepLog(path, {})
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, log._file)
    os.close(writer)
    log.step(step_row(0))
    log.close()
    assert isinstance(log.fault, BrokenPipeError)


def test_a_log_is_never_written_over(tmp_path: Path) -> None:
    written(tmp_path / "steps.bin", 1)
    with pytest.raises(FileExistsError):
        StepLog(tmp_path / "steps.bin", {})


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("no log")
    with pytest.raises(UserError, match="is not a step log of this version"):
        read_step_log(tmp_path / "other", 0)
    with pytest.raises(UserError, match="No such file"):
        read_step_log(tmp_path / "none", 0)
    (tmp_path / "damaged").write_bytes(MAGIC + b"\x09\x00\x00\x00")
    with pytest.raises(UserError, match="no known record at byte 14"):
        read_step_log(tmp_path / "damaged", 0)


def test_an_empty_log_has_columns(tmp_path: Path) -> None:
    StepLog(tmp_path / "steps.bin", HEADER).close()
    log = read_step_log(tmp_path / "steps.bin", 0)
    assert list(log.batches()) == []
    assert log.events.num_rows == 0
    assert log.events.schema == EVENT_TABLE


def test_events_are_joined_by_the_clients_id() -> None:
    assert client_id("cmpl-a-0-b-0-0123abcd") == "a-0-b"
    assert client_id("cmpl-a-0-12345678") == "a"
    assert client_id("chatcmpl-a-7-0123abcd") == "a-7"
    assert client_id("row-17") == "row-17"
    assert (ADMISSION, ABORT) == (1, 4)
