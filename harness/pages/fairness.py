"""How far apart requests that decode together were: gaps and their distribution, at every α that a reader may have."""

from __future__ import annotations

from collections.abc import Sequence

from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.courses import Lane, gap_charts
from harness.pages.facets import drawn_arms
from harness.published.detail import GAPS

# The columns of the table: metric and label.
COLUMNS = {
    "gap_mean": "Gap mean, tokens",
    "gap_p99": "Gap p99, tokens",
    "gap_max": "Gap max, tokens",
    "externality_per_token": "Externality per token",
    "violation_share": "Over the policy’s own α",
}


def fairness_charts(board: Board, lanes: Sequence[Lane]) -> list[Chart]:
    """The share of steps beyond each α, which is the distribution of gaps turned round, and the gap over time."""
    return [*_beyond(board), *gap_charts(board, lanes)]


def over_share(arm: Arm) -> list[float] | None:
    """The share of busy steps with a gap beyond each of GAPS, over the repeats; None without steps to count."""
    sums = [published.detail["sums"] for published in arm.runs]
    works = [one["fairness"] for one in sums if one and one["fairness"]]
    busy = sum(work["busy"] for work in works)
    if len(works) < len(arm.runs) or not busy:
        return None
    return [sum(work["over"][place] for work in works) / busy for place in range(len(GAPS))]


def _beyond(board: Board) -> list[Chart]:
    drawn = [(style, arm, over_share(arm)) for style, arm in enumerate(drawn_arms(board))]
    known = [(style, arm, shares) for style, arm, shares in drawn if shares is not None]
    if not known:
        return []
    percents = [(style, arm, [round(100 * share, 4) for share in shares]) for style, arm, shares in known]
    series = tuple(Series(arm.label, GAPS, shares, style, "lines+markers") for style, arm, shares in percents)
    rows = tuple((gap, *(shares[place] for *_, shares in percents)) for place, gap in enumerate(GAPS))
    return [
        Chart(
            "over-alpha",
            "Steps with a gap beyond α",
            "α, tokens",
            "% of steps in which several decode",
            series,
            ("α", *(f"{arm.label} (%)" for _, arm, _ in percents)),
            rows,
            f"{board.kind_words}; exact counts over all repeats",
        )
    ]
