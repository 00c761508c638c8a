"""Reads and measures runs for comparisons, each once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.measure.episodes import episodes_beyond
from harness.measure.estimate import Estimate
from harness.measure.measured import Measured, is_closed_loop, measure
from harness.runs.run import Run

K = TypeVar("K")
V = TypeVar("V")

Estimates = dict[str, Estimate | None]


class RunReader:
    """The tables and measurements of runs; who compares many pairs keeps one, so that each run is read once.

    The last `most` tables and as many measurements stay in memory.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._tables: dict[Path, Any] = {}
        self._measured: dict[tuple[Path, float | None], tuple[Measured, Estimates]] = {}

    def requests(self, run: Run) -> Any:
        """The run's request table."""
        return self._remembered(self._tables, run.path, run.requests)

    def measured(self, run: Run, alpha: float | None) -> Measured:
        """The run measured, its gaps held against α."""
        return self._measurement(run, alpha)[0]

    def estimates(self, run: Run, alpha: float | None, names: Sequence[str]) -> Estimates:
        """Estimates by the names of a comparison's metrics, None where the run does not have one."""
        measured, estimates = self._measurement(run, alpha)
        for name in names:
            if name not in estimates:
                estimates[name] = _estimate(name, measured)
        return {name: estimates[name] for name in names}

    def episodes(self, run: Run, alpha: float | None, name: str) -> int:
        """How many separate episodes lie beyond a percentile of the run."""
        metric, _, percent = name.partition(".p")
        return episodes_beyond(self.measured(run, alpha), metric, float(percent))

    def _measurement(self, run: Run, alpha: float | None) -> tuple[Measured, Estimates]:
        """The run measured, and the estimates made of it so far."""

        def measure_run() -> tuple[Measured, Estimates]:
            spec = dataclasses.replace(run.spec, alpha=alpha)
            measured = measure(self.requests(run), run.steps(), spec, is_closed_loop(spec))
            # A million rows twice would be a quarter of a gigabyte.
            self._tables.pop(run.path, None)
            return measured, {}

        return self._remembered(self._measured, (run.path, alpha), measure_run)

    def _remembered(self, remembered: dict[K, V], key: K, make: Callable[[], V]) -> V:
        value = remembered.pop(key) if key in remembered else make()
        # The latest stands last, so that the first is the one to go.
        remembered[key] = value
        if len(remembered) > self._most:
            del remembered[next(iter(remembered))]
        return value


def _estimate(name: str, measured: Measured) -> Estimate | None:
    metric, _, percent = name.partition(".p")
    if metric not in measured.samples:
        return measured.rates.get(metric) if not percent else None
    sample = measured.samples[metric]
    return sample.percentile(float(percent)) if percent else sample.mean()
