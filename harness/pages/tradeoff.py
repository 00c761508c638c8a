"""A board's throughput against the latencies that its users see, an arm a point."""

from __future__ import annotations

from typing import Any

from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import drawn_arms

# Metric, what it is called, and its axis.
LATENCIES = (
    ("ttft_s", "time to first token", "TTFT mean, seconds"),
    ("tpot_s", "time per output token", "TPOT mean, seconds per output token"),
)


def rate_of(board: Board) -> tuple[str, str]:
    """The rate that counts on a board, and its axis: with limits what met them."""
    if board.spec.slo:
        return board.row("goodput"), "requests per second within the limits"
    return board.row("output_throughput"), "output tokens per second of the GPU"


def tradeoff_charts(board: Board) -> list[Chart]:
    """The rate that counts over TTFT and over TPOT; better is up and to the left."""
    rate, axis = rate_of(board)
    charts = []
    for name, words, x_title in LATENCIES:
        latency = board.row(name)
        arms = [(style, arm) for style, arm in enumerate(drawn_arms(board)) if {rate, latency} <= arm.values.keys()]
        if not arms:
            continue
        rows: list[tuple[Any, ...]] = [(arm.label, arm.values[latency].mean, arm.values[rate].mean) for _, arm in arms]
        charts.append(
            Chart(
                f"against-{name.removesuffix('_s')}",
                f"Throughput against {words}",
                x_title,
                axis,
                tuple(_point(style, arm, latency, rate) for style, arm in arms),
                ("policy", x_title, axis),
                tuple(rows),
                f"{board.kind_words}; better is up and to the left",
                x_log=_wide([row[1] for row in rows]),
            )
        )
    return charts


def _wide(values: list[float]) -> bool:
    """Whether values lie so far apart that they need a logarithmic axis."""
    return min(values) > 0 and max(values) > 4 * min(values)


def _point(style: int, arm: Arm, latency: str, rate: str) -> Series:
    x, y = arm.values[latency].mean, arm.values[rate].mean
    label = arm.label if len(arm.label) <= 24 else f"{arm.label[:23]}…"
    return Series(arm.label, [x], [y], style, "markers", [arm.label], labels=[label])
