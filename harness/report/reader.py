"""Reads and measures runs for comparisons, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.measure.estimate import Estimate
from harness.measure.facts import Facts
from harness.measure.fairness import OVER_ALPHA
from harness.measure.measured import Measured, is_closed_loop, measure, over_alpha
from harness.measure.phases import phase_marks
from harness.runs.run import Run
from harness.runs.thin import has_figures, told_figures

Estimates = dict[str, Estimate]


class RunReader:
    """The facts and estimates of runs; who compares many pairs keeps one, so that each run is read once.

    The last `most` measurements stay in memory, and the facts of all runs.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._facts: dict[Path, Facts] = {}
        self._measured: dict[Path, tuple[Measured, dict[float | None, Estimates]]] = {}

    def keep(self, run: Run, requests: Any, measured: Measured) -> None:
        """Takes over what somebody else has read of a run: its request table, and what was measured of both."""
        self._facts[run.path] = Facts.of(requests, measured, phase_marks(run.manifest))
        self._measured[run.path] = (measured, {})
        if len(self._measured) > self._most:
            del self._measured[next(iter(self._measured))]

    def facts(self, run: Run) -> Facts:
        """What is kept of the run."""
        if run.path not in self._facts:
            if has_figures(run.path):
                self._facts[run.path] = told_figures(run.path)[1]
            else:
                self._measurement(run)
        return self._facts[run.path]

    def values(self, run: Run, alpha: float | None) -> dict[str, float | None]:
        """Values by the names of a comparison's metrics, None where the run has none, its gaps held against α."""
        facts = self.facts(run)
        return facts.values if alpha is None else facts.values | facts.over(alpha)

    def estimate(self, run: Run, alpha: float | None, name: str) -> Estimate:
        """A value that the run has, with what each part of the run adds to it."""
        measured, known = self._measurement(run)
        if name.startswith(OVER_ALPHA) and alpha is not None:
            if alpha not in known:
                known[alpha] = over_alpha(measured, run.steps(), alpha)
            return known[alpha][name]
        estimates = known.setdefault(None, {})
        if name not in estimates:
            estimate = _estimate(name, measured)
            assert estimate is not None
            estimates[name] = estimate
        return estimates[name]

    def _measurement(self, run: Run) -> tuple[Measured, dict[float | None, Estimates]]:
        """The run measured, and the estimates made of it so far, by the α that they need."""
        if run.path not in self._measured:
            requests = run.requests()
            self.keep(run, requests, measure(requests, run.steps(), run.spec, is_closed_loop(run.spec)))
        # The latest stands last, so that the first is the one to go.
        found = self._measured[run.path] = self._measured.pop(run.path)
        return found


def _estimate(name: str, measured: Measured) -> Estimate | None:
    metric, _, percent = name.partition(".p")
    if metric not in measured.samples:
        return measured.rates.get(metric) if not percent else None
    sample = measured.samples[metric]
    return sample.percentile(float(percent)) if percent else sample.mean()
