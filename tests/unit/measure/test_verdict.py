"""VALID, DEGRADED, INVALID: each check at its thresholds."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.records import REQUESTS, STEPS
from harness.core.runspec import RunSpec
from harness.measure.evidence import Evidence
from harness.measure.measured import is_closed_loop, measure
from harness.measure.verdict import CHECKS, judge
from tests.support.runfactory import SPEC, request, step, table_of, toy_run

REAL_OPEN = dataclasses.replace(SPEC, engine="vllm", arrival="poisson:rate=1.0")
REAL_CLOSED = dataclasses.replace(SPEC, engine="vllm")


def verdict(
    rows: list[dict[str, Any]],
    steps: list[dict[str, Any]] | None = None,
    spec: RunSpec = REAL_OPEN,
    status: str = "complete",
    reason: str | None = None,
    log: Path | None = None,
    **manifest: Any,
) -> dict[str, Any]:
    spec = dataclasses.replace(spec, requests=manifest.pop("planned", len(rows)))
    requests = table_of(REQUESTS, rows)
    table = table_of(STEPS, steps) if steps else None
    measured = measure(requests, table, spec, is_closed_loop(spec))
    return judge(Evidence(spec, manifest, requests, table, measured, log), status, reason)


def level(found: dict[str, Any], name: str) -> str:
    return str(next(check["level"] for check in found["checks"] if check["name"] == name))


def requests(n: int, **values: Any) -> list[dict[str, Any]]:
    return [request(row, at=row * 0.1, **values) for row in range(n)]


def test_a_clean_run_is_valid_and_lists_every_check() -> None:
    found = verdict(requests(200))
    assert (found["level"], found["reasons"]) == ("VALID", [])
    assert [check["name"] for check in found["checks"]] == [check.name for check in CHECKS if check.only is None]
    assert level(found, "same_trace") == level(found, "same_engine") == "not applicable"


@pytest.mark.parametrize(
    ("lag", "expected"), [(0.005, "VALID"), (0.0051, "DEGRADED"), (0.05, "DEGRADED"), (0.051, "INVALID")]
)
def test_send_lag(lag: float, expected: str) -> None:
    rows = [one | {"sent_s": one["due_s"] + lag} for one in requests(200)]
    assert verdict(rows)["level"] == expected
    assert level(verdict(rows, spec=REAL_CLOSED), "send_lag") == "not applicable"
    if expected == "INVALID":
        assert verdict(rows)["reasons"] == ["INVALID: send lag p99: 51ms (above 50ms)".replace("ms", " ms")]


@pytest.mark.parametrize(("share", "expected"), [(0.7, "VALID"), (0.8, "DEGRADED"), (0.95, "INVALID")])
def test_client_cpu(share: float, expected: str) -> None:
    assert verdict(requests(20), client={"cpu_share": share})["level"] == expected


@pytest.mark.parametrize(("error_s", "expected"), [(0.005, "VALID"), (0.006, "DEGRADED"), (0.06, "INVALID")])
def test_clocks_of_the_driving_hosts(error_s: float, expected: str) -> None:
    found = verdict(requests(20), client={"hosts": [{"host": 1}], "clock_error_s": error_s})
    assert (found["level"], level(found, "driver_clocks")) == (expected, expected)
    alone = verdict(requests(20), client={"clock_error_s": error_s})
    assert all(check["name"] != "driver_clocks" for check in alone["checks"])


@pytest.mark.parametrize(("share", "expected"), [(0.05, "VALID"), (0.1, "DEGRADED"), (0.3, "INVALID")])
def test_a_client_that_waits_for_a_processor(share: float, expected: str) -> None:
    assert verdict(requests(20), client={"wait_share": share})["level"] == expected
    # Older runs, and kernels that do not tell.
    assert level(verdict(requests(20), client={}), "client_wait") == "not applicable"


@pytest.mark.parametrize(("late", "expected"), [(1, "VALID"), (2, "DEGRADED"), (11, "INVALID")])
def test_answers_that_came_in_bunches(late: int, expected: str) -> None:
    # One after the other, each of four tokens a second apart; all of some come with the last.
    rows = [request(row, at=4.0 * row, last_token_s=4.0 * row + 4, done_s=4.0 * row + 4) for row in range(100)]
    rows = [row | {"output_tokens": 4, "expected_output_tokens": 4} for row in rows]
    rows = [row | {"first_token_s": row["last_token_s"]} if row["row"] < late else row for row in rows]
    steps = [step(at, 1.0, 1) | {"producing": 1} for at in range(400)]
    found = verdict(rows, steps, spec=REAL_CLOSED)
    assert level(found, "delivery") == expected
    assert level(verdict(rows, spec=REAL_CLOSED), "delivery") == "not applicable"
    virtual = dataclasses.replace(REAL_CLOSED, engine="simulated")
    assert level(verdict(rows, steps, spec=virtual), "delivery") == "not applicable"


@pytest.mark.parametrize(("failed", "expected"), [(0, "VALID"), (1, "VALID"), (2, "DEGRADED"), (11, "INVALID")])
def test_errors_and_requests_that_are_too_long(failed: int, expected: str) -> None:
    rows = requests(1000)
    for row in rows[:failed]:
        row |= {"finish": "too_long", "first_token_s": None, "last_token_s": None}
    assert verdict(rows)["level"] == expected


@pytest.mark.parametrize(("busy", "expected"), [(60, "VALID"), (40, "DEGRADED"), (10, "INVALID")])
def test_steady_window_of_a_closed_loop(busy: int, expected: str) -> None:
    rows = [request(0, at=0, first_token_s=1.0, last_token_s=100.0, done_s=100.0)]
    rows += [request(1, at=0, first_token_s=1.0, last_token_s=float(busy), done_s=float(busy))]
    two = dataclasses.replace(REAL_CLOSED, arrival="closed:concurrency=2")
    # Where all are sent at once, as offline, nothing is filled again.
    assert level(verdict(rows, spec=two), "steady_window") == "not applicable"
    rows += [request(2, at=99.9, first_token_s=100.0, last_token_s=100.0, done_s=100.0)]
    assert level(verdict(rows, spec=two), "steady_window") == expected
    assert level(verdict(rows), "steady_window") == "not applicable"


@pytest.mark.parametrize(("short", "expected"), [(0, "VALID"), (1, "DEGRADED"), (3, "INVALID")])
def test_output_length(short: int, expected: str) -> None:
    rows = requests(200)
    for row in rows[:short]:
        row["expected_output_tokens"] = 5
    assert level(verdict(rows), "output_length") == expected


def test_prefix_cache() -> None:
    assert level(verdict(requests(5)), "prefix_cache") == "not applicable"
    for observed, expected in ((0.5, "VALID"), (0.52, "DEGRADED"), (0.6, "INVALID")):
        found = verdict(requests(5), prefix_cache={"declared": 0.5, "observed": observed})
        assert level(found, "prefix_cache") == expected


def test_hits_that_nobody_declared_are_held_against_nothing() -> None:
    found = verdict(requests(5), prefix_cache={"declared": None, "observed": 0.4})
    assert level(found, "prefix_cache") == "not applicable"


def test_conversations_cut_short_need_not_be_the_first_rows() -> None:
    rows = [request(row, at=row * 0.1) for row in (0, 3, 4)]
    talking = dataclasses.replace(REAL_OPEN, sessions=True)
    kept = {"planned": {"requests": 3}}
    spec = dataclasses.replace(talking, requests=6)
    requests_table = table_of(REQUESTS, rows)
    for one, expected in ((spec, "VALID"), (dataclasses.replace(spec, sessions=False), "INVALID")):
        measured = measure(requests_table, None, one, is_closed_loop(one))
        found = judge(Evidence(one, kept, requests_table, None, measured, None), "complete", None)
        assert level(found, "realised_trace") == expected


def test_rows_that_are_missing_or_were_never_planned() -> None:
    assert level(verdict(requests(5), planned=6), "realised_trace") == "INVALID"
    assert level(verdict([*requests(5), request(9)], planned=5), "realised_trace") == "INVALID"
    # A second attempt at a row is no other row.
    assert level(verdict([*requests(5), request(4, at=0.4)], planned=5), "realised_trace") == "VALID"


def test_preemptions_are_an_observation() -> None:
    rows = requests(10)
    rows[0]["preemptions"] = 1
    assert level(verdict(rows), "preemptions") == "VALID"
    rows[0]["preemptions"] = 500
    found = verdict(rows)
    assert level(found, "preemptions") == "VALID"
    assert [check["value"] for check in found["checks"] if check["name"] == "preemptions"] == [50]


@pytest.mark.parametrize(("n", "expected"), [(94, "DEGRADED"), (95, "VALID"), (10, "not applicable")])
def test_a_closed_loop_of_fewer_than_ten_waves(n: int, expected: str) -> None:
    rows, steps = toy_run(n, concurrency=10)
    found = verdict(rows, steps, dataclasses.replace(SPEC, arrival="closed:concurrency=10"))
    assert level(found, "waves") == expected
    if expected == "DEGRADED":
        assert any("--requests 100 would do" in reason for reason in found["reasons"])


@pytest.mark.parametrize(("load", "expected"), [(0.9, "VALID"), (1.2, "INVALID"), (3.0, "INVALID")])
def test_a_rate_above_capacity_is_invalid(load: float, expected: str) -> None:
    # One server of a second a request, 400 of them.
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / load, 400))
    rows, free = [], 0.0
    for row, due in enumerate(arrivals):
        start = max(free, float(due))
        free = start + 1
        rows.append(request(row, at=float(due), first_token_s=start + 0.5, last_token_s=free, done_s=free))
    found = verdict(rows)
    assert level(found, "overload") == expected
    assert any("requests/s served" in reason for reason in found["reasons"]) == (expected == "INVALID")
    assert level(verdict(rows, spec=dataclasses.replace(REAL_OPEN, arrival="offline")), "overload") == "not applicable"


@pytest.mark.parametrize(("stay", "expected"), [("longer", "VALID"), ("growing", "INVALID")])
def test_of_an_engine_where_nobody_waits_only_growth_beyond_chance_is_overload(stay: str, expected: str) -> None:
    # Longer answers in the second half double what is under way, 30 to 60 of 400; stays that grow without end do so at
    # every moment.
    rows = []
    for row in range(400):
        due = float(row)
        end = due + (max(due, 1.0) if stay == "growing" else 60.0 if row >= 200 else 30.0)
        rows.append(request(row, at=due, first_token_s=due + 0.1, last_token_s=end, done_s=end))
    assert level(verdict(rows), "overload") == expected


def test_answers_that_end_by_themselves_are_held_against_no_length() -> None:
    rows = [one | {"expected_output_tokens": 9} for one in requests(20)]
    own = dataclasses.replace(REAL_OPEN, client={"ignore_eos": False})
    assert level(verdict(rows, spec=own), "output_length") == "not applicable"
    assert level(verdict(rows), "output_length") == "INVALID"


def test_a_clock_that_runs_backwards() -> None:
    assert level(verdict(requests(5), [step(0, 1, 1), step(1, 1, 1)]), "clock") == "VALID"
    assert level(verdict(requests(5), [step(0, 1, 1), step(0.5, 1, 1)]), "clock") == "INVALID"
    rows = requests(5)
    rows[2]["sent_s"] = rows[2]["due_s"] - 1e-9
    assert level(verdict(rows), "clock") == "INVALID"


def test_an_engine_log_that_says_out_of_memory(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    assert level(verdict(requests(5), log=log), "engine_log") == "not applicable"
    log.write_text("started\nserving\n")
    assert level(verdict(requests(5), log=log), "engine_log") == "VALID"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    assert verdict(requests(5), log=log)["level"] == "INVALID"


def test_a_virtual_run_has_no_client() -> None:
    rows, steps = toy_run(100)
    found = verdict(rows, steps, spec=SPEC)
    assert found["level"] == "VALID"
    for name in ("send_lag", "client_cpu", "engine_log"):
        assert level(found, name) == "not applicable"
    assert level(found, "token_times") == "VALID"


def test_tokens_that_do_not_follow_from_the_steps() -> None:
    rows, steps = toy_run(100)
    rows[50]["output_tokens"] += 1
    rows[50]["expected_output_tokens"] += 1
    assert level(verdict(rows, steps, spec=SPEC), "token_times") == "INVALID"


def test_reasons_known_before_the_run_degrade_it() -> None:
    found = verdict(requests(5), degraded=["mixed-step cost of this pair is assumed"])
    assert found["level"] == "DEGRADED"
    assert found["reasons"] == ["DEGRADED: mixed-step cost of this pair is assumed"]


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_what_did_not_complete_is_invalid_with_the_reason_first(status: str) -> None:
    found = verdict(requests(5), status=status, reason="Ctrl-C", degraded=["assumed"])
    assert found["level"] == "INVALID"
    assert found["reasons"] == [f"INVALID: the run is {status}: Ctrl-C", "DEGRADED: assumed"]


def test_a_queue_that_grows_only_at_the_end_is_a_backlog() -> None:
    waits = [0.5] * 160 + [10.0] * 40
    rows = [
        request(row, at=row * 1.0, first_token_s=row + wait, last_token_s=row + wait + 1, done_s=row + wait + 1)
        for row, wait in enumerate(waits)
    ]
    assert level(verdict(rows), "backlog") == "DEGRADED"
    # The other way round, a start that was slow, is none.
    rows = [
        request(row, at=row * 1.0, first_token_s=row + wait, last_token_s=row + wait + 1, done_s=row + wait + 1)
        for row, wait in enumerate(reversed(waits))
    ]
    assert level(verdict(rows), "backlog") == "VALID"
