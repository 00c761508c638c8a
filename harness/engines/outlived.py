"""How often the scheduler's expectation of the output was too low."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.lengths.hints import Hints


class Outlived:
    """Counts the requests that gave more output tokens than their hint allows; where there are no hints, nothing."""

    def __init__(self, hints: Hints | None) -> None:
        self._high = None if hints is None else hints.high
        self._ended = 0
        self._outlived = 0

    def see(self, rows: Any, output_tokens: Any) -> None:
        """Requests that ended: their rows in the stream and their output."""
        if self._high is not None:
            self._ended += len(rows)
            self._outlived += int(np.count_nonzero(np.asarray(output_tokens) > self._high[np.asarray(rows)]))

    @property
    def observed(self) -> dict[str, Any]:
        """What joins run.json."""
        return {} if self._high is None else {"lengths": {"outlived": self._outlived, "ended": self._ended}}

    @property
    def notes(self) -> list[str]:
        """The count in words."""
        if self._high is None:
            return []
        return [f"{self._outlived:,} of {self._ended:,} requests outlived the most that was expected of them"]
