"""What the recorder counts of the rows that pass through it."""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from harness.drive import recorder as recorder_module
from harness.drive.frames import pack
from harness.drive.plan import Plan
from harness.drive.recorder import Recorder
from harness.drive.settings import Result
from tests.support.drive_servers import plan_of

PLANNED = 2  # prompt tokens of every request of `plan_of`


def result(place: int, finish: str, tokens: int = 3, events: int = 3, **more: object) -> Result:
    stamps = memoryview(array("q", range(10, 10 + events)))
    row = Result(place, 1, 2, 30, stamps, tokens, PLANNED, finish, None)
    for name, value in more.items():
        setattr(row, name, value)
    return row


def recorded(results: list[Result], sink: Callable[[pa.RecordBatch], object]) -> Recorder:
    """A recorder that has taken these results, in two frames."""
    plan = Plan.write(plan_of(len(results)))
    recorder = Recorder(plan, sink)  # type: ignore[arg-type] # what a sink gives is not looked at
    recorder.start(0)
    recorder.put(b"".join(map(pack, results[:2])))
    recorder.put(b"".join(map(pack, results[2:])))
    recorder.close()
    plan.close()
    return recorder


def test_each_count_is_of_its_own_kind() -> None:
    batches: list[pa.RecordBatch] = []
    results = [
        result(0, "length", echoed=True),
        # Fewer and more than planned: two that differ, whichever way.
        result(1, "length", tokens=5, prompt_tokens=1, counted="usage", beyond=True),
        result(2, "stop", events=2, prompt_tokens=7, counted="ids", tokens=4, echoed=False),
        # A server that says nothing of the prompt has not said another length.
        result(3, "stop", prompt_tokens=None, echoed=False),
        # Of failures only their names count, what they brought does not.
        result(4, "error", error="http_500: boom", beyond=True, echoed=True, counted="usage"),
        result(5, "error", error="http_429 (Retry-After: 7): no", events=0, tokens=0, echoed=False),
        result(6, "timeout", error="timeout: 3 tokens after 1 s", prompt_tokens=9),
        result(7, "error", error="http_500: again"),
    ]
    recorder = recorded(results, batches.append)
    assert (recorder.recorded, recorder.completed) == (8, 4)
    assert recorder.prompt_tokens_off == 3
    assert recorder.errors == Counter({"http_500": 2, "http_429": 1, "timeout": 1})
    assert recorder.counted == Counter({"events": 2, "usage": 1, "ids": 1})
    assert (recorder.beyond, recorder.echoed, recorder.foreign) == (1, 1, 2)
    assert (recorder.events, recorder.tokens) == (3 + 3 + 2 + 3, 3 + 5 + 4 + 3)
    assert [batch.num_rows for batch in batches] == [2, 6]
    rows = pa.Table.from_batches(batches).to_pylist()
    assert [row["row"] for row in rows] == list(range(8))
    # The server's count stands in the row, the plan's where it gave none.
    assert [row["prompt_tokens"] for row in rows] == [2, 1, 7, 2, 2, 2, 9, 2]


def test_what_the_sink_raises_is_raised_where_rows_are_put_and_nothing_more_is_taken() -> None:
    calls: list[int] = []

    def full(batch: pa.RecordBatch) -> None:
        calls.append(batch.num_rows)
        raise OSError(28, "No space left on device")

    recorder = recorded([result(0, "length"), result(1, "length"), result(2, "length")], full)
    assert calls == [2]
    with pytest.raises(OSError, match="No space left"):
        recorder.check()
    with pytest.raises(OSError, match="No space left"):
        recorder.put(b"")
    assert recorder.recorded == 2


def test_rows_do_not_wait_for_a_thread_that_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[pa.RecordBatch] = []
    plan = Plan.write(plan_of(3))
    recorder = Recorder(plan, batches.append)
    starved, end = recorder._thread, threading.Event()
    recorder._thread = threading.Thread(target=end.wait)
    recorder.start(0)
    monkeypatch.setattr(recorder_module, "_LATE_S", 3600.0)
    for place in range(2):
        recorder.put(pack(result(place, "length")))
    recorder.check()
    assert recorder.recorded == 0
    monkeypatch.setattr(recorder_module, "_LATE_S", -1.0)
    recorder.check()
    assert [batch.column("row").to_pylist() for batch in batches] == [[0], [1]]
    monkeypatch.setattr(recorder_module, "_LATE_S", 3600.0)
    recorder.put(pack(result(2, "length")))
    end.set()
    recorder._thread.join()
    # Whoever runs last, each row is there once.
    recorder._thread = starved
    recorder.start(0)
    recorder.close()
    assert recorder.recorded == 3
    plan.close()
