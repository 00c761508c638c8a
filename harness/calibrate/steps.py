"""The steps of runs as fits take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.calibrate.fit import Floats
from harness.core.errors import UserError
from harness.runs.run import Run
from harness.runs.tables import read_table

_COLUMNS = ("duration_s", "prefill_tokens", "decode_requests", "footprint_sum", "producing")


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps that took time, an entry a step: their seconds, the prompt tokens and the requests that they computed.

    `context` sums what the decoding requests held before the step, tokens; 0 where that is unknown.
    """

    seconds: Floats
    prefill_tokens: Floats
    decodes: Floats
    context: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    def that(self, *, prefill: bool, decode: bool) -> Steps:
        """The steps that hold prefills and decodes, or that hold none."""
        return self._where(((self.prefill_tokens > 0) == prefill) & ((self.decodes > 0) == decode))

    def of_known_context(self) -> Steps:
        """The steps whose contexts are known."""
        return self._where(self.context > 0)

    def _where(self, mask: Any) -> Steps:
        return Steps(self.seconds[mask], self.prefill_tokens[mask], self.decodes[mask], self.context[mask])


def steps_of(runs: Sequence[Run]) -> Steps:
    """Every step of the runs that took time; UserError where a run has no step log."""
    columns: list[list[Floats]] = []
    for run in runs:
        table = read_table(run.path, "steps", _COLUMNS)
        if not table.num_rows:
            raise UserError(
                f"{run.path}: has no step log ({run.spec.engine}), so nothing can be fitted to it: run with an engine "
                "that records its steps (--engine vllm)"
            )
        columns.append([_floats(table, name) for name in _COLUMNS])
    seconds, prefill, decodes, footprint, producing = map(np.concatenate, zip(*columns, strict=True))
    # What stands in the log is after the step: each request has grown by its token.
    context = np.where(producing == decodes, footprint - producing, 0.0)
    took = seconds > 0
    return Steps(seconds[took], prefill[took], decodes[took], context[took])


def _floats(table: Any, name: str) -> Floats:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(table.column(name), 0).to_numpy(), dtype=np.float64)
