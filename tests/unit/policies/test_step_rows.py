"""Rows and events made of what an engine puts off."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.runs.step_log import read_step_log
from policies.core import STEP_COLUMNS, PolicyState
from policies.plugin.step_log import ABORT, ARRIVAL, PREEMPTION, StepLog
from policies.plugin.step_rows import PrefillChunk, StepRows

EB, MB = PolicyState(mode="EB"), PolicyState(mode="MB")


def chunk(
    name: str, tokens: int, computed: int, prompt: int, partly: bool = False, preemptions: int = 0
) -> PrefillChunk:
    return name, tokens, computed, partly, prompt, 0 if partly else 1, 9, preemptions


def calls_of_a_run(rows: StepRows) -> list[Any]:
    """Two requests; one has its prompt in two steps, is left out of one, and is preempted; the other completes."""
    both = {"a": 12, "b": 20}
    chunks = [chunk("a", 12, 12, 12), chunk("b", 20, 20, 30, partly=True)]
    return [
        (rows.event, (ARRIVAL, 5, 12, 0, "a")),
        (rows.event, (ARRIVAL, 6, 30, 0, "b")),
        (rows.scheduled, (10, both, chunks, 0, 11, 2, 0, 0, 48, EB)),
        (rows.came, (40,)),
        (rows.scheduled, (41, {"a": 1, "b": 10}, [chunk("b", 10, 30, 30)], 1, 41, 2, 0, 0, 48, EB)),
        (rows.came, (70,)),
        (rows.scheduled, (71, {"a": 1, "b": 1}, [], 0, 71, 2, 0, 0, 48, MB)),
        # As with async scheduling: the next step is scheduled while this one runs.
        (rows.scheduled, (80, {"b": 1}, [], 0, 80, 2, 0, 0, 64, MB)),
        (rows.came, (100,)),
        (rows.finished, (3, 0, "a")),
        (rows.left, (PREEMPTION, 101, 3, 1, "b")),
        (rows.came, (130,)),
        (rows.left, (ABORT, 140, 3, 1, "b")),
    ]


EXPECTED = [
    # t, duration, phase, prefill, decodes, running, waiting, preempted, kv, then what produces, then the state
    (10, 30, 1, 32, 0, 2, 0, 0, 48, 1, 1, 1, 1, 13, 13, 13, 0),
    (41, 29, 0, 10, 1, 2, 0, 0, 48, 2, 3, 1, 2, 45, 14, 31, 0),
    (71, 29, 2, 0, 2, 2, 0, 0, 48, 2, 5, 2, 3, 47, 15, 32, 1),
    (100, 30, 2, 0, 1, 2, 0, 0, 64, 1, 3, 3, 3, 33, 33, 33, 1),
]
EVENTS = [
    ("arrival", 5, 0, "a", 12, 0),
    ("arrival", 6, 0, "b", 30, 0),
    ("admission", 11, 0, "a", 0, 0),
    ("admission", 11, 0, "b", 0, 0),
    ("finish", 100, 2, "a", 3, 0),
    ("preemption", 101, 4, "b", 3, 1),
    ("abort", 140, 4, "b", 3, 1),
]


@pytest.mark.parametrize("at_a_time", [1, 3, 100])
def test_a_run_by_hand_however_much_is_put_off(tmp_path: Path, at_a_time: int) -> None:
    rows = StepRows()
    rows.log = StepLog(tmp_path / "steps.bin", {}, rows.catch_up)
    calls = calls_of_a_run(rows)
    for i in range(0, len(calls), at_a_time):
        rows.calls.extend(calls[i : i + at_a_time])
        if at_a_time < len(calls):
            rows.catch_up()
    rows.log.close()
    log = read_step_log(tmp_path / "steps.bin", 0)
    assert len(STEP_COLUMNS) == len(EXPECTED[0])
    assert [tuple(row) for row in log.rows.tolist()] == EXPECTED
    assert [asdict(state) for state in log.states] == [asdict(EB), asdict(MB)]
    events = log.events.to_pylist()
    keys = ("event", "step", "engine_request", "tokens", "preemptions")
    assert [tuple(event[key] for key in keys) for event in events] == [event[:1] + event[2:] for event in EVENTS]
    assert [round(event["t_s"] * 1e9) for event in events] == [event[1] for event in EVENTS]
    assert not rows.pending
    assert not len(rows.progress)


def test_what_the_last_step_held() -> None:
    rows = StepRows()
    rows.calls.extend(calls_of_a_run(rows)[:5])
    rows.catch_up()
    # b's second chunk of 10 tokens ends at 30: 10 · (30 − 5); a decodes with 12 and 1 tokens.
    assert rows.content == (10, 250.0, 1, 13, 13)


def test_without_a_log_the_rows_go_nowhere() -> None:
    rows = StepRows()
    rows.calls.extend(calls_of_a_run(rows))
    rows.catch_up()
    assert not rows.calls
    assert rows.progress.num_output_tokens() == []


def test_a_call_that_fails_in_the_logs_thread_is_a_fault(tmp_path: Path) -> None:
    rows = StepRows()
    rows.log = StepLog(tmp_path / "steps.bin", {}, rows.catch_up)
    rows.calls.append((rows.came, (1,)))
    rows.log.close()
    assert isinstance(rows.log.fault, IndexError)
