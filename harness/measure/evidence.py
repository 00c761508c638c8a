"""What a verdict is made from, and how a check of it looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.runspec import RunSpec
from harness.measure.measured import VIRTUAL_ENGINES, Measured

NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a verdict is made from; tables have the columns of `records`."""

    spec: RunSpec
    manifest: dict[str, Any]
    requests: Any
    steps: Any | None
    measured: Measured
    engine_log: Path | None = None

    @property
    def virtual(self) -> bool:
        """Whether the run had no clock and no client of its own."""
        return self.spec.engine in VIRTUAL_ENGINES


@dataclass(frozen=True, slots=True)
class Check:
    """A value, and the thresholds above which (below which, if `floor`) it degrades or invalidates a run.

    `value` gives a number or, where the check cannot apply, the reason as text; `remedy` what to say of a number
    beyond a threshold. `only` says of which runs a verdict has it at all: of all, where it says nothing.
    """

    name: str
    label: str
    unit: str
    degraded: float | None
    invalid: float | None
    value: Callable[[Evidence], float | str]
    floor: bool = False
    remedy: Callable[[Evidence], str] | None = None
    only: Callable[[Evidence], bool] | None = None

    def level(self, value: float) -> str:
        """VALID, DEGRADED or INVALID by the thresholds."""
        level = "VALID"
        for name, threshold in (("DEGRADED", self.degraded), ("INVALID", self.invalid)):
            if threshold is not None and (value < threshold if self.floor else value > threshold):
                level = name
        return level

    def judge(self, evidence: Evidence) -> dict[str, Any]:
        """The check's entry in run.json."""
        value = self.value(evidence)
        entry: dict[str, Any] = {"name": self.name, "label": self.label, "unit": self.unit}
        if isinstance(value, str):
            return entry | {"level": NOT_APPLICABLE, "why": value}
        entry |= {
            "level": self.level(value),
            "value": value,
            "degraded_at": self.degraded,
            "invalid_at": self.invalid,
        }
        return entry if self.remedy is None or entry["level"] == "VALID" else entry | {"why": self.remedy(evidence)}
