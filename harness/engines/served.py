"""What each of several replicas did of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.simulate.rows import Rows
from policies.core import STEP_COLUMNS
from workloads.core.trace import Trace

_DURATION, _PREFILL = map(STEP_COLUMNS.index, ("duration", "prefill_tokens"))


class Served:
    """Adds up requests, tokens, steps and busy time of each replica; where there is one, nothing."""

    def __init__(self, replicas: int) -> None:
        self._count = replicas
        self._sums = {name: np.zeros(replicas, dtype=np.int64) for name in _SUMS}

    def see_requests(self, rows: Rows, trace: Trace) -> None:
        """Requests that have ended."""
        if rows.request_replicas is not None:
            self._add("requests", rows.request_replicas, 1)
            self._add("prompt_tokens", rows.request_replicas, trace.prompt_tokens[rows.request_column("row")])
            self._add("output_tokens", rows.request_replicas, rows.request_column("output_tokens"))

    def see_steps(self, rows: Rows) -> None:
        """Steps that were taken."""
        if rows.step_replicas is not None:
            self._add("steps", rows.step_replicas, 1)
            self._add("busy_ns", rows.step_replicas, rows.steps[:, _DURATION])
            self._add("prefill_tokens", rows.step_replicas, rows.steps[:, _PREFILL])

    def _add(self, name: str, replicas: Any, values: Any) -> None:
        np.add.at(self._sums[name], replicas, values)

    @property
    def observed(self) -> dict[str, Any]:
        """What joins run.json: an object a replica, busy time in seconds."""
        if self._count == 1:
            return {}
        columns: dict[str, list[Any]] = {name: sums.tolist() for name, sums in self._sums.items()}
        columns["busy_s"] = [nanoseconds / 1e9 for nanoseconds in columns.pop("busy_ns")]
        return {"replicas": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}


_SUMS = ("requests", "prompt_tokens", "output_tokens", "steps", "busy_ns", "prefill_tokens")
