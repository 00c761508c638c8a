"""A board's distributions of TTFT, TPOT, ITL and E2EL, an arm a line."""

from __future__ import annotations

import math

from harness.measure.metrics import METRICS
from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import drawn_arms
from harness.pages.traffic import slo_words
from harness.published.detail import CURVES, QUANTILES

# Every second percent is enough for a line among others; a run's own page has them all.
SHOWN = tuple(q for q in QUANTILES if q < 1 or q > 98 or q % 2 == 0 or q in (25, 75, 95))
SHORT = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2el_s": "E2EL"}


def charts_of(board: Board) -> list[Chart]:
    """A chart a metric that an arm has; arms keep their place in the palette on all of them."""
    charts = (_chart(board, name) for name in CURVES)
    return [chart for chart in charts if chart is not None]


def curve(arm: Arm, name: str) -> list[float] | None:
    """The arm's percentiles at SHOWN, seconds: the mean over its repeats; None where a repeat has no such metric."""
    curves = [published.detail["curves"].get(name) for published in arm.runs]
    if not all(curves):
        return None
    places = [QUANTILES.index(q) for q in SHOWN]
    return [math.fsum(values[i] for values in curves) / len(curves) for i in places]


def _chart(board: Board, name: str) -> Chart | None:
    curves = [(style, arm, curve(arm, name)) for style, arm in enumerate(drawn_arms(board))]
    drawn = [(style, arm, values) for style, arm, values in curves if values is not None]
    if not drawn:
        return None
    series = [Series(arm.label, values, SHOWN, style) for style, arm, values in drawn]
    limit = board.spec.slo.get(name)
    if limit is not None:
        line = {"colour": "bad", "width": 3, "dash": 2}
        series.append(Series(slo_words({name: limit}), [limit, limit], [0, 100], look=line))
    repeats = max(len(arm.runs) for _, arm, _ in drawn)
    notes = [board.kind_words]
    if repeats > 1:
        notes.append(f"each percentile is the mean over up to {repeats} repeats")
    if limit is not None:
        notes.append(f"the limit of these runs is {slo_words({name: limit})}")
    rows = tuple((q, *(values[i] for _, _, values in drawn)) for i, q in enumerate(SHOWN))
    title = f"{METRICS[name].label} ({SHORT[name]})"
    unit = "seconds per output token" if name == "tpot_s" else "seconds"
    what = {"itl_s": "gaps"}.get(name, "requests")
    headers = ("percentile", *(f"{arm.label} (s)" for _, arm, _ in drawn))
    return Chart(
        name,
        title,
        f"{SHORT[name]}, {unit}",
        f"% of {what} at most this",
        tuple(series),
        headers,
        rows,
        note="; ".join(notes),
        x_log=all(value > 0 for _, _, values in drawn for value in values),
    )
