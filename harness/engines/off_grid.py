"""How much of a run's time was priced beyond the measured tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.profiles.cost import CostModel
from harness.profiles.pair import Kernels
from policies.core import STEP_COLUMNS
from workloads.core.trace import Ints

_DURATION, _PREFILL, _DECODES, _FOOTPRINTS = map(
    STEP_COLUMNS.index, ("duration", "prefill_tokens", "decode_requests", "footprint_sum")
)


class OffGrid:
    """Adds to what a table's cost model counted itself the decode-only steps, of which an engine leaps over many."""

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost if isinstance(cost, Kernels) else None
        self._seconds = 0.0

    def see(self, steps: Ints) -> None:
        """Rows of steps, times in ns."""
        if self._cost is None:
            return
        self._seconds += int(steps[:, _DURATION].sum()) / 1e9
        alone = steps[(steps[:, _PREFILL] == 0) & (steps[:, _DECODES] > 0)]
        # A row tells what its requests hold after the step: each a token more than it had read.
        decodes = alone[:, _DECODES]
        context = (alone[:, _FOOTPRINTS] - decodes).astype(np.float64)
        self._cost.see_decodes(decodes.astype(np.float64), context, alone[:, _DURATION] / 1e9)

    def see_asked(self, prefill_tokens: int, decodes: int, decode_context: int, seconds: float) -> None:
        """One step as the cost model was asked for it."""
        if self._cost is None:
            return
        self._seconds += seconds
        if not prefill_tokens and decodes:
            self._cost.see_decodes(*(np.array([one], dtype=np.float64) for one in (decodes, decode_context, seconds)))

    @property
    def observed(self) -> dict[str, Any]:
        """What joins run.json: the share of the engine's time, and of each axis steps and share."""
        if self._cost is None:
            return {}
        counted, total = self._cost.off_grid, self._seconds or 1.0
        axes = {axis: {"steps": steps, "share": counted.seconds[axis] / total} for axis, steps in counted.steps.items()}
        return {"off_grid": {"share": sum(one["share"] for one in axes.values()), "axes": axes}}

    @property
    def notes(self) -> list[str]:
        """The same in words, where there is anything to say."""
        if self._cost is None or not self._cost.off_grid.steps:
            return []
        told = self.observed["off_grid"]
        axes = ", ".join(f"{axis} in {one['steps']:,} steps" for axis, one in told["axes"].items())
        return [f"beyond the measured kernels: {axes}, {100 * told['share']:.2f} % of the engine's time"]
