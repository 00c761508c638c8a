"""The answer in a sentence: who is better, by how much, and how sure that is."""

from __future__ import annotations

from harness.compare import Comparison

_TOLD = {"output_throughput": "output tok/s", "ttft_s": "TTFT", "tpot_s": "TPOT"}


def words(comparison: Comparison) -> list[str]:
    """Lines for a terminal: B against A in throughput, TTFT and TPOT, each with its 95 % interval and word."""
    a, b = comparison.a[0].spec.policy, comparison.b[0].spec.policy
    if comparison.refusal:
        return [f"{b} against {a}: not compared: {comparison.refusal}"]
    lines = [f"{b} against {a} ({comparison.method}):"]
    for name, label in _TOLD.items():
        row = comparison.rows.get(name)
        if row is None or row.ratio is None:
            continue
        change = f"{100 * (row.ratio - 1):+.1f} %"
        if row.low is not None and row.high is not None:
            change += f" (95 % interval {100 * (row.low - 1):+.1f} … {100 * (row.high - 1):+.1f} %)"
        lines.append(f"  {label:<13} {change}: {row.word}")
    lines += [f"  note: {note}" for note in comparison.notes]
    return lines
