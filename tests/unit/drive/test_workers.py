"""Driving processes: one plan over several, rows to the sink, and what a kill leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from harness.core.errors import RunFailed, UserError
from harness.core.records import FINISHES, REQUESTS
from harness.drive import frames, workers
from harness.drive.endpoint import Endpoint
from harness.drive.plan import Plan
from harness.drive.process import Process
from harness.drive.rows import request_batch
from harness.drive.settings import Result, Settings
from harness.drive.workers import Outcome, Snapshot, drive
from harness.runs.run import load_run
from harness.runs.tables import read_table
from harness.runs.writer import recover
from tests.support.drive_servers import TOKENS, Request, answers, good, plain, plan_of, serving_in_thread, streamed

answer_well = answers(streamed(good()))


async def silent(request: Request) -> bool:
    await asyncio.Event().wait()
    return False


async def every_third_fails(request: Request) -> bool:
    request.writer.write(plain("500 Oops", b"{}") if int(request.id) % 3 == 0 else streamed(good()))
    return True


def table(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    rows = pa.Table.from_batches(batches, REQUESTS).to_pylist()
    return sorted(rows, key=lambda row: row["row"])


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_every_request_has_one_row_whoever_sent_it(processes: int) -> None:
    batches: list[pa.RecordBatch] = []
    seen: list[Snapshot] = []
    with serving_in_thread(every_third_fails) as server:
        outcome = drive(
            plan_of(30, session=[i // 2 for i in range(30)], turn=[i % 2 for i in range(30)], expected_output_tokens=3),
            Endpoint(server.url),
            Settings(concurrency=6, timeout_s=20),
            batches.append,
            processes=processes,
            progress=seen.append,
        )
        assert server.most_in_flight <= 6
    rows = table(batches)
    assert [row["row"] for row in rows] == list(range(30))
    assert [row["id"] for row in rows] == [str(i) for i in range(30)]
    assert [row["finish"] for row in rows] == ["error" if i % 3 == 0 else "length" for i in range(30)]
    assert rows[0]["first_token_s"] is None
    assert rows[0]["token_gaps_s"] == []
    assert str(rows[0]["error"]).startswith("http_500")
    gaps = rows[1]["token_gaps_s"]
    assert isinstance(gaps, list)
    assert len(gaps) == TOKENS - 1
    assert (outcome.status, outcome.sent, outcome.recorded, outcome.completed) == ("complete", 30, 30, 20)
    assert outcome.errors == {"http_500": 10}
    assert outcome.client["processes"] == processes
    assert 0 <= outcome.client["cpu_share"] <= 1.5
    if sys.platform == "linux":
        assert 0 <= outcome.client["wait_share"] <= 1
    assert seen


def test_gaps_lie_between_a_requests_own_events() -> None:
    def row(times: list[int]) -> bytes:
        stamps = memoryview(bytearray()) if not times else memoryview(array("q", times))
        return frames.pack(Result(0, 1, 2, 30, stamps, len(times), None, "length", None))

    results = list(frames.unpack(b"".join(row(times) for times in ([10, 12, 15], [], [7], [20, 21]))))
    plan = Plan.write(plan_of(1))
    batch = request_batch(results, plan, 0)
    plan.close()
    assert batch.column("token_gaps_s").to_pylist() == [[2e-9, 3e-9], [], [], [1e-9]]
    assert batch.column("first_token_s").to_pylist() == [10e-9, None, 7e-9, 20e-9]
    assert batch.column("last_token_s").to_pylist() == [15e-9, None, 7e-9, 21e-9]


def test_frames_cut_anywhere() -> None:
    stream = frames.note(frames.STATUS, {"a": 1}) + frames.frame(frames.RESULTS, b"x" * 300)
    whole = list(frames.Frames().feed(stream))
    bytewise = frames.Frames()
    assert [one for i in range(len(stream)) for one in bytewise.feed(stream[i : i + 1])] == whole
    assert [kind for kind, _ in whole] == [frames.STATUS, frames.RESULTS]
    assert set(frames.ENDS) <= set(FINISHES)


def test_a_server_that_is_not_there_is_the_users_to_mend() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=r"connection_refused.*start the server"):
            drive(plan_of(3), Endpoint(url), Settings(concurrency=1), lambda _: None)
    with pytest.raises(UserError, match="empty"):
        drive([], Endpoint(url), Settings(concurrency=1), lambda _: None)


def test_stopping_keeps_what_is_done_and_records_the_rest_as_cancelled() -> None:
    async def one_in_two(request: Request) -> bool:
        return await (answer_well if int(request.id) < 2 else silent)(request)

    batches: list[pa.RecordBatch] = []
    with serving_in_thread(one_in_two) as server:
        outcome = drive(
            plan_of(50),
            Endpoint(server.url),
            Settings(concurrency=2),
            batches.append,
            stopped=lambda: len(server.requests) >= 4,
        )
    assert (outcome.status, outcome.sent, outcome.completed) == ("interrupted", 4, 2)
    assert [row["finish"] for row in table(batches)] == ["length", "length", "cancelled", "cancelled"]


def test_a_sink_that_fails_ends_the_run_and_its_processes() -> None:
    def full(batch: pa.RecordBatch) -> None:
        raise RunFailed("the disk is full")

    with serving_in_thread(answer_well) as server, pytest.raises(RunFailed, match="full"):
        drive(plan_of(1000), Endpoint(server.url), Settings(concurrency=2), full, processes=2)


def _crew(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    started: list[subprocess.Popen[bytes]] = []

    class Kept(Process):
        def __init__(self, config: dict[str, object], plan_fd: int) -> None:
            super().__init__(config, plan_fd)
            started.append(self.popen)

    monkeypatch.setattr(workers, "Process", Kept)
    return started


def test_a_driving_process_that_is_killed_fails_the_run_and_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = _crew(monkeypatch)
    batches: list[pa.RecordBatch] = []

    async def some(request: Request) -> bool:
        return await (answer_well if int(request.id) < 10 else silent)(request)

    def kill_when_recorded(_: Snapshot) -> None:
        if sum(batch.num_rows for batch in batches) == 10:
            crew[0].kill()

    with serving_in_thread(some) as server:
        outcome = drive(
            plan_of(50),
            Endpoint(server.url),
            Settings(concurrency=2),
            batches.append,
            processes=2,
            progress=kill_when_recorded,
        )
    assert outcome.status == "failed"
    assert "died" in (outcome.reason or "")
    finishes = [row["finish"] for row in table(batches)]
    assert finishes.count("length") == 10


def test_ctrl_c_and_a_hang_up_are_for_the_parent_and_a_term_ends_readably(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = _crew(monkeypatch)
    batches: list[pa.RecordBatch] = []

    def signals(seen: Snapshot) -> None:
        if seen.in_flight == 2:
            for process in crew:
                process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGHUP)
                process.send_signal(signal.SIGTERM)

    with serving_in_thread(silent) as server:
        outcome = drive(plan_of(5), Endpoint(server.url), Settings(concurrency=2), batches.append, progress=signals)
    assert [row["finish"] for row in table(batches)] == ["cancelled", "cancelled"]
    assert outcome.recorded == 2
    assert outcome.status == "interrupted"


PARENT = """
import sys
from pathlib import Path
from harness.drive.settings import Settings
from harness.drive.endpoint import Endpoint
from harness.drive.workers import drive
from harness.core.runspec import RunSpec
from harness.runs.writer import RunWriter
from tests.support.drive_servers import plan_of

spec = RunSpec(gpu="unknown", model="m", policy="external", workload="w", engine="endpoint", requests=50)
writer = RunWriter.create(Path(sys.argv[2]), spec, kind="measured", provenance={})
print(writer.partial, flush=True)

def sink(batch):
    writer.add_requests(batch)
    print(batch.num_rows, flush=True)

drive(plan_of(50), Endpoint(sys.argv[1]), Settings(concurrency=2), sink)
"""


def test_kill_9_leaves_a_run_that_can_be_recovered_and_no_process(tmp_path: Path) -> None:
    gone = threading.Event()

    async def some(request: Request) -> bool:
        if int(request.id) < 10:
            return await answer_well(request)
        await request.reader.read()  # to the end, which the driving process's own brings
        gone.set()
        return False

    with serving_in_thread(some) as server:
        command = [sys.executable, "-c", PARENT, server.url, str(tmp_path)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": "."}
        ) as parent:
            assert parent.stdout is not None
            partial = Path(parent.stdout.readline().strip())
            rows = 0
            while rows < 10:
                rows += int(parent.stdout.readline())
            parent.kill()
        assert gone.wait(20)
    run = load_run(recover(partial)[0])
    assert run.status == "interrupted"
    assert read_table(run.path, "requests").num_rows == 10


def test_an_outcome_is_complete_until_something_says_otherwise() -> None:
    assert Outcome().status == "complete"


def test_slots_are_divided_without_loss() -> None:
    divide: Callable[[int | None, int], list[int | None]] = workers._divide
    assert divide(7, 3) == [3, 2, 2]
    assert divide(None, 2) == [None, None]


def test_no_heavy_import_in_a_driving_process() -> None:
    code = "import sys, harness.drive.worker; print(sorted({n.partition('.')[0] for n in sys.modules}))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "pyarrow", "tokenizers", "torch", "rich", "scipy"} & set(eval(said))  # noqa: S307
