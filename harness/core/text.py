"""Texts as one line of a terminal or an error can hold them: cut, spelled, and the nearest known name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from workloads.core import options
from workloads.core.reading import one_line, shown, spelled

__all__ = ["nearest", "one_line", "percent", "short", "shown", "some", "spelled", "visible"]


def visible(text: str) -> str:
    """A text of lines in which no letter acts on a terminal: other control characters than line breaks are codes.

    So are marks that turn the direction of writing and stray bytes. JSON stays the same JSON.
    """
    if all(map(str.isprintable, text.split("\n"))):
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t\u00a0" else _json_code(letter) for letter in text)


def _json_code(letter: str) -> str:
    return json.dumps(letter)[1:-1] if letter != "\x7f" else "\\u007f"


def short(value: Any) -> str:
    """A value as a message can hold it: of a cost model its name and basis, of a digest its first digits."""
    if isinstance(value, dict):
        named = " ".join(str(value[key]) for key in ("name", "basis") if key in value)
        value = named or ", ".join(map(str, value.values()))
    text = one_line(str(value))
    return text if len(text) <= 60 else f"{text[:12]}…"


def some(values: Sequence[Any], most: int = 6) -> str:
    """The first values of a list as a message can hold them, and how many more there are."""
    rest = [f"and {len(values) - most} more"] if len(values) > most else []
    return ", ".join([*map(short, values[:most]), *rest])


def percent(ratio: float) -> str:
    """A ratio as a change in percent, without the sign of percent: a difference is never written as none."""
    value = 100 * (ratio - 1)
    return f"{value:+.1f}" if abs(value) >= 0.05 or value == 0 else f"{value:+.1g}"


def nearest(name: str, known: Iterable[str]) -> str:
    """How the sentence `no X named Y` ends: `; did you mean Z?` for the nearest known name, or a stop."""
    written = {item.lower(): item for item in known}
    near = options.nearest(name, written)
    return f"; did you mean {spelled(written[near], 60)}?" if near else "."
