"""What comparisons need of a run besides its parts: little enough to keep of every run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.measure.columns import Requests, integers
from harness.measure.episodes import episodes_beyond
from harness.measure.fairness import COLUMNS, Fairness, values_over
from harness.measure.measured import Measured
from harness.report.words import metric_names


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one run: digests of what it was asked for in its order (`stream`) and in any (`asked`), the tokens it gave,
    and as `Measured` has them the mean stay, the share beyond capacity and the fairness.

    `values` are those of the metrics of a comparison, None where it has none; `episodes` how many lie beyond each p99.
    """

    stream: str
    asked: str
    output_tokens: int
    stay: float
    beyond: float | None
    fairness: dict[str, Fairness]
    values: dict[str, float | None]
    episodes: dict[str, int]

    @classmethod
    def of(cls, table: Any, measured: Measured) -> Facts:
        """Of a run's request table and what was measured from it."""
        names = metric_names()
        tails = (name for name in names if name.endswith(".p99") and name.partition(".")[0] in measured.samples)
        return cls(
            stream=_digest(_stream(table, measured.requests)),
            asked=_digest(_multiset(table)),
            output_tokens=int(integers(table.column("output_tokens")).sum()),
            stay=measured.stay,
            beyond=measured.beyond,
            fairness=measured.fairness,
            values={name: _value(name, measured) for name in names},
            episodes={name: episodes_beyond(measured, name.partition(".")[0], 99) for name in tails},
        )

    def over(self, alpha: float) -> dict[str, float | None]:
        """The values of the metrics that need an α."""
        return {
            f"{name}{variant}": value
            for variant in COLUMNS
            if variant in self.fairness
            for name, value in values_over(self.fairness[variant], alpha).items()
        }


def _value(name: str, measured: Measured) -> float | None:
    metric, _, percent = name.partition(".p")
    if metric not in measured.samples:
        rate = measured.rates.get(metric) if not percent else None
        return None if rate is None else rate.value
    sample = measured.samples[metric]
    if percent:
        value = sample.percentile_s(float(percent))
        return value if value is not None and value > 0 else None
    mean = sample.mean()
    return None if mean is None else mean.value


def _stream(table: Any, requests: Requests) -> Any:
    """What a run was asked for, row by row."""
    expected = integers(table.column("expected_output_tokens"))[requests.order]
    return np.stack((requests.row, requests.prompt_tokens, expected))


def _multiset(table: Any) -> Any:
    """What a run was asked for, in whatever order."""
    columns = [integers(table.column(name)) for name in ("prompt_tokens", "expected_output_tokens")]
    return np.stack(columns)[:, np.lexsort(columns)]


def _digest(values: Any) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()
