"""Charts as data: what the page's script draws, and the same numbers as a table for those who see no chart."""

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
    charts of a page. `mode` is lines, markers, both (`lines+markers`) or area (on top of the areas before it). `text`
    is what points say when they are pointed at, `labels` what is written beside them. `look` has what else is known of
    how it is drawn: `colour` (a name of the style sheet), `symbol`, `dash` (places in the palette), `width`, `step`,
    `connect` (lines go on over missing values), `quiet` (not in the legend and not pointed at).
    """

    name: str
    x: Sequence[Any]
    y: Sequence[Any]
    style: int = 0
    mode: str = "lines"
    text: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    boards: Sequence[str | None] | None = None  # the id of each point's board: a page's filters hide both
    hollow: bool = False  # symbols without a filling
    look: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The series as the page's script reads it; what is as usual is left out."""
        told = {
            "name": self.name,
            "x": _values(self.x),
            "y": _values(self.y),
            "style": self.style,
            "mode": self.mode,
            "text": None if self.text is None else list(self.text),
            "labels": None if self.labels is None else list(self.labels),
            "of": None if self.boards is None else list(self.boards),
            "hollow": self.hollow or None,
            **self.look,
        }
        return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its table: `id` is unique on its page, axis titles carry units.

    `marks` are lines across it, each at an x with a name; `y_words` name the places of an axis that has words.
    """

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
    marks: tuple[tuple[float, str], ...] = ()
    y_words: tuple[str, ...] = ()

    @property
    def body(self) -> Markup:
        """The rows of the table as HTML: thousands of cells, which a template is too slow for."""
        lines = ["".join(["<tr>", *map(_cell, row), "\n"]) for row in self.rows]
        return Markup("".join(lines))  # noqa: S704 - each cell is escaped

    @property
    def data(self) -> str:
        """The chart as JSON that is safe inside a script element of a page."""
        return script_json(
            {
                "title": self.title,
                "x": {"title": self.x_title, "log": self.x_log},
                "y": {"title": self.y_title, "log": self.y_log, "words": list(self.y_words)},
                "marks": [list(mark) for mark in self.marks],
                "series": self._series(),
            }
        )

    def _series(self) -> list[dict[str, Any]]:
        """The series; where one has the values of the one before it they are left out."""
        told = [series.to_dict() for series in self.series]
        shown = [dict(one) for one in told]
        for before, one, left in zip(told, told[1:], shown[1:], strict=False):
            for axis in ("x", "y"):
                if one[axis] == before[axis]:
                    del left[axis]
        return shown


# Fewer values than these are written as they are.
_WORTHWHILE = 12


def _values(values: Sequence[Any]) -> Any:
    """Numbers with four digits, more than a screen has points; evenly spaced ones as first, step and count."""
    if len(values) >= _WORTHWHILE and all(isinstance(value, int | float) for value in values):
        first, step = values[0], (values[-1] - values[0]) / (len(values) - 1)
        allowed = 1e-3 * abs(step) * len(values)
        if step and all(abs(value - first - i * step) <= allowed for i, value in enumerate(values)):
            return {"first": _short(first), "step": float(f"{step:.6g}"), "count": len(values)}
    return [_short(value) for value in values]


def _short(value: Any) -> Any:
    if isinstance(value, float):
        value = float(f"{value:.4g}")
        return int(value) if value.is_integer() and abs(value) < 1e15 else value
    return value


# The same few values fill most cells of a site; 1, 1.0 and True are written in different ways. End tags that HTML lets
# one leave out are left out: a page with ten charts has thousands of cells.
@functools.lru_cache(maxsize=1 << 16, typed=True)
def _cell(value: Any) -> str:
    if value is None:
        return "<td>–"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="num">{number(value)}'
    return f"<td>{escape(str(value))}"
