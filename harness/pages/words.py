"""How pages write numbers."""

from __future__ import annotations


def number(value: float | None, digits: int = 4) -> str:
    """A number for eyes: grouped thousands, four digits, a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def seconds(value: float | None) -> str:
    """A time with its unit: milliseconds under one second."""
    if value is None:
        return "–"
    return f"{number(value * 1e3, 3)} ms" if abs(value) < 1 else f"{number(value, 3)} s"


def change(ratio: float | None) -> str:
    """A ratio as a change in percent, as a factor beyond ten."""
    if ratio is None:
        return "–"
    return f"×{ratio:,.3g}" if ratio > 10 else f"{100 * (ratio - 1):+.1f} %"


def exact(value: float | None) -> str:
    """A number as an input holds it: the shortest form that reads back the same, nothing where there is none."""
    return "" if value is None else repr(value)
