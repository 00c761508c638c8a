"""The steady window: the part of a run in which the client keeps its load up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.measure.columns import MISSING, NANOSECONDS, Requests
from harness.measure.statistics import Ints

SHARE_OF_PEAK = 0.9
WITHOUT_WAVES = ", without the first wave and the last"


@dataclass(frozen=True, slots=True)
class Window:
    """A span of the run, ns, the peak of requests in flight that it was cut by, and whether waves were left out."""

    start: int
    end: int
    peak: int
    of_full_waves: bool = False

    def to_dict(self) -> dict[str, float | str]:
        """The window as it stands in summary.json, s."""
        rule = f"longest span with at least 90 % of the peak of {self.peak} requests in flight"
        return {
            "start_s": self.start / NANOSECONDS,
            "end_s": self.end / NANOSECONDS,
            "rule": f"{rule}{WITHOUT_WAVES}" if self.of_full_waves else rule,
        }

    def within(self, start: int, end: int) -> Window:
        """What of the window lies between the first wave of a closed loop and its last one; all where nothing does."""
        start, end = max(start, self.start), min(end, self.end)
        return Window(start, end, self.peak, of_full_waves=True) if start < end else self


def leaves_out_waves(told: Any) -> bool:
    """Whether a window of a summary.json is none, or was made by the rule of today."""
    return not isinstance(told, dict) or not str(told.get("rule")).endswith("in flight")


def steady_window(requests: Requests, closed_loop: bool) -> Window | None:
    """The longest span with at least 90 % of the peak number of requests in flight; the first of equals.

    In flight: from sent to done. In a closed loop from due, the moment the slot became free: else the
    client's own turn-around would end the window at every request when few are in flight. A request
    without an end stays to the end of the run. None where nothing was sent.
    """
    was_sent = requests.sent != MISSING
    if not was_sent.any():
        return None
    start = (requests.due if closed_loop else requests.sent)[was_sent]
    start = np.where(start == MISSING, requests.sent[was_sent], start)
    done = requests.done[was_sent]
    end_of_run = max(int(done.max()), int(requests.last.max()), int(requests.sent.max()))
    end = np.maximum(np.where(done == MISSING, end_of_run, done), start)
    return longest_span(start, end)


def longest_span(start: Ints, end: Ints) -> Window | None:
    """The longest span in which at least 90 % of the peak of the intervals [start, end) overlap."""
    start, end = np.sort(start), np.sort(end)
    times = np.union1d(start, end)
    level = np.searchsorted(start, times, side="right") - np.searchsorted(end, times, side="right")
    peak = int(level.max())
    if peak == 0:
        return None
    high = np.concatenate(([False], level >= math.ceil(SHARE_OF_PEAK * peak - 1e-9), [False]))
    rises = np.flatnonzero(high[1:] & ~high[:-1])
    # The level after the last event is 0, so every rise has its fall.
    falls = np.flatnonzero(~high[1:] & high[:-1])
    best = int(np.argmax(times[falls] - times[rises]))
    return Window(int(times[rises[best]]), int(times[falls[best]]), peak)
