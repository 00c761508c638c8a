"""How a change_with_interval reads: beyond a factor of ten it is a factor, and its interval stands in the same unit."""

from __future__ import annotations

import pytest

from harness.report.sentences import change_with_interval
from harness.report.words import ComparedMetric


@pytest.mark.parametrize(
    ("ratio", "low", "high", "said"),
    [
        (1.05, 1.01, 1.09, "+5.0 % (95 % interval +1.0 … +9.0 %)"),
        (0.5, None, None, "-50.0 %"),
        (90.0, 61.2, 1310.0, "×90 (95 % interval ×61.2 … ×1,310)"),
        (90.0, None, None, "×90"),
        (None, None, None, "-"),
        # Worse, and not by nothing.
        (0.99968, 0.99945, 1 - 1e-5, "-0.03 % (95 % interval -0.1 … -0.001 %)"),
        (1.0, 1.0, 1.0, "+0.0 % (95 % interval +0.0 … +0.0 %)"),
    ],
)
def test_a_change(ratio: float | None, low: float | None, high: float | None, said: str) -> None:
    assert change_with_interval(ComparedMetric("ttft_s", "s", 1.0, ratio, ratio, low, high, None, "worse")) == said
