"""How many drivers a rate takes, from what one was seen to do."""

from __future__ import annotations

import pytest

from harness.mock.doctor import COMFORTABLE, needed

# An event takes 10 µs of CPU, and a request 200 µs besides: 500 of 4 events a second take 0.12 of a core.
MACHINE = {
    "events_per_s": COMFORTABLE / 10e-6,
    "cores": 4,
    "open_loop": {"rate": 500.0, "cpu_share": 500 * (4 * 10e-6 + 200e-6)},
}


@pytest.mark.parametrize(
    ("rate", "output_tokens", "processes", "hosts"),
    [
        # 1,000 requests/s of 100 tokens take 1000 · (100 · 10 µs + 200 µs) = 1.2 cores, and each process 0.7 of one.
        (1000, 100, 2, 1),
        (500, 100, 1, 1),
        (1000, 1, 1, 1),
        (10_000, 100, 18, 5),
    ],
)
def test_what_a_rate_takes(rate: float, output_tokens: float, processes: int, hosts: int) -> None:
    assert needed(MACHINE, rate, output_tokens) == {
        "rate": rate,
        "output_tokens": output_tokens,
        "processes": processes,
        "hosts": hosts,
    }
