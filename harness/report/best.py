"""The largest of several gains: held against the baseline as the best of all that were tried (Dunnett)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.measure.metrics import METRICS
from harness.measure.repeats import dunnett
from harness.measure.statistics import CONFIDENCE
from harness.report.sentences import change_with_interval, label_of
from harness.report.words import BETTER, NO_DIFFERENCE, REPEATS, WORSE

if TYPE_CHECKING:
    from harness.report.comparison import Comparison


def words_among(comparisons: Sequence[Comparison], metric: str) -> list[str]:
    """The word of each arm in a metric where all were tried against one baseline and the best will be named.

    Rows that have no word of a test keep what stands there. Where repeats do not match, or a value is 0, a row's own
    p-value counts as many times as there are arms (Bonferroni).
    """
    rows = [comparison.metrics.get(metric) for comparison in comparisons]
    tested = [
        place
        for place, row in enumerate(rows)
        if row is not None and row.over == REPEATS and row.word in (BETTER, WORSE, NO_DIFFERENCE)
    ]
    found = [row.word if row is not None else NO_DIFFERENCE for row in rows]
    values = [row.values for place in tested if (row := rows[place]) is not None]
    if not values:
        return found
    baseline = [a for a, _ in values[0]]
    same = all([a for a, _ in own] == baseline for own in values) and len(baseline) > 1
    if same and all(value > 0 for own in values for pair in own for value in pair):
        p_values = dunnett([math.log(value) for value in baseline], [[math.log(b) for _, b in own] for own in values])
    else:
        p_values = [min(1.0, len(tested) * (row.p or 0.0)) for place in tested if (row := rows[place]) is not None]
    higher = METRICS[metric.partition(".")[0]].better == "higher"
    for place, p in zip(tested, p_values, strict=True):
        row = rows[place]
        if row is None or p >= 1 - CONFIDENCE:
            found[place] = NO_DIFFERENCE
        else:
            # What the cost models or another rule forbade stays forbidden.
            found[place] = BETTER if ((row.change or 0.0) > 0) == higher else WORSE
    return found


def best_line(comparisons: Sequence[Comparison]) -> str | None:
    """The largest gain of several arms in the first headline row with a word that allows for the choice; else None."""
    usable = [one for one in comparisons if one.ranks and one.headline]
    if len(usable) < 2:
        return None
    metric = usable[0].headline[0]
    rows = [one.metrics.get(metric) for one in usable]
    if any(row is None or row.change is None or row.over != REPEATS for row in rows):
        return None
    higher = METRICS[metric.partition(".")[0]].better == "higher"
    changes = [row.change or 0.0 for row in rows if row is not None]
    best = changes.index(max(changes) if higher else min(changes))
    row, word = rows[best], words_among(usable, metric)[best]
    assert row is not None
    return (
        f"largest of {len(usable)} in {label_of(metric)}: {usable[best].b[0].spec.label} {change_with_interval(row)}: "
        f"{word} (Dunnett)"
    )
