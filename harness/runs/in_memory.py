"""A run that nobody keeps: its rows in memory, where a run directory would write them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(slots=True)
class RowsInMemory:
    """Takes rows as a run directory does: batches of `requests` with the columns of REQUESTS, of `steps` of STEPS."""

    requests: list[pa.RecordBatch] = field(default_factory=list)
    steps: list[pa.RecordBatch] = field(default_factory=list)

    def add_requests(self, batch: pa.RecordBatch) -> None:
        """Keeps request rows."""
        self.requests.append(batch)

    def add_steps(self, batch: pa.RecordBatch) -> None:
        """Keeps step rows."""
        self.steps.append(batch)
