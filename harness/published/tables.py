"""A run's two tables and what was measured from them, read once for all that a build computes from a run alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.measure.measured import Measured, is_closed_loop, measure
from harness.runs.run import Run


@dataclass(frozen=True, slots=True)
class RunTables:
    """The tables with the columns of `records`, `steps` None where the engine gave none, and what was measured."""

    requests: Any
    steps: Any | None
    measured: Measured

    @classmethod
    def of(cls, run: Run) -> RunTables:
        """Read from the run's directory; UserError where a table is damaged."""
        requests, steps = run.requests(), run.steps()
        return cls(requests, steps, measure(requests, steps, run.spec, is_closed_loop(run.spec)))
