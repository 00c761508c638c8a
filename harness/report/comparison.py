"""Compare two arms: what differs, metric by metric the ratio with its interval, and one word."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from harness.core.errors import UserError
from harness.measure.estimate import Estimate, Ratio, repeats_ratio, within_run_ratio
from harness.measure.fairness import COLUMNS, OVER_ALPHA, alpha_of
from harness.measure.measured import VIRTUAL_ENGINES, Measured, is_closed_loop, measure
from harness.measure.metrics import METRICS
from harness.measure.statistics import CONFIDENCE, LONGEST_STAY, PERCENTILES
from harness.report.arms import pair_repeats
from harness.report.comparable import (
    allowed,
    dependence,
    differences,
    refusal,
    refuse_differences,
    shared_rows,
    stream,
    undeployable,
    unequal_kv,
)
from harness.runs.run import Run, load_run

# Metrics that need an α, by what they count.
_OVER_ALPHA = {
    variant: {f"{name}{timed}{variant}" for name in OVER_ALPHA for timed in ("", "_time")} for variant in COLUMNS
}

K = TypeVar("K")
V = TypeVar("V")

BETTER, WORSE, NO_DIFFERENCE = "better", "worse", "no difference shown"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric in both arms: values, B over A with its 95 % interval and p-value, and the word for B."""

    metric: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    word: str

    def to_dict(self) -> dict[str, Any]:
        """The row of the JSON document."""
        keys = ("a", "b", "ratio", "low", "high", "p", "word", "unit")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms compared: B relative to A.

    `differences` maps what differs (a field of the spec or of the provenance) to its values in A and B.
    `refusal` says why no word is given, None where the arms are ranked. `method` says where intervals
    come from. Percentiles have rows of their own, named `ttft_s.p99`.
    """

    a: tuple[Run, ...]
    b: tuple[Run, ...]
    differences: dict[str, tuple[Any, Any]]
    notes: tuple[str, ...]
    method: str
    refusal: str | None
    rows: dict[str, Row] = field(default_factory=dict)

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
            "metrics": {name: row.to_dict() for name, row in self.rows.items()},
        }


def compare(a_dirs: Sequence[Path], b_dirs: Sequence[Path], allow: Collection[str] = frozenset()) -> Comparison:
    """Compare B's runs with A's, each arm the repeats of one spec, paired by `repeat` and seed.

    `allow` names what may differ besides the policy: fields of the spec, `trace`, `cost_model`,
    `engine_version`, `kind`. UserError, differences named, for anything else that differs. INVALID runs and
    runs of different kinds are shown and never ranked.
    """
    return compare_runs([load_run(path) for path in a_dirs], [load_run(path) for path in b_dirs], allow)


class Reading:
    """Runs read and measured for a comparison; who compares many pairs keeps one, so that each run is read once.

    The last `most` tables and as many measurements stay in memory.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._tables: dict[Path, Any] = {}
        self._measured: dict[tuple[Path, float | None], tuple[Measured, dict[str, Estimate | None]]] = {}

    def requests(self, run: Run) -> Any:
        """The run's request table."""
        return self._once(self._tables, run.path, run.requests)

    def measured(self, run: Run, alpha: float | None) -> Measured:
        """The run measured, its gaps held against α."""
        return self._estimated(run, alpha)[0]

    def estimates(self, run: Run, alpha: float | None, names: Sequence[str]) -> dict[str, Estimate | None]:
        """Estimates of the run by the names of rows, None where it does not have one."""
        measured, known = self._estimated(run, alpha)
        return {
            name: known[name] if name in known else known.setdefault(name, _estimate(name, measured)) for name in names
        }

    def _estimated(self, run: Run, alpha: float | None) -> tuple[Measured, dict[str, Estimate | None]]:
        def measure_it() -> tuple[Measured, dict[str, Estimate | None]]:
            spec = dataclasses.replace(run.spec, alpha=alpha)
            return measure(self.requests(run), run.steps(), spec, is_closed_loop(spec)), {}

        return self._once(self._measured, (run.path, alpha), measure_it)

    def _once(self, kept: dict[K, V], key: K, make: Callable[[], V]) -> V:
        value = kept.pop(key) if key in kept else make()
        # The latest stands last, so that the first is the one to go.
        kept[key] = value
        if len(kept) > self._most:
            del kept[next(iter(kept))]
        return value


def compare_runs(
    a: Sequence[Run],
    b: Sequence[Run],
    allow: Collection[str] = frozenset(),
    alpha: float | None = None,
    reading: Reading | None = None,
) -> Comparison:
    """Compare runs that are loaded already; see `compare`.

    Both arms' gaps are held against one α: `alpha`, or the one that an arm has. `reading` remembers runs from one
    comparison to the next.
    """
    reading = reading or Reading()
    pairs = pair_repeats(a, b, allow)
    refuse_differences(pairs, allow)
    found = differences(*pairs[0])
    unranked = refusal([*a, *b])
    word, reason = unranked or (None, None)
    if "reported" in {run.kind for run in (*a, *b)}:
        rows = _reported_rows(pairs[0], "not ranked")
        return Comparison(tuple(a), tuple(b), found, (), "values as reported", reason, rows)

    tables = [(reading.requests(left), reading.requests(right)) for left, right in pairs]
    paired = all(stream(left) == stream(right) for left, right in tables)
    notes = undeployable([a[0].spec, b[0].spec])
    if not paired and not unranked:
        if not allowed("stream_digest", allow):
            raise UserError(
                "not comparable, A and B replay different requests (another realised trace): run both policies "
                "in one `bench run` (to compare them all the same: --allow trace)"
            )
        notes.append("the arms replay different requests: the comparison is not paired")
    note, independent = dependence([left for left, _ in tables], pairs[0][0].spec.engine in VIRTUAL_ENGINES)
    notes += [one for one in (note, shared_rows(a), unequal_kv(pairs)) if one]
    if len(pairs) > 1 and independent:
        method = f"Student's t over {len(pairs)} paired repeats"
    else:
        pairs = pairs[:1]
        method = "one repeat: interval from within the run only (block bootstrap)"
    alphas = sorted({one for run in (*a, *b) if (one := alpha_of(run.spec)) is not None})
    held = [] if alpha is None else list(COLUMNS)
    if alpha is None and len(alphas) == 1:
        alpha = alphas[0]
        held = [variant for variant in COLUMNS if any(alpha_of(run.spec, variant) is not None for run in (*a, *b))]
    without = {name for variant, names in _OVER_ALPHA.items() if variant not in held for name in names}
    if alpha is None and alphas:
        notes.append(
            f"the arms have α of {', '.join(f'{one:g}' for one in alphas)}: no {' or '.join(OVER_ALPHA)} without one "
            "--alpha for both"
        )
    if len(pairs) == 1 and (share := max(reading.measured(one, alpha).stay for one in pairs[0])) > LONGEST_STAY:
        notes.append(
            f"a request stays for {share:.0%} of the run on average: too few stretches without common requests to "
            "give latencies an interval; use --repeat"
        )
    # In an open loop the arrivals, not the engine, decide where the steady window lies.
    closed = is_closed_loop(pairs[0][0].spec)
    names = [name for name in row_names() if name not in without and (closed or not name.endswith("_steady"))]
    estimates = [tuple(reading.estimates(run, alpha, names) for run in pair) for pair in pairs]
    rows = {}
    for name in names:
        row = _row(name, [(left[name], right[name]) for left, right in estimates], paired, word)
        if row is not None:
            rows[name] = row
    return Comparison(tuple(a), tuple(b), found, tuple(notes), method, reason, rows)


def row_names() -> list[str]:
    """Every row that a comparison can have: metrics, and the percentiles of distributions."""
    names = []
    for metric in METRICS.values():
        names.append(metric.name)
        if metric.kind == "distribution":
            names += [f"{metric.name}.p{percent}" for percent in PERCENTILES]
    return names


def _estimate(name: str, measured: Measured) -> Estimate | None:
    metric, _, statistic = name.partition(".p")
    if metric not in measured.samples:
        return measured.rates.get(metric)
    sample = measured.samples[metric]
    return sample.percentile(float(statistic)) if statistic else sample.mean()


def _row(
    name: str, estimates: list[tuple[Estimate | None, Estimate | None]], paired: bool, unranked: str | None
) -> Row | None:
    """A metric's row, None where an arm does not have it."""
    known = [(a, b) for a, b in estimates if a is not None and b is not None]
    if not known or len(known) < len(estimates):
        return None
    values = [(a.value, b.value) for a, b in known]
    a, b = (math.fsum(one) / len(values) for one in zip(*values, strict=True))
    ratio = repeats_ratio(values) if len(known) > 1 else within_run_ratio(*known[0], paired)
    metric = METRICS[name.partition(".")[0]]
    word = unranked or _word(ratio, metric.better)
    if ratio is None:
        point = b / a if a > 0 else None
        return Row(name, metric.unit, a, b, point, None, None, None, word)
    return Row(name, metric.unit, a, b, ratio.ratio, ratio.low, ratio.high, ratio.p, word)


def _word(ratio: Ratio | None, better: str) -> str:
    # Without an interval nothing is shown, whatever the point values say.
    if ratio is None or ratio.p >= 1 - CONFIDENCE or better == "neither":
        return NO_DIFFERENCE
    return BETTER if (ratio.ratio > 1) == (better == "higher") else WORSE


def _reported_rows(pair: tuple[Run, Run], word: str) -> dict[str, Row]:
    """Rows of published values: no tables, no intervals, no word."""
    rows = {}
    left, right = (run.summary.get("metrics", {}) for run in pair)
    for name, metric in METRICS.items():
        key = "value" if metric.kind == "number" else "mean"
        a, b = (side.get(name, {}).get(key) for side in (left, right))
        if a is not None and b is not None:
            rows[name] = Row(name, metric.unit, a, b, b / a if a else None, None, None, None, word)
    return rows
