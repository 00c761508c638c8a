"""Charts as data: what Plotly draws, and the same numbers as a table for those who see no chart."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from markupsafe import Markup, escape

from harness.pages.numbers import number


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element of a page, and as a script of its own."""
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    for one in "<>&\u2028\u2029":
        text = text.replace(one, f"\\u{ord(one):04x}")
    return text


@dataclass(frozen=True, slots=True)
class Series:
    """One line or cloud of a chart.

    `style` is its place in the palette (colour, dash and symbol change together), the same for one policy on all
    charts of a page. `mode` is Plotly's: lines, markers, lines+markers. `text` labels points.
    """

    name: str
    x: Sequence[Any]
    y: Sequence[Any]
    style: int = 0
    mode: str = "lines"
    text: Sequence[str] | None = None
    labels: Sequence[str] | None = None  # written beside the points instead of `text`, which then shows on pointing
    error_low: Sequence[float] | None = None
    error_high: Sequence[float] | None = None
    of: Sequence[str | None] | None = None  # the board of each point, hidden with it by the filters of a page
    hollow: bool = False  # symbols without a filling
    axis: str = "y"  # y or y2, the one on the right
    extra: dict[str, Any] = field(default_factory=dict)  # further properties of the Plotly trace


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its table: `id` is unique on its page, axis titles carry units."""

    id: str
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    headers: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    x_log: bool = False
    y_log: bool = False
    layout: dict[str, Any] = field(default_factory=dict)  # further properties of the Plotly layout

    @property
    def body(self) -> Markup:
        """The rows of the table as HTML: thousands of cells, which a template is too slow for."""
        lines = ["".join(["<tr>", *map(_cell, row), "</tr>\n"]) for row in self.rows]
        return Markup("".join(lines))  # noqa: S704 - each cell is escaped

    @property
    def data(self) -> str:
        """The chart as JSON that is safe inside a script element of a page."""
        found = {
            "title": self.title,
            "x": {"title": self.x_title, "log": self.x_log},
            "y": {"title": self.y_title, "log": self.y_log},
            "layout": self.layout,
            "series": [
                {
                    "name": one.name,
                    "x": list(one.x),
                    "y": list(one.y),
                    "style": one.style,
                    "mode": one.mode,
                    "text": None if one.text is None else list(one.text),
                    "labels": None if one.labels is None else list(one.labels),
                    "error": None
                    if one.error_low is None or one.error_high is None
                    else [list(one.error_low), list(one.error_high)],
                    "of": None if one.of is None else list(one.of),
                    "hollow": one.hollow,
                    "axis": one.axis,
                    "extra": one.extra,
                }
                for one in self.series
            ],
        }
        return script_json(found)


# The same few values fill most cells of a site; 1, 1.0 and True are written in different ways.
@functools.lru_cache(maxsize=1 << 16, typed=True)
def _cell(value: Any) -> str:
    if value is None:
        return "<td>–</td>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="num">{number(value)}</td>'
    return f"<td>{escape(str(value))}</td>"
