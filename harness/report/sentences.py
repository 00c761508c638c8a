"""The answer in a sentence: who is better, by how much, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.text import percent

if TYPE_CHECKING:
    from harness.report.comparison import ComparedMetric, Comparison

NOT_TESTED = "not tested"
# The metrics that the sentences are about, and what these call them.
_LABELS = {"goodput": "goodput", "output_throughput": "output tok/s", "ttft_s": "TTFT mean", "tpot_s": "TPOT mean"}


def sentences(comparison: Comparison) -> list[str]:
    """Lines for a terminal: B against A in goodput (with an SLO), throughput, TTFT and TPOT, each with its word."""
    a, b = comparison.a[0].spec.label, comparison.b[0].spec.label
    if comparison.refusal:
        return [f"{b} against {a}: not compared: {comparison.refusal}"]
    lines = [f"{b} against {a} ({comparison.method}):"]
    metrics = comparison.metrics
    labelled = {label: metrics[name] for name, label in _LABELS.items() if name in metrics}
    if labelled and all(compared.a == compared.b for compared in metrics.values()):
        lines.append("  identical, so no difference shown: every request had the same times under both")
    else:
        for label, compared in labelled.items():
            if compared.ratio is not None:
                lines.append(f"  {label:<13} {change_with_interval(compared)}: {_word_and_remedy(compared)}")
                lines += support_lines(compared)
    lines += [f"  note: {note}" for note in comparison.notes]
    return lines


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
        line += f"; published gains lay within {low:+.0f} … {high:+.0f} % of such in 80 %"
    return [line]


def change_with_interval(compared: ComparedMetric) -> str:
    """B over A: in percent, as a factor where that is beyond ten, with its 95 % interval where there is one."""
    if compared.ratio is None:
        return "-"
    is_factor = compared.ratio > 10
    change = _times(compared.ratio) if is_factor else f"{percent(compared.ratio)} %"
    if compared.low is None or compared.high is None:
        return change
    if is_factor:
        return f"{change} (95 % interval {_times(compared.low)} … {_times(compared.high)})"
    return f"{change} (95 % interval {percent(compared.low)} … {percent(compared.high)} %)"


def _times(factor: float) -> str:
    return f"×{factor:,.0f}" if factor >= 100 else f"×{factor:.3g}"


def shown_word(compared: ComparedMetric) -> str:
    """The metric's word; where no difference is shown for want of an interval nothing was tested, and that is said."""
    return NOT_TESTED if compared.low is None and compared.word == "no difference shown" else compared.word


def _word_and_remedy(compared: ComparedMetric) -> str:
    """The metric's word, and what to do where there is none."""
    word = shown_word(compared)
    return f"{NOT_TESTED} (no interval from this run: use --repeat)" if word == NOT_TESTED else word
