"""Texts as one line of a terminal or an error can hold them: cut, spelled, and the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def short(value: Any) -> str:
    """A value as a message can hold it: of a cost model its name and basis, of a digest its first digits."""
    if isinstance(value, dict):
        value = " ".join(str(value[key]) for key in ("name", "basis") if key in value) or f"{len(value)} settings"
    text = one_line(str(value))
    return text if len(text) <= 60 else f"{text[:12]}…"


def some(values: Sequence[Any], most: int = 6) -> str:
    """The first values of a list as a message can hold them, and how many more there are."""
    rest = [f"and {len(values) - most} more"] if len(values) > most else []
    return ", ".join([*map(short, values[:most]), *rest])


def _code(letter: str) -> str:
    return ascii(letter)[1:-1]


def one_line(text: str, instead: Callable[[str], str] = _code) -> str:
    """A text without line breaks or control characters: their codes, or what `instead` gives for each."""
    return "".join(letter if letter.isprintable() else instead(letter) for letter in text)


def percent(ratio: float) -> str:
    """A ratio as a change in percent, without the sign of percent: a difference is never written as none."""
    value = 100 * (ratio - 1)
    return f"{value:+.1f}" if abs(value) >= 0.05 or value == 0 else f"{value:+.1g}"


def shown(value: Any) -> str:
    """A value as an error can hold it: on one line, and not longer than a line."""
    try:
        return spelled(repr(value), 60)
    except (ValueError, RecursionError):
        return "a value too long to show"


def spelled(name: object, longest: int = 300) -> str:
    """A name as an error can hold it: control characters as their codes, the end cut off where it is too long."""
    text = one_line(str(name))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def nearest(name: str, known: Iterable[str]) -> str:
    """How the sentence `no X named Y` ends: `; did you mean Z?` for the nearest known name, or a stop."""
    names = {item.lower(): item for item in known}
    match = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f"; did you mean {names[match[0]]}?" if match else "."
