"""The latency pages: a board's distributions of TTFT, TPOT, ITL and E2EL, an arm a line, and a list of the boards."""

from __future__ import annotations

import math
from collections.abc import Iterable

from harness.measure.metrics import METRICS
from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import facets, filters, has_curves, kind_words, pages_of, ranked
from harness.pages.render import Writer
from harness.pages.site import Site
from harness.published.detail import CURVES, QUANTILES

# Every second percent is enough for a line among others; a run's own page has them all.
SHOWN = tuple(q for q in QUANTILES if q < 1 or q > 98 or q % 2 == 0 or q in (25, 75, 95))
SHORT = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2el_s": "E2EL"}


def write(site: Site, writer: Writer) -> None:
    """latency.html, which lists the boards, and latency/BOARD.html."""
    found = [board for board in site.boards if has_curves(board)]
    lowest = {board.id: {key: _lowest(board, key) for key in ("ttft_s.p99", "tpot_s.p99")} for board in found}
    writer.page(
        "latency.html",
        "latency.html.j2",
        boards=[(board, facets(board), lowest[board.id]) for board in found],
        filters=filters(found),
        kind_words=kind_words,
    )
    for board in found:
        writer.page(
            f"latency/{board.id}.html",
            "latency_board.html.j2",
            board=board,
            kind=kind_words(board),
            pages=pages_of(board),
            charts=charts(board),
            metrics={name: SHORT[name] for name in CURVES},
        )


def charts(board: Board) -> list[Chart]:
    """A chart a metric that an arm has; arms keep their place in the palette on all of them."""
    return [one for name in CURVES if (one := _chart(board, name)) is not None]


def curve(arm: Arm, name: str) -> list[float] | None:
    """The arm's percentiles at SHOWN, seconds: the mean over its repeats; None where a repeat has no such metric."""
    known = [entry.detail["curves"].get(name) for entry in arm.entries]
    if not all(known):
        return None
    places = [QUANTILES.index(q) for q in SHOWN]
    return [math.fsum(one[i] for one in known) / len(known) for i in places]


def _chart(board: Board, name: str) -> Chart | None:
    arms = [(i, arm, values) for i, arm in enumerate(ranked(board)) if (values := curve(arm, name)) is not None]
    if not arms:
        return None
    series = [Series(label(arm), values, SHOWN, i) for i, arm, values in arms]
    limit = board.first.run.spec.slo.get(name)
    if limit is not None:
        line = {"line": {"color": "--bad", "width": 3, "dash": "dot"}}
        series.append(Series(f"SLO {limit:g} s", [limit, limit], [0, 100], extra=line))
    repeats = max(len(arm.entries) for _, arm, _ in arms)
    told = [kind_words(board)]
    if repeats > 1:
        told.append(f"each percentile is the mean over up to {repeats} repeats")
    if limit is not None:
        told.append(f"the SLO of these runs is {limit:g} s")
    rows = tuple((q, *(values[i] for _, _, values in arms)) for i, q in enumerate(SHOWN))
    title = f"{METRICS[name].label} ({SHORT[name]})"
    unit = "seconds per output token" if name == "tpot_s" else "seconds"
    what = {"itl_s": "gaps"}.get(name, "requests")
    headers = ("percentile", *(f"{label(arm)} (s)" for _, arm, _ in arms))
    return Chart(
        name,
        title,
        f"{SHORT[name]}, {unit}",
        f"% of {what} at most this",
        tuple(series),
        headers,
        rows,
        note="; ".join(told),
        x_log=all(one > 0 for _, _, values in arms for one in values),
    )


def label(arm: Arm) -> str:
    """The arm's policy, and what it knew of output lengths."""
    return arm.first.run.spec.label


def _lowest(board: Board, key: str) -> tuple[Arm, float] | None:
    """The arm with the least of a metric, and its value."""
    known: Iterable[tuple[Arm, float]] = ((arm, arm.values[key].mean) for arm in ranked(board) if key in arm.values)
    return min(known, key=lambda one: one[1], default=None)
