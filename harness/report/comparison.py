"""Compare two arms: what differs, metric by metric the ratio with its interval, and one word."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.measure.estimate import Estimate, Ratio, repeats_ratio, within_run_ratio
from harness.measure.fairness import COLUMNS, OVER_ALPHA, alpha_of
from harness.measure.measured import VIRTUAL_ENGINES, is_closed_loop
from harness.measure.metrics import METRICS
from harness.measure.statistics import CONFIDENCE, LONGEST_STAY, PERCENTILES
from harness.report.arms import pair_repeats
from harness.report.comparable import (
    allowed,
    differences,
    refuse_differences,
    repeats_that_count,
    shared_rows,
    stream_bytes,
    undeployable,
    unequal_kv,
    why_unranked,
)
from harness.report.reader import RunReader
from harness.report.support import DISAGREE, Support, supports
from harness.runs.run import Run, load_run

# Metrics that need an α, by what they count.
_OVER_ALPHA = {
    variant: {f"{name}{timed}{variant}" for name in OVER_ALPHA for timed in ("", "_time")} for variant in COLUMNS
}

BETTER, WORSE, NO_DIFFERENCE = "better", "worse", "no difference shown"

Pair = tuple[Run, Run]


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """One metric in both arms: values, B over A with its 95 % interval and p-value, and the word for B.

    `support` says whether the cost models of simulated arms agree, None where they were not asked.
    """

    metric: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    word: str
    support: Support | None = None

    def to_dict(self) -> dict[str, Any]:
        """The metric as the JSON document has it."""
        keys = ("a", "b", "ratio", "low", "high", "p", "word", "unit")
        told = {key: getattr(self, key) for key in keys}
        return told | {"support": self.support.to_dict()} if self.support else told


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms compared: B relative to A.

    `differences` maps what differs (a field of the spec or of the provenance) to its values in A and B.
    `refusal` says why no word is given, None where the arms are ranked. `method` says where intervals
    come from. Percentiles are metrics of their own, named `ttft_s.p99`.
    """

    a: tuple[Run, ...]
    b: tuple[Run, ...]
    differences: dict[str, tuple[Any, Any]]
    notes: tuple[str, ...]
    method: str
    refusal: str | None
    metrics: dict[str, ComparedMetric] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `bench compare`."""
        return {
            "a": [str(run.path) for run in self.a],
            "b": [str(run.path) for run in self.b],
            "kind": sorted({run.kind for run in self.a + self.b}),
            "differences": {name: {"a": a, "b": b} for name, (a, b) in self.differences.items()},
            "notes": list(self.notes),
            "method": self.method,
            "ranked": self.refusal is None,
            "refusal": self.refusal,
            "metrics": {name: metric.to_dict() for name, metric in self.metrics.items()},
        }


def compare(a_dirs: Sequence[Path], b_dirs: Sequence[Path], allow: Collection[str] = frozenset()) -> Comparison:
    """Compare B's runs with A's, each arm the repeats of one spec, paired by `repeat` and seed.

    `allow` names what may differ besides the policy: fields of the spec, `trace`, `cost_model`,
    `engine_version`, `kind`. UserError, differences named, for anything else that differs. INVALID runs and
    runs of different kinds are shown and never ranked.
    """
    return compare_runs([load_run(path) for path in a_dirs], [load_run(path) for path in b_dirs], allow)


def compare_runs(
    a: Sequence[Run],
    b: Sequence[Run],
    allow: Collection[str] = frozenset(),
    alpha: float | None = None,
    reader: RunReader | None = None,
) -> Comparison:
    """Compare runs that are loaded already; see `compare`.

    Both arms' gaps are held against one α: `alpha`, or the one that an arm has. `reader` remembers runs from one
    comparison to the next.
    """
    # The runs of a pair are measured for their stay and again for their metrics.
    reader = reader or RunReader(2)
    pairs = pair_repeats(a, b, allow)
    refuse_differences(pairs, allow)
    unranked = why_unranked([*a, *b])
    reason = unranked.reason if unranked else None
    if any(run.kind == "reported" for run in (*a, *b)):
        metrics = _reported_metrics(pairs[0])
        return Comparison(tuple(a), tuple(b), differences(*pairs[0]), (), "values as reported", reason, metrics)

    tables = [(reader.requests(left), reader.requests(right)) for left, right in pairs]
    paired = all(stream_bytes(left) == stream_bytes(right) for left, right in tables)
    if not (paired or unranked or allowed("stream_digest", allow)):
        raise UserError(
            "not comparable, A and B replay different requests (another realised trace): run both policies "
            "in one `bench run` (to compare them all the same: --allow trace)"
        )
    counted, dependence = _counted_pairs(pairs, [left for left, _ in tables])
    common = _common_alpha([*a, *b], alpha)
    notes = [
        *undeployable([a[0].spec, b[0].spec]),
        None if paired or unranked else "the arms replay different requests: the comparison is not paired",
        dependence,
        shared_rows(a),
        unequal_kv(pairs),
        common.note,
        _long_stay(counted, common.alpha, reader),
    ]
    return Comparison(
        a=tuple(a),
        b=tuple(b),
        differences=differences(*pairs[0]),
        notes=tuple(note for note in notes if note),
        method=_method(counted),
        refusal=reason,
        metrics=_supported(
            _compared_metrics(counted, common, paired, unranked.word if unranked else None, reader), supports(pairs)
        ),
    )


def metric_names() -> list[str]:
    """Every metric that a comparison can have: those of METRICS, and the percentiles of distributions."""
    names = []
    for metric in METRICS.values():
        names.append(metric.name)
        if metric.kind == "distribution":
            names += [f"{metric.name}.p{percent}" for percent in PERCENTILES]
    return names


def _counted_pairs(pairs: list[Pair], requests: Sequence[Any]) -> tuple[list[Pair], str | None]:
    """The pairs that count, the first alone where the repeats say nothing new, and what to say of these.

    `requests` has the request table of each repeat of A.
    """
    note, independent = repeats_that_count(requests, pairs[0][0].spec.engine in VIRTUAL_ENGINES)
    return pairs if independent else pairs[:1], note


def _method(pairs: Sequence[Pair]) -> str:
    """Where the intervals come from."""
    if len(pairs) > 1:
        return f"Student's t over {len(pairs)} paired repeats"
    return "one repeat: interval from within the run only (block bootstrap)"


@dataclass(frozen=True, slots=True)
class _CommonAlpha:
    """The α that the gaps of both arms are held against, None without one; `without` are the metrics that need one."""

    alpha: float | None
    without: frozenset[str]
    note: str | None


def _common_alpha(runs: Sequence[Run], alpha: float | None) -> _CommonAlpha:
    """One α for all runs: the one given, else the one that runs have; none where they have several."""
    if alpha is not None:
        return _CommonAlpha(alpha, frozenset(), None)
    own = sorted({own_alpha for run in runs if (own_alpha := alpha_of(run.spec)) is not None})
    if len(own) == 1:
        # A policy's own α bounds decode counts or KV footprints, and not both.
        unbounded = [variant for variant in COLUMNS if all(alpha_of(run.spec, variant) is None for run in runs)]
        return _CommonAlpha(own[0], frozenset().union(*(_OVER_ALPHA[variant] for variant in unbounded)), None)
    note = None
    if own:
        listed = ", ".join(f"{own_alpha:g}" for own_alpha in own)
        note = f"the arms have α of {listed}: no {' or '.join(OVER_ALPHA)} without one --alpha for both"
    return _CommonAlpha(None, frozenset().union(*_OVER_ALPHA.values()), note)


def _long_stay(pairs: Sequence[Pair], alpha: float | None, reader: RunReader) -> str | None:
    """What to say of a single pair whose requests stay for so long that latencies get no interval."""
    if len(pairs) > 1:
        return None
    share = max(reader.measured(run, alpha).stay for run in pairs[0])
    if share <= LONGEST_STAY:
        return None
    return (
        f"a request stays for {share:.0%} of the run on average: too few stretches without common requests to "
        "give latencies an interval; use --repeat"
    )


def _names_for(pairs: Sequence[Pair], common: _CommonAlpha) -> list[str]:
    """The metrics to compare: steady rates of closed loops only, and what needs an α where there is one."""
    # In an open loop the arrivals, not the engine, decide where the steady window lies.
    closed = is_closed_loop(pairs[0][0].spec)
    return [name for name in metric_names() if name not in common.without and (closed or not name.endswith("_steady"))]


def _compared_metrics(
    pairs: Sequence[Pair], common: _CommonAlpha, paired: bool, unranked: str | None, reader: RunReader
) -> dict[str, ComparedMetric]:
    """Every metric that both arms have; `unranked` is the word of all where the arms are not ranked."""
    names = _names_for(pairs, common)
    estimates = [tuple(reader.estimates(run, common.alpha, names) for run in pair) for pair in pairs]
    metrics = {}
    for name in names:
        compared = _compared(name, [(left[name], right[name]) for left, right in estimates], paired, unranked)
        if compared is not None:
            metrics[name] = compared
    return metrics


def _compared(
    name: str, estimates: list[tuple[Estimate | None, Estimate | None]], paired: bool, unranked: str | None
) -> ComparedMetric | None:
    """One metric over the pairs' estimates (A, B), None where an arm does not have it."""
    known = [(a, b) for a, b in estimates if a is not None and b is not None]
    if not known or len(known) < len(estimates):
        return None
    values = [(a.value, b.value) for a, b in known]
    a, b = (math.fsum(arm) / len(values) for arm in zip(*values, strict=True))
    ratio = repeats_ratio(values) if len(known) > 1 else within_run_ratio(*known[0], paired)
    metric = METRICS[name.partition(".")[0]]
    word = unranked or _word(ratio, metric.better)
    if ratio is None:
        point = b / a if a > 0 else None
        return ComparedMetric(name, metric.unit, a, b, point, None, None, None, word)
    return ComparedMetric(name, metric.unit, a, b, ratio.ratio, ratio.low, ratio.high, ratio.p, word)


def _word(ratio: Ratio | None, better: str) -> str:
    # Without an interval nothing is shown, whatever the point values say.
    if ratio is None or ratio.p >= 1 - CONFIDENCE or better == "neither":
        return NO_DIFFERENCE
    return BETTER if (ratio.ratio > 1) == (better == "higher") else WORSE


def _supported(metrics: dict[str, ComparedMetric], found: dict[str, Support]) -> dict[str, ComparedMetric]:
    """The metrics with what the cost models say of them: where they disagree, nothing is better or worse."""
    told = dict(metrics)
    for name, support in found.items():
        if (compared := metrics.get(name)) is not None:
            unsure = support.word == DISAGREE and compared.word in (BETTER, WORSE)
            told[name] = replace(compared, support=support, word=DISAGREE if unsure else compared.word)
    return told


def _reported_metrics(pair: Pair) -> dict[str, ComparedMetric]:
    """Published values side by side: no tables, no intervals, never ranked."""
    metrics = {}
    left, right = (run.summary.get("metrics", {}) for run in pair)
    for name, metric in METRICS.items():
        key = "value" if metric.kind == "number" else "mean"
        a, b = (arm.get(name, {}).get(key) for arm in (left, right))
        if a is not None and b is not None:
            ratio = b / a if a else None
            metrics[name] = ComparedMetric(name, metric.unit, a, b, ratio, None, None, None, "not ranked")
    return metrics
