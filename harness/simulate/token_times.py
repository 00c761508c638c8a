"""When tokens came: of each request the first, and of preempted ones all, which of others follow from the steps."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np

from workloads.core.trace import Ints


class TokenTimes:
    """Times in ns, by the clock of decode steps: in a spell of decoding a token came when it began and with each tick.

    `first` has the time of each request's first token, −1 where none came, `ticks` that of each tick.
    """

    def __init__(self, requests: int) -> None:
        self.first = [-1] * requests
        self.ticks = array("q", [0])
        # Of preempted requests: when the latest spell began, ns and clock; and all that ended, with their last clock.
        self._resumed: dict[int, tuple[int, int]] = {}
        self._spells: dict[int, list[tuple[int, int, int]]] = {}
        # Of those that have all their tokens: when each came, one request after the other, and where it begins there.
        self._stamps = array("q")
        self._starts: dict[int, int] = {}

    def begin(self, completed: list[int], preempted_output_tokens: dict[int, int], now: int, clock: int) -> None:
        """These prompts are computed and gave a token; of preempted requests it is not the first."""
        first = self.first
        for request in completed:
            if request in preempted_output_tokens:
                self._resumed[request] = (now, clock)
            else:
                first[request] = now

    def end(self, request: int, num_output_tokens: int, clock: int) -> None:
        """The spell of a request that was or is preempted ends; it has so many output tokens."""
        began, entry = self._resumed.get(request, (self.first[request], clock - num_output_tokens + 1))
        self._spells.setdefault(request, []).append((began, entry, clock))

    def finish(self, request: int, num_output_tokens: int, clock: int) -> None:
        """The last spell of a request ends: it has all its tokens, and their times are kept."""
        self.end(request, num_output_tokens, clock)
        self._resumed.pop(request, None)
        stamps, ticks = self._stamps, self.ticks
        self._starts[request] = len(stamps)
        for began, entry, last in self._spells.pop(request):
            stamps.append(began)
            stamps.extend(ticks[entry + 1 : last + 1])

    def drain(self) -> dict[int, Ints]:
        """The gaps between the tokens of each request whose times were kept since the last call."""
        stamps, starts = np.frombuffer(self._stamps, dtype=np.int64), self._starts
        self._stamps, self._starts = array("q"), {}
        gaps = stamps[1:] - stamps[:-1]
        bounds = [*starts.values(), len(stamps)]
        return {request: gaps[start : end - 1] for request, (start, end) in zip(starts, pairwise(bounds), strict=True)}
