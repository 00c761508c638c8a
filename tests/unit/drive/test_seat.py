"""A seat for a driving process: what is told to it and what it writes pass through, and it ends with its seat."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from harness.core.records import REQUESTS
from harness.drive import frames
from harness.drive.endpoint import Endpoint
from harness.drive.plan import Plan
from harness.drive.recorder import Recorder
from harness.drive.seat import Seat
from harness.drive.settings import Settings
from tests.support.drive_servers import answers, good, plan_of, serving_in_thread, streamed

AHEAD_NS = 5_000_000_000


def config_of(plan: Plan, url: str) -> dict[str, Any]:
    return {
        "plan_shape": plan.shape,
        "worker": 0,
        "workers": 1,
        "endpoint": dataclasses.asdict(Endpoint(url)),
        "settings": dataclasses.asdict(Settings(concurrency=2)),
    }


def read_until(seat: Seat, wanted: int, found: list[tuple[int, bytes]], parts: frames.Frames) -> None:
    while all(kind != wanted for kind, _ in found):
        data = seat.read()
        assert data, found
        found += parts.feed(data)


def test_a_plan_that_travelled_is_driven_and_its_times_count_from_the_start_by_its_own_clock() -> None:
    batches: list[pa.RecordBatch] = []
    plan, seat, parts = Plan.write(plan_of(6)), Seat(), frames.Frames()
    found: list[tuple[int, bytes]] = []
    recorder = Recorder(plan, batches.append)
    with serving_in_thread(answers(streamed(good()))) as server:
        contents = np.frombuffer(plan.contents(), dtype=np.uint8)
        assert seat.start(contents, config_of(plan, server.url)) == ""
        read_until(seat, frames.READY, found, parts)
        t0_ns = time.monotonic_ns()
        recorder.start(t0_ns - AHEAD_NS)
        seat.say(f"go {t0_ns}")
        read_until(seat, frames.FINAL, found, parts)
    for payload in (payload for kind, payload in found if kind == frames.RESULTS):
        recorder.put(payload, AHEAD_NS)
    recorder.close()
    assert seat.read() == b"", "it has ended"
    seat.close()
    (final,) = [orjson.loads(payload) for kind, payload in found if kind == frames.FINAL]
    assert (final["sent"], final["reason"]) == (6, None)
    rows = pa.Table.from_batches(batches, REQUESTS).to_pylist()
    assert sorted(row["row"] for row in rows) == list(range(6))
    # By the recorder's own clock they would lie before its start by as much as the other is ahead of it.
    assert all(0 <= row["sent_s"] < AHEAD_NS / 1e9 for row in rows)
    plan.close()


def test_a_seat_that_is_left_takes_its_process_along(tmp_path: Path) -> None:
    plan, seat, found = Plan.write(plan_of(3)), Seat(), list[tuple[int, bytes]]()
    with serving_in_thread(answers(streamed(good()))) as server:
        seat.start(np.frombuffer(plan.contents(), dtype=np.uint8), config_of(plan, server.url))
        read_until(seat, frames.READY, found, frames.Frames())
        seat.close()
    plan.close()
    assert seat.read() == b""
    seat.say("stop")
    seat.kill()


def test_no_room_for_the_plan_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan.write(plan_of(1))
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    assert "no room for the plan" in Seat().start(np.frombuffer(plan.contents(), dtype=np.uint8), {})
    plan.close()
