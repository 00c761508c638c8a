"""The rows of a comparison before their words: values, change, interval, and what keeps a word away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from harness.measure import start_and_end
from harness.measure.estimate import Estimate, within_run_ratio
from harness.measure.facts import metric_names
from harness.measure.measured import is_closed_loop
from harness.measure.metrics import METRICS
from harness.measure.repeats import shift_of
from harness.report.alpha import CommonAlpha
from harness.report.reader import RunReader
from harness.report.words import (
    ABOVE_CAPACITY,
    FEW_EPISODES,
    REPEATS,
    REQUESTS,
    SET_BY_ARRIVALS,
    ComparedMetric,
    Difference,
    Rules,
    by_difference,
    decide,
    row_over_repeats,
)
from harness.runs.run import Run

Pair = tuple[Run, Run]

# What arrivals decide where every request is served in time.
_SET_BY_ARRIVALS = ("request_throughput", "output_throughput", "total_throughput")
# A tail of fewer separate episodes, over all repeats of an arm, may be one burst.
LEAST_EPISODES = 10


def compared_rows(
    pairs: Sequence[Pair],
    equals: Sequence[Sequence[Run]],
    common: CommonAlpha,
    paired: bool,
    reader: RunReader,
    share: float = 1.0,
) -> dict[str, ComparedMetric]:
    """Every metric that both arms have, without its word; `share` of one chance in twenty is left to its interval.

    `equals` are runs of one policy on one stream, a group each (A/A): they tell how runs spread.
    """
    values = [[reader.values(run, common.alpha) for run in pair] for pair in pairs]
    spread = [[reader.values(run, common.alpha) for run in group] for group in equals]
    noisy = not is_phased(pairs[0][0])
    rows = {}
    for name in _names_for(pairs, common):
        both = [(a.get(name), b.get(name)) for a, b in values]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        # A row is one of all repeats or none.
        if len(known) < len(pairs):
            continue
        groups = [[value for one in group if (value := one.get(name)) is not None] for group in spread]
        row = _row_over_repeats(name, known, groups, share)
        if row is None:
            # Nothing tells how runs spread: what the requests of the first pair tell is left.
            left, right = (reader.estimate(run, common.alpha, name) for run in pairs[0])
            is_difference = _is_difference(name, known, groups)
            row = _row_within(name, left, right, paired=paired, noisy=noisy, is_difference=is_difference)
        rows[name] = row
    return rows


def phase_rows(pairs: Sequence[Pair], reader: RunReader, rules: Rules) -> dict[str, dict[str, ComparedMetric]]:
    """By phase of a load that changes by plan its own rows, each with its word: one of all phases' exploratory rows."""
    told = [(reader.facts(a).phases, reader.facts(b).phases) for a, b in pairs]
    rows: dict[tuple[str, str], ComparedMetric] = {}
    for phase, metrics in told[0][0].items():
        for name in metrics:
            both = [(a.get(phase, {}).get(name), b.get(phase, {}).get(name)) for a, b in told]
            known = [(a, b) for a, b in both if a is not None and b is not None]
            if len(known) == len(pairs):
                row = _row_over_repeats(name, known, (), rules.share)
                # Of one repeat nothing is known but the values: ups and downs by plan are no noise.
                rows[phase, name] = row or _values_alone(name, *known[0])
    tested = sum(row.over == REPEATS for row in rows.values())
    found: dict[str, dict[str, ComparedMetric]] = {}
    for (phase, name), row in rows.items():
        own = decide({name: row}, (), rules, {}, {})[name]
        found.setdefault(phase, {})[name] = replace(own, of=tested)
    return found


def _values_alone(name: str, a: float, b: float) -> ComparedMetric:
    """A row of two values and their ratio."""
    ratio = b / a if a > 0 else None
    return ComparedMetric(name, METRICS[name].unit, a, b, ratio, None, None, None, "", values=((a, b),))


def _names_for(pairs: Sequence[Pair], common: CommonAlpha) -> list[str]:
    """The metrics to compare: steady rows of closed loops only, and what needs an α where there is one."""
    # In an open loop the arrivals, not the engine, decide where the steady window lies.
    closed = is_closed_loop(pairs[0][0].spec) and not is_phased(pairs[0][0])
    return [name for name in metric_names() if name not in common.without and (closed or not is_steady(name))]


def is_steady(name: str) -> bool:
    """Whether a metric leaves out the start and the end of a closed loop."""
    return name.partition(".")[0].endswith("_steady")


def is_phased(run: Run) -> bool:
    """Whether the load changes by plan: such a run has no steady rate, and its ups and downs are no noise."""
    source = run.manifest.get("provenance", {}).get("trace", {})
    return (isinstance(source, dict) and "phases" in source) or start_and_end.is_phased(run.spec)


def show_steady_rows(runs: Sequence[Run]) -> bool:
    """Whether tables of these runs show steady values, as their comparison's headline does."""
    return all("ttft_s_steady" in run.summary.get("metrics", {}) and not is_phased(run) for run in runs)


def _row_over_repeats(
    name: str, values: Sequence[tuple[float, float]], equals: Sequence[Sequence[float]], share: float
) -> ComparedMetric | None:
    """One metric over the pairs' values (A, B), None where nothing tells how runs spread."""
    is_difference = _is_difference(name, values, equals)
    move = (lambda value: value) if is_difference else math.log
    scale = max(abs(value) for pair in values for value in pair) if is_difference else 1.0
    shift = shift_of(
        [move(b) - move(a) for a, b in values], [[move(value) for value in group] for group in equals], scale
    )
    return None if shift is None else row_over_repeats(name, values, shift, is_difference, share)


def _is_difference(name: str, values: Sequence[tuple[float, float]], equals: Sequence[Sequence[float]]) -> bool:
    """Whether a metric is compared by B - A, which every value may say."""
    return by_difference(name, values) or any(value <= 0 for group in equals for value in group)


def _row_within(
    name: str, a: Estimate, b: Estimate, *, paired: bool, noisy: bool, is_difference: bool
) -> ComparedMetric:
    """A row of one pair: values and, where the run's own ups and downs are noise, an interval over its requests."""
    unit = METRICS[name.partition(".")[0]].unit
    values = ((a.value, b.value),)
    point = b.value / a.value if a.value > 0 else None
    if (a.value == b.value == 0) or (is_difference and _is_same(a, b)):
        same = Difference(0.0, 0.0, 0.0)
        return ComparedMetric(name, unit, a.value, b.value, 1.0, 1.0, 1.0, 1.0, "", difference=same, values=values)
    if is_difference:
        difference = Difference(b.value - a.value, None, None)
        return ComparedMetric(
            name, unit, a.value, b.value, point, None, None, None, "", difference=difference, values=values
        )
    ratio = within_run_ratio(a, b, paired) if noisy else None
    if ratio is None:
        return ComparedMetric(name, unit, a.value, b.value, point, None, None, None, "", values=values)
    # Of one repeat a p-value would be of its requests: only what is the same in all of them has one.
    p = 1.0 if ratio.low == ratio.high == 1 else None
    return ComparedMetric(
        name, unit, a.value, b.value, ratio.ratio, ratio.low, ratio.high, p, "", over=REQUESTS, values=values
    )


def _is_same(a: Estimate, b: Estimate) -> bool:
    """Whether both are the same in every part of the run, not in their value alone."""
    ratio = within_run_ratio(a, b, paired=True)
    return ratio is not None and ratio.low == ratio.high == 1


def withheld(pairs: Sequence[Pair], rows: Sequence[str], reader: RunReader) -> dict[str, tuple[str, str]]:
    """The rows that get no word of their own, each with the word that stands there and the reason."""
    told: dict[str, tuple[str, str]] = {}
    above = [run for pair in pairs for run in pair if run.is_overloaded]
    if above:
        reason = f"{above[0].spec.policy} cannot serve this rate: latencies depend on how long the run is"
        told |= {name: (ABOVE_CAPACITY, reason) for name in rows if name not in _SET_BY_ARRIVALS}
    elif all(reader.facts(run).beyond is not None for pair in pairs for run in pair):
        reason = "every request was served in time, so that the rate is the arrivals'"
        told |= {name: (SET_BY_ARRIVALS, reason) for name in rows if name in _SET_BY_ARRIVALS}
    for name in rows:
        if name.endswith(".p99") and name not in told:
            least = min(sum(reader.facts(run).episodes.get(name, 0) for run in arm) for arm in zip(*pairs, strict=True))
            if least < LEAST_EPISODES:
                reason = f"{least} separate episodes beyond it, {LEAST_EPISODES} would tell a tail from a burst"
                told[name] = (FEW_EPISODES, reason)
    return told


def reported_rows(pair: Pair) -> dict[str, ComparedMetric]:
    """Published values side by side: no tables, no intervals, never ranked."""
    rows = {}
    left, right = (run.summary.get("metrics", {}) for run in pair)
    for name, metric in METRICS.items():
        key = "value" if metric.kind == "number" else "mean"
        a, b = (arm.get(name, {}).get(key) for arm in (left, right))
        if a is not None and b is not None:
            ratio = b / a if a else None
            rows[name] = ComparedMetric(name, metric.unit, a, b, ratio, None, None, None, "not ranked")
    return rows
