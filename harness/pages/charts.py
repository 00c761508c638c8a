"""Charts as data: what Plotly draws, and the same numbers as a table for those who see no chart."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from markupsafe import Markup, escape

from harness.core.text import visible
from harness.pages.numbers import number


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element of a page, and as a script of its own."""
    text = visible(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode())
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
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
    boards: Sequence[str | None] | None = None  # the id of each point's board: a page's filters hide both
    hollow: bool = False  # symbols without a filling
    axis: str = "y"  # y or y2, the one on the right
    extra: dict[str, Any] = field(default_factory=dict)  # further properties of the Plotly trace

    def to_dict(self) -> dict[str, Any]:
        """The series as the page's script reads it."""
        error = None
        if self.error_low is not None and self.error_high is not None:
            error = [list(self.error_low), list(self.error_high)]
        return {
            "name": self.name,
            "x": list(self.x),
            "y": list(self.y),
            "style": self.style,
            "mode": self.mode,
            "text": None if self.text is None else list(self.text),
            "labels": None if self.labels is None else list(self.labels),
            "error": error,
            "of": None if self.boards is None else list(self.boards),
            "hollow": self.hollow,
            "axis": self.axis,
            "extra": self.extra,
        }


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
        return script_json(
            {
                "title": self.title,
                "x": {"title": self.x_title, "log": self.x_log},
                "y": {"title": self.y_title, "log": self.y_log},
                "layout": self.layout,
                "series": [series.to_dict() for series in self.series],
            }
        )


# The same few values fill most cells of a site; 1, 1.0 and True are written in different ways.
@functools.lru_cache(maxsize=1 << 16, typed=True)
def _cell(value: Any) -> str:
    if value is None:
        return "<td>–</td>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="num">{number(value)}</td>'
    return f"<td>{escape(str(value))}</td>"
