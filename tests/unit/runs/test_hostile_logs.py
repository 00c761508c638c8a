"""Logs that a stranger made: what would end the process or fill the machine is one line, before any of it is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from harness.core.errors import RunFailed, UserError
from harness.core.records import REQUESTS, STEPS
from harness.runs import log_survey, schema, tables
from harness.runs.append_log import AppendLog, conform, whole_batches
from harness.runs.log_survey import survey
from harness.runs.run import load_run
from harness.runs.writer import RunWriter, recover
from policies.core import STEP_COLUMNS, PolicyState
from policies.plugin.step_log import FINISH, HEADER, PREFIX, STATE, StepLog
from tests.support.runfactory import SPEC, batch_of, request

ROWS = [request(row) for row in range(20)]


def left_behind(out: Path) -> Path:
    """A run whose process was killed after twenty requests."""
    run = RunWriter.create(out, SPEC, kind="measured", provenance={}, planned_requests=20)
    run.learn(clock={"origin_ns": 0})
    run.add_requests(batch_of(REQUESTS, ROWS))
    run.close()
    return run.partial


def with_column(name: str, column: Callable[[pa.Array], pa.Array]) -> pa.RecordBatch:
    batch = conform(batch_of(REQUESTS, ROWS), REQUESTS)
    columns = list(batch.columns)
    place = REQUESTS.get_field_index(name)
    columns[place] = column(columns[place])
    return pa.RecordBatch.from_arrays(columns, schema=REQUESTS)


def offsets(*first: int) -> Callable[[pa.Array], pa.Array]:
    """Texts whose places in their buffer of three bytes begin with these."""

    def column(_: pa.Array) -> pa.Array:
        places = np.array([*first, *[3] * (21 - len(first))], np.int32)
        return pa.Array.from_buffers(pa.string(), 20, [None, pa.py_buffer(places.tobytes()), pa.py_buffer(b"abc")])

    return column


def codes(column: pa.Array) -> pa.Array:
    """Names beyond those that there are."""
    return pa.DictionaryArray.from_arrays(pa.array(np.full(20, 100, np.int8)), column.dictionary, safe=False)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("id", offsets(0, 3, 1)),
        ("id", offsets(0, 4096)),
        ("error", offsets(0, 1, 2**30)),
        ("finish", codes),
    ],
)
def test_values_beyond_their_memory_are_one_line(
    tmp_path: Path, name: str, column: Callable[[pa.Array], pa.Array]
) -> None:
    partial = left_behind(tmp_path)
    with pa.OSFile(str(partial / "requests.arrows"), "wb") as file, pa.ipc.new_stream(file, REQUESTS) as stream:
        stream.write_batch(with_column(name, column))
    with pytest.raises(UserError, match=r"requests\.arrows: damaged"):
        recover(partial)
    assert partial.is_dir()


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_log_that_is_small_and_holds_much_is_not_read(tmp_path: Path, codec: str) -> None:
    partial = left_behind(tmp_path)
    with pa.OSFile(str(partial / "requests.arrows"), "wb") as file:
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_stream(file, REQUESTS, options=options) as stream:
            stream.write_batch(conform(batch_of(REQUESTS, ROWS), REQUESTS))
    with pytest.raises(UserError, match="compressed, which bench does not write"):
        recover(partial)


def test_a_survey_counts_whole_batches_and_tells_what_is_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.arrows"
    log = AppendLog(path, REQUESTS)
    assert survey(path, 100) == log_survey.Survey(0, 0)
    for some in (3, 4):
        log.add(batch_of(REQUESTS, ROWS[:some]))
    log.close()
    whole = path.read_bytes()
    assert survey(path, 7) == log_survey.Survey(2, 7)
    assert survey(path, 6).fault == "7 rows, at most 6 are read"
    assert [batch.num_rows for batch in whole_batches(path, 7)] == [3, 4]
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        looked = survey(path, 7)
        assert looked.fault is None
        assert sum(batch.num_rows for batch in whole_batches(path, 7)) == looked.rows
    monkeypatch.setattr(log_survey, "MOST_BATCH_BYTES", 64)
    path.write_bytes(whole)
    assert "MiB, at most" in str(survey(path, 7).fault)


def test_no_byte_of_a_log_brings_down_a_survey(tmp_path: Path) -> None:
    path = tmp_path / "x.arrows"
    log = AppendLog(path, STEPS.empty_table().select(["t_s", "phase"]).schema)
    log.add(pa.RecordBatch.from_pydict({"t_s": [1.0, 2.0], "phase": ["mixed", None]}))
    log.close()
    whole = path.read_bytes()
    random = np.random.default_rng(7)
    for _ in range(400):
        data = bytearray(whole)
        for at in random.integers(0, len(data), 3):
            data[at] = random.integers(0, 256)
        path.write_bytes(bytes(data))
        looked = survey(path, 100)
        assert looked.fault is not None or 0 <= looked.rows <= 100


def test_a_run_is_not_written_beyond_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tables.MOST_ROWS, "requests", 30)
    run = RunWriter.create(tmp_path, SPEC, kind="measured", provenance={}, planned_requests=40)
    run.add_requests(batch_of(REQUESTS, ROWS))
    with pytest.raises(RunFailed, match=r"more than can be read \(30 rows"):
        run.add_requests(batch_of(REQUESTS, ROWS))
    path, _ = recover(run.partial)
    assert load_run(path).manifest["counts"]["requests"] == 20


def test_a_manifest_larger_than_any_of_ours_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MOST_JSON_BYTES", 2**20)
    with (path / "run.json").open("a") as file:
        file.write(" " * 2**20)
    with pytest.raises(UserError, match="1 MiB, at most 1 are read"):
        load_run(path)


def step(**values: int) -> tuple[int, ...]:
    return tuple((dict.fromkeys(STEP_COLUMNS, 0) | {"phase": 1, "state": -1} | values).values())


def packed(kind: int, text: bytes) -> bytes:
    return PREFIX.pack(kind, len(text)) + text


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda log: log.step(step(state=5)),
        lambda log: log.step(step(phase=9)),
        lambda log: log.step(step(kv_tokens=-1)),
        lambda log: log.step(step(generated_sum=10**13)),
        lambda log: log.step(step(duration=2**63 - 1)),
        lambda log: log.event(9, 0, 0, 0, 0, "x"),
        lambda log: log.event(FINISH, 0, 0, 0, -3, "x"),
        lambda log: log._queue.append(packed(HEADER, b"[1]")),
        lambda log: log._queue.append(packed(HEADER, b'{"a": 1e999}')),
        lambda log: log._queue.append(packed(HEADER, b"[" * 60_000)),
        lambda log: log._queue.append(packed(STATE, b'{"k": "x"}') + b""),
        lambda log: log._queue.append(packed(STATE, b'{"nobody": 1}')),
        lambda log: log._queue.append(packed(STATE, b"7")),
        lambda log: log._queue.append(packed(7, b"7")),
        lambda log: (log.state(PolicyState(mode="neither")), log.step(step(state=0))),
    ],
)
def test_an_odd_step_log_costs_the_steps_and_never_the_requests(
    tmp_path: Path, spoilt: Callable[[StepLog], object]
) -> None:
    partial = left_behind(tmp_path)
    log = StepLog(partial / "steps.log", {"policy": "v1"})
    log.step(step())
    spoilt(log)
    log.close()
    path, _ = recover(partial)
    run = load_run(path)
    assert run.requests().num_rows == 20
    told = [note for note in run.manifest["notes"] if note.startswith("steps.log cannot be read")]
    # What no step points to is nothing to stumble over.
    assert told or run.manifest["counts"]["steps"] == 1
