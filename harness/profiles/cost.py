"""What a step costs: every model answers one question (docs/cost-models.md)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt


class CostModel(Protocol):
    """Seconds that one engine step takes, given its prefill chunks and its decodes.

    `prefill_tokens` new prompt tokens; `prefill_work` Σ n(context + n/2) over the chunks, in token²;
    `decodes` requests that decode; `decode_context` Σ of their contexts, tokens; `longest` the longest one.
    """

    @property
    def name(self) -> str:
        """What the command line and the manifest call it."""

    def seconds(
        self, prefill_tokens: int, prefill_work: float, decodes: int, decode_context: int, longest: int
    ) -> float:
        """The cost of one step, s."""

    def decode_seconds(self, decodes: int, decode_context: int, longest: int, steps: int) -> npt.NDArray[np.float64]:
        """The costs of `steps` decode-only steps in a row, s, shape (steps,).

        Each context grows by one token a step: entry j equals
        `seconds(0, 0.0, decodes, decode_context + j * decodes, longest + j)` to the last bit.
        """

    def parameters(self) -> dict[str, float]:
        """The figures that decide the cost, named with their units, for the manifest."""
