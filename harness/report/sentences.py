"""The answer in a sentence: who is better, by how much, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.text import percent
from harness.measure.metrics import METRICS
from harness.measure.statistics import CONFIDENCE
from harness.report.words import (
    BETTER,
    EXPLORATORY,
    NO_DIFFERENCE,
    NOT_TESTED,
    REPEATS,
    REQUESTS,
    WORSE,
    ComparedMetric,
)

if TYPE_CHECKING:
    from harness.report.comparison import Comparison

# What the sentences call a metric; others go by their names.
_LABELS = {
    "goodput": "goodput",
    "output_throughput": "output tok/s",
    "request_throughput": "requests/s",
    "total_throughput": "total tok/s",
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "itl_s": "ITL",
    "e2el_s": "E2EL",
}
# Shares are told in points.
_POINTS = "violation_share"
ONE_REPEAT = "one repeat, no word: use --repeat 5, or --aa 5 on a real engine"


def sentences(comparison: Comparison) -> list[str]:
    """Lines for a terminal: B against A in the headline rows, each with its word."""
    a, b = comparison.a[0].spec.label, comparison.b[0].spec.label
    if comparison.refusal:
        return [f"{b} against {a}: not compared: {comparison.refusal}"]
    rows = {name: comparison.metrics[name] for name in comparison.headline}
    steady = "; start and end left out" if any("_steady" in name for name in rows) else ""
    lines = [f"{b} against {a} ({comparison.method}{steady}):"]
    if rows and all(compared.is_identical for compared in comparison.metrics.values()):
        lines.append("  identical, so no difference shown: every request had the same times under both")
    else:
        for name, compared in rows.items():
            if compared.change is not None:
                lines.append(f"  {label_of(name):<13} {change_with_interval(compared)}: {word_with_plan(compared)}")
                lines += support_lines(compared)
    lines += [f"  {line}" for line in phase_lines(comparison)]
    lines += [f"  note: {note}" for note in comparison.notes]
    return lines


def phase_lines(comparison: Comparison) -> list[str]:
    """A line a phase of a load that changes by plan: each of its rows with its word."""
    return [
        f"only {phase}: " + ", ".join(f"{label_of(name)} {_brief(row)}" for name, row in rows.items())
        for phase, rows in comparison.phases.items()
    ]


def _brief(compared: ComparedMetric) -> str:
    change = "-" if compared.ratio is None else f"{percent(compared.ratio)} %"
    return f"{change} ({shown_word(compared)})"


def label_of(name: str) -> str:
    """What a sentence calls a metric: `output tok/s`, `TTFT mean`, `TPOT p99`."""
    base, _, percentile = name.replace("_steady", "").partition(".")
    label = _LABELS.get(base, base)
    if METRICS[name.partition(".")[0]].kind == "distribution":
        return f"{label} {percentile or 'mean'}"
    return label


def support_words(compared: ComparedMetric) -> str:
    """The change under each cost model, and whether they agree; empty where arms were not held against others."""
    support = compared.support
    if support is None:
        return ""
    told = ", ".join(f"{model} {change:+.1f} %" for model, change in support.changes.items())
    alone = " (one cost model alone)" if len(support.changes) == 1 else ""
    return f"{told}: {support.word}{alone}"


def support_lines(compared: ComparedMetric) -> list[str]:
    """The same as a line of a terminal, with the band; none where arms were not held against others."""
    support = compared.support
    if support is None:
        return []
    line = f"    by cost model: {support_words(compared)}"
    if support.band is not None:
        low, high = support.band
        line += f"; the real gain was {low:+.0f} … {high:+.0f} % in 8 of 10 published cases"
    return [line]


def change_with_interval(compared: ComparedMetric) -> str:
    """B over A: in percent, as a factor where that is beyond ten, with its 95 % interval where there is one.

    B - A in the metric's unit, shares in points, where it is compared by difference.
    """
    if compared.difference is not None and not (compared.ratio == 1 and compared.is_identical):
        return _difference(compared)
    if compared.ratio is None:
        return "-"
    is_factor = compared.ratio > 10
    change = _times(compared.ratio) if is_factor else f"{percent(compared.ratio)} %"
    if compared.low is None or compared.high is None:
        return change
    over = " over requests" if compared.over == REQUESTS else ""
    if is_factor:
        return f"{change} (95 % interval{over} {_times(compared.low)} … {_times(compared.high)})"
    return f"{change} (95 % interval{over} {percent(compared.low)} … {percent(compared.high)} %)"


def _difference(compared: ComparedMetric) -> str:
    difference = compared.difference
    assert difference is not None
    scale, unit = (100, "points") if compared.metric.startswith(_POINTS) else (1, compared.unit)
    change = f"{scale * difference.value:+.4g} {unit}".rstrip()
    if difference.low is None or difference.high is None:
        return change
    return f"{change} (95 % interval {scale * difference.low:+.4g} … {scale * difference.high:+.4g})"


def _times(factor: float) -> str:
    return f"×{factor:,.0f}" if factor >= 100 else f"×{factor:.3g}"


def shown_word(compared: ComparedMetric) -> str:
    """The row's word as it is shown: an exploratory row says of how many it is one."""
    if compared.role == EXPLORATORY and compared.word in (BETTER, WORSE):
        return f"{compared.word} (1 of {compared.of})"
    return compared.word


def could_have_shown(compared: ComparedMetric) -> str:
    """What could have been shown: `± 6.1 %; 11 repeats for ± 5 %`; empty where a difference is shown."""
    if compared.word != NO_DIFFERENCE or compared.over != REPEATS or compared.is_identical:
        return ""
    if compared.shown_from is None:
        return ""
    if compared.difference is not None:
        scale, unit = (100, "points") if compared.metric.startswith(_POINTS) else (1, compared.unit)
        return f"± {scale * compared.shown_from:.2g} {unit}".rstrip()
    told = f"± {100 * compared.shown_from:.2g} %"
    if compared.plan is not None:
        share, repeats = compared.plan
        told += f"; {repeats} repeats for ± {100 * share:g} %"
    return told


def word_with_plan(compared: ComparedMetric) -> str:
    """The word with what belongs beside it: what could have been shown, or why there is no word."""
    word = shown_word(compared)
    if word == NOT_TESTED:
        return f"{NOT_TESTED} ({ONE_REPEAT})"
    p, family = compared.p, compared.p_family
    if word == NO_DIFFERENCE and p is not None and family is not None and p < 1 - CONFIDENCE <= family:
        return f"{word} (p {family:.2g} as one of {compared.of})"
    beside = could_have_shown(compared) or compared.why
    return f"{word} ({beside})" if beside else word
