"""A workload as a page that opens anywhere: lengths, hazard, rate and r on the way, phases marked."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import UserError
from harness.trace.stats import hazard_of, phase_rows
from workloads.core.trace import Floats, Ints, Trace

INK, BLUE, RED, GREY = "#222222", "#2f6db3", "#c0392b", "#888888"
PIECES = 120
_STEPPED = {"color": BLUE, "shape": "hvh"}


def plot_trace(trace: Trace, out: Path) -> None:
    """Write the page, self-contained; UserError where it cannot be written or plotly is not there."""
    if out.suffix not in (".html", ".htm"):
        raise UserError(f"--out {out}: the name must end in .html")
    try:
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots
    except ImportError:
        raise UserError("bench trace plot needs plotly: pip install plotly") from None
    figure = make_subplots(
        rows=3,
        cols=2,
        specs=[[{}, {}], [{"colspan": 2}, None], [{}, {}]],
        subplot_titles=("Prompt length", "Output length", "Hazard of the output length", *_titles(trace)),
        vertical_spacing=0.11,
    )
    _lengths(figure, trace, go)
    _hazard(figure, trace, go)
    _over_time(figure, trace, go)
    title = escape(f"{trace.source.get('workload', trace.label)}: {len(trace):,} requests")
    figure.update_layout(
        title={"text": f"{title}<br><sub>{_subtitle(trace)}</sub>"}, template="plotly_white", height=1050,
        font_color=INK, margin={"t": 110},
    )  # fmt: skip
    try:
        figure.write_html(out, include_plotlyjs=True, div_id="trace")
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written: {error.strerror}") from None


def _subtitle(trace: Trace) -> str:
    source = trace.source
    facts = [source.get("data_set"), source.get("licence"), f"kind {source.get('kind')}", f"digest {trace.digest[:16]}"]
    return escape(" · ".join(str(fact) for fact in facts if fact))


def _titles(trace: Trace) -> tuple[str, str]:
    """What the last row shows, by whether the trace has times."""
    timed = trace.timestamp_s is not None
    return ("Arrival rate" if timed else "Mean lengths in the trace's order", "Decode ratio r")


def _rate_axis(trace: Trace) -> str:
    return "arrivals (requests/s)" if trace.timestamp_s is not None else "mean prompt + output (tokens)"


def _lengths(figure: Any, trace: Trace, go: Any) -> None:
    """The first row: how long prompts and outputs are."""
    for col, (lengths, what) in enumerate(((trace.prompt_tokens, "prompt"), (trace.output_tokens, "output")), 1):
        middles, shares = length_shares(lengths)
        outline = go.Scatter(x=middles, y=shares, line=_STEPPED, fill="tozeroy", showlegend=False)
        figure.add_trace(outline, row=1, col=col)
        figure.update_xaxes(title_text=f"{what} length (tokens)", type="log", row=1, col=col)
        figure.update_yaxes(title_text="share of requests a bin (%)", rangemode="tozero", row=1, col=col)


def _over_time(figure: Any, trace: Trace, go: Any) -> None:
    """The last row: the rate and r on the way, with the phases of a drift marked."""
    x, unit, rate, ratio = over_time(trace)
    for col, (values, title) in enumerate(((rate, _rate_axis(trace)), (ratio, "r = decode tokens / all tokens")), 1):
        figure.add_trace(go.Scatter(x=x, y=values, line=_STEPPED, showlegend=False), row=3, col=col)
        figure.update_xaxes(title_text=unit, row=3, col=col)
        figure.update_yaxes(title_text=title, rangemode="tozero", row=3, col=col)
        for at, name in marks_at(trace):
            figure.add_vline(
                x=at, line_dash="dot", line_color=GREY, annotation_text=escape(name), annotation_font_size=10,
                annotation_textangle=-90, annotation_position="bottom right", row=3, col=col,
            )  # fmt: skip


def _hazard(figure: Any, trace: Trace, go: Any) -> None:
    """The row between: the hazard in bins of equal exposure, the line through it and its mean."""
    hazard = hazard_of(trace.output_tokens)
    dots = go.Scatter(x=hazard.ages, y=hazard.rates, mode="markers", marker_color=BLUE, name="bins of equal exposure")
    figure.add_trace(dots, row=2, col=1)
    ends = np.array([0.0, float(hazard.ages[-1])])
    line = hazard.p0 + hazard.eta * ends
    name = f"p0 + η·t: {hazard.p0:.3g} + {hazard.eta:.3g}·t"
    figure.add_trace(go.Scatter(x=ends, y=line, mode="lines", line_color=RED, name=name), row=2, col=1)
    flat = go.Scatter(
        x=ends, y=[hazard.p_bar] * 2, mode="lines", line={"color": GREY, "dash": "dash"}, name=f"p̄ = {hazard.p_bar:.3g}"
    )
    figure.add_trace(flat, row=2, col=1)
    figure.update_xaxes(title_text="age: output tokens so far (up to the 95th percentile)", row=2, col=1)
    figure.update_yaxes(title_text="hazard (1/token)", rangemode="tozero", row=2, col=1)


def length_shares(values: Ints) -> tuple[Floats, Floats]:
    """Middles (tokens) and shares of requests (%) of up to 60 bins, even on a log scale and of whole tokens."""
    low, high = int(values.min()), int(values.max())
    edges = np.unique(np.geomspace(low, high + 1, 61).round().astype(np.int64)) - 0.5
    counts = np.histogram(values, edges)[0]
    # A bin of length 0 on either side lets the outline come down to nothing.
    middles = np.concatenate([[edges[0]], np.sqrt(edges[:-1] * edges[1:]), [edges[-1]]])
    return middles, np.concatenate([[0.0], 100 * counts / len(values), [0.0]])


def over_time(trace: Trace) -> tuple[Floats, str, Floats, Floats]:
    """Middles of equal pieces of the trace, their unit, the rate in each, and r in each (NaN where none arrived).

    By seconds where the trace has times; else by rows, with mean lengths in place of a rate.
    """
    times = trace.timestamp_s
    pieces = max(1, min(PIECES, len(trace) // 20))
    timed = times is not None and float(times[-1]) > 0
    at = times if timed and times is not None else np.arange(len(trace), dtype=np.float64)
    edges = np.linspace(0.0, float(at[-1]) if timed else float(len(trace)), pieces + 1)
    counts = np.histogram(at, edges)[0].astype(np.float64)
    prompt = np.histogram(at, edges, weights=trace.prompt_tokens)[0]
    output = np.histogram(at, edges, weights=trace.output_tokens)[0]
    tokens = prompt + output
    ratio = np.divide(output, tokens, out=np.full(pieces, np.nan), where=tokens > 0)
    mean = np.divide(tokens, counts, out=np.full(pieces, np.nan), where=counts > 0)
    rate = counts / np.diff(edges) if timed else mean
    unit = "time since the first request (s)" if timed else "request, in the trace's order"
    return np.asarray((edges[:-1] + edges[1:]) / 2), unit, rate, ratio


def marks_at(trace: Trace) -> list[tuple[float, str]]:
    """Where each phase begins, on the axis of `over_time`, and its name."""
    times = trace.timestamp_s
    timed = times is not None and float(times[-1]) > 0
    return [
        (float(times[rows.start]) if timed and times is not None else float(rows.start), mark["name"])
        for mark, rows in phase_rows(trace)
    ]
