"""How many separate episodes lie beyond a percentile: twenty slow requests may be one burst."""

from __future__ import annotations

import numpy as np

from harness.measure.columns import MISSING, NANOSECONDS
from harness.measure.measured import Measured


def episodes_beyond(measured: Measured, metric: str, percent: float) -> int:
    """The groups of requests beyond the metric's percentile that were not under way together.

    A request is under way from sent to its first token where the metric is a time to the first token, else to its
    last token. Of a metric that has many values a request, one whose mean lies beyond counts.
    """
    sample = measured.samples[metric]
    limit = sample.percentile_s(percent)
    if limit is None:
        return 0
    requests = measured.requests
    means = np.asarray(sample.sums, dtype=np.float64) / np.maximum(sample.counts, 1)
    slow = np.sort(sample.units[means > limit * NANOSECONDS])
    if not len(slow):
        return 0
    place = np.searchsorted(requests.row, slow)
    start = requests.sent[place]
    end = (requests.first if metric.startswith("ttft") else requests.last)[place]
    known = (start != MISSING) & (end != MISSING)
    order = np.argsort(start[known], kind="stable")
    start, end = start[known][order], np.maximum.accumulate(end[known][order])
    # A new episode begins where all that were slow before have ended.
    return int(len(start) > 0) + int(np.count_nonzero(start[1:] > end[:-1]))
