"""What comparisons need of a run besides its parts: little enough to keep of every run, in memory or beside it."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.measure.columns import Requests, integers
from harness.measure.episodes import episodes_beyond
from harness.measure.fairness import COLUMNS, NOTHING, Fairness, values_over
from harness.measure.measured import Measured
from harness.measure.metrics import METRICS
from harness.measure.phases import Marks, phase_values
from harness.measure.statistics import PERCENTILES


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one run: digests of what it was asked for in its order (`stream`) and in any (`asked`), the tokens it gave,
    and as `Measured` has them the mean stay, the share beyond capacity and, as far as gaps tell it, the fairness.

    `values` are those of the metrics of a comparison, None where it has none; `episodes` how many lie beyond each p99;
    `phases` the values of each phase of a load that changes by plan.
    """

    stream: str
    asked: str
    output_tokens: int
    stay: float
    beyond: float | None
    fairness: dict[str, Fairness]
    values: dict[str, float | None]
    episodes: dict[str, int]
    phases: dict[str, dict[str, float]]

    @classmethod
    def of(cls, table: Any, measured: Measured, marks: Marks = ()) -> Facts:
        """Of a run's request table, what was measured from it, and where its phases begin."""
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
            phases=phase_values(measured, marks),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values that `from_dict` reads."""
        told = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return told | {
            "fairness": {
                variant: [state.gaps.tolist(), state.counts.tolist(), state.times.tolist()]
                for variant, state in self.fairness.items()
            }
        }

    @classmethod
    def from_dict(cls, told: Any) -> Facts:
        """The facts that `to_dict` wrote; ValueError for what it never writes."""
        fits = isinstance(told, dict) and all(
            (
                set(told) == {field.name for field in dataclasses.fields(cls)},
                all(isinstance(told.get(name), str) for name in ("stream", "asked")),
                _is_count(told.get("output_tokens")),
                _is_number(told.get("stay")),
                _is_number(told.get("beyond"), or_none=True),
                _is_group(told.get("values"), lambda value: _is_number(value, or_none=True)),
                _is_group(told.get("episodes"), _is_count),
                _is_group(told.get("phases"), lambda phase: _is_group(phase, _is_number)),
                _is_group(told.get("fairness"), _is_histogram),
            )
        )
        if not fits:
            raise ValueError("no facts as bench writes them")
        return cls(**told | {"fairness": {name: _fairness(*columns) for name, columns in told["fairness"].items()}})

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


def metric_names() -> list[str]:
    """Every metric that a comparison can have: those of METRICS, and the percentiles of distributions."""
    names = []
    for metric in METRICS.values():
        names.append(metric.name)
        if metric.kind == "distribution":
            names += [f"{metric.name}.p{percent}" for percent in PERCENTILES]
    return names


def _is_number(value: Any, or_none: bool = False) -> bool:
    return (value is None and or_none) or (type(value) in (int, float) and math.isfinite(value))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_group(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(fits, value.values()))


def _is_histogram(columns: Any) -> bool:
    """Whether these are distinct ascending gaps, how often each stands, and for how long."""
    if not (isinstance(columns, list) and len(columns) == 3 and all(isinstance(column, list) for column in columns)):
        return False
    gaps = columns[0]
    fits = len({len(column) for column in columns}) == 1 and all(_is_count(one) for column in columns for one in column)
    return fits and all(map(operator.lt, gaps, gaps[1:]))


def _fairness(*columns: list[int]) -> Fairness:
    gaps, counts, times = (np.array(values, dtype=np.int64) for values in columns)
    return dataclasses.replace(NOTHING, busy=sum(columns[1]), gaps=gaps, counts=counts, times=times)
