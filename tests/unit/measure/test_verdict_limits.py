"""The limits of the verdict's checks, and what is said of a run under way."""

from __future__ import annotations

import pytest

from harness.measure.verdict import CHECKS, verdict_so_far

# (DEGRADED beyond, INVALID beyond). A change here changes what published runs are: `bench recover` over results/.
LIMITS: dict[str, tuple[float | None, float | None]] = {
    "send_lag": (0.005, 0.05),
    "client_cpu": (70, 90),
    "client_wait": (5, 20),
    "delivery": (1, 10),
    "held_back": (1, 10),
    "foreign": (0, 1),
    "beyond_usage": (0, 10),
    "driver_clocks": (0.005, 0.05),
    "elsewhere": (10, 30),
    "errors": (0.1, 1),
    "completed": (None, 1),
    "steady_window": (50, 20),
    "waves": (9.5, None),
    "overload": (None, 3),
    "backlog": (3, None),
    "output_length": (0, 1),
    "prefix_cache": (1, 5),
    "off_grid": (1, None),
    "realised_trace": (None, 0),
    "token_times": (None, 0),
    "step_counts": (None, 0),
    "step_tokens": (None, 0),
    "replica_balance": (None, None),
    "preemptions": (None, None),
    "clock": (None, 0),
    "engine_log": (None, 0),
    "same_trace": (None, None),
    "same_engine": (None, None),
}
FLOORS = {"completed", "steady_window", "waves"}


def test_the_limits_are_these() -> None:
    assert {check.name: (check.degraded, check.invalid) for check in CHECKS} == LIMITS
    assert {check.name for check in CHECKS if check.floor} == FLOORS


@pytest.mark.parametrize(
    ("finished", "failed", "cpu_share", "level"),
    [
        (1000, 0, 0.5, "VALID"),
        (1000, 0, None, "VALID"),
        (0, 0, None, "VALID"),
        (1000, 1, 0.7, "VALID"),
        (1000, 2, 0.1, "DEGRADED"),
        (1000, 11, 0.1, "INVALID"),
        # The client's CPU alone, and the worse of the two.
        (1000, 0, 0.71, "DEGRADED"),
        (1000, 0, 0.91, "INVALID"),
        (1000, 2, 0.91, "INVALID"),
        (1000, 11, 0.71, "INVALID"),
    ],
)
def test_a_run_under_way_is_judged_by_its_failures_and_its_clients_cpu(
    finished: int, failed: int, cpu_share: float | None, level: str
) -> None:
    assert verdict_so_far(finished, failed, cpu_share) == level
