"""Limits on percentiles of latency, as a user writes them: `ttft_p95=1,tpot_p95=50ms`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from harness.core.errors import UserError
from harness.core.text import nearest, shown
from harness.measure.statistics import PERCENTILES, enough
from harness.report.words import steady_name
from harness.runs.run import Run

METRICS = ("ttft", "ttft_from_sent", "tpot", "itl", "e2el")
KEYS = ("mean", *(f"p{percent}" for percent in PERCENTILES))
EXAMPLE = "--slo ttft_p95=1,tpot_p95=0.05"
_FORM = re.compile(r"(?P<metric>[a-z0-9_]+?)(?:_s)?[._](?P<key>mean|p\d+(?:\.\d+)?)")
_VALUE = re.compile(r"(?P<number>.+?)\s*(?P<unit>ms|s|)")
_UNITS_S = {"": 1.0, "s": 1.0, "ms": 1e-3}


@dataclass(frozen=True, slots=True)
class Limit:
    """What a latency's percentile (or mean) may be: `metric` and `key` as in summary.json, `limit_s` in seconds."""

    metric: str
    key: str
    limit_s: float

    @property
    def name(self) -> str:
        """The limit's name as it is written: `ttft_p95`."""
        return f"{self.metric.removesuffix('_s')}_{self.key}"

    def value_of(self, run: Run) -> float | None:
        """What the run has there, s; None where it has too few requests to tell.

        Of a closed loop that tells it, without its start and end.
        """
        metrics = run.summary.get("metrics", {})
        value = metrics.get(self.metric, {}).get(self.key)
        if run.spec.arrival.startswith("closed:"):
            steady = metrics.get(steady_name(self.metric), {}).get(self.key)
            value = value if steady is None else steady
        return None if value is None else float(value)

    def least_requests(self) -> int:
        """How many requests carry the percentile."""
        if self.key == "mean":
            return 1
        percent = float(self.key[1:])
        return next(count for count in range(1, 10_001) if enough(percent, count))


def parse_limits(text: str) -> tuple[Limit, ...]:
    """`ttft_p95=1,tpot_p95=50ms` as limits; UserError where it is not, a metric is unknown, or one stands twice."""
    limits: list[Limit] = []
    for part in text.split(","):
        name, _, value = (side.strip() for side in part.partition("="))
        form, number = _FORM.fullmatch(name), _VALUE.fullmatch(value)
        if form is None and name.removesuffix("_s") in METRICS:
            raise UserError(f"--slo {shown(part)}: say of which percentile: {name.removesuffix('_s')}_p95={value or 1}")
        if form is None or form["metric"] not in METRICS:
            metric = form["metric"] if form else name
            raise UserError(f"--slo {shown(part)}: no such metric{nearest(metric, METRICS)} Write {EXAMPLE}")
        if form["key"] not in KEYS:
            raise UserError(f"--slo {shown(part)}: {form['key']} is not kept: use one of {', '.join(KEYS)}")
        limit_s = _seconds(part, number)
        limits.append(Limit(f"{form['metric']}_s", form["key"], limit_s))
        if len({limit.name for limit in limits}) < len(limits):
            raise UserError(f"--slo {shown(text)}: {limits[-1].name} is given twice")
    return tuple(limits)


def _seconds(part: str, number: re.Match[str] | None) -> float:
    try:
        limit_s = float(number["number"]) * _UNITS_S[number["unit"]] if number else math.nan
    except ValueError:
        limit_s = math.nan
    if not 0 < limit_s < 1e9:
        raise UserError(f"--slo {shown(part)}: give a limit in seconds above 0, such as 0.05 or 50ms")
    return limit_s
