"""The values of an arm: means over its repeats, and how far these spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.measure.statistics import t_quantile
from harness.published.corpus import PublishedRun


@dataclass(frozen=True, slots=True)
class MetricMean:
    """A metric of an arm: its mean over the repeats, and the 95 % interval where there is one."""

    mean: float
    low: float | None = None
    high: float | None = None


def means_of(repeats: Sequence[PublishedRun]) -> dict[str, MetricMean]:
    """Every metric that all repeats have, by name."""
    values = [_run_values(published) for published in repeats]
    means = {}
    for name in dict.fromkeys(name for by_name in values for name in by_name):
        mean = _mean_over_repeats([by_name.get(name) for by_name in values])
        if mean is not None:
            means[name] = mean
    return means


def _run_values(published: PublishedRun) -> dict[str, MetricMean]:
    """A run's metrics, a distribution's mean and percentiles apart: `ttft_s`, `ttft_s.p99`."""
    by_name = {}
    for name, values in published.run.summary.get("metrics", {}).items():
        central = values.get("value", values.get("mean"))
        if central is not None:
            by_name[name] = MetricMean(central, values.get("low"), values.get("high"))
        for key, value in values.items():
            if key in ("p50", "p90", "p95", "p99", "max") and value is not None:
                by_name[f"{name}.{key}"] = MetricMean(value)
    return by_name


def _mean_over_repeats(values: Sequence[MetricMean | None]) -> MetricMean | None:
    """The mean with Student's t on the repeats' spread; one repeat keeps the interval from within it.

    None where a repeat does not have the metric.
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    if len(known) == 1:
        return known[0]
    mean = math.fsum(value.mean for value in known) / len(known)
    variance = math.fsum((value.mean - mean) ** 2 for value in known) / (len(known) - 1)
    half = t_quantile(len(known) - 1) * math.sqrt(variance / len(known))
    return MetricMean(mean, mean - half, mean + half)
