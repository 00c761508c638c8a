"""Whole numbers that come from outside: a server's answer, an engine's log, a stranger's file."""

from __future__ import annotations

from typing import Any

# What lies beyond counts nothing of a run, and sums of it would leave 64 bits.
MOST = 10**12


def count_of(value: Any) -> int | None:
    """The count that a JSON value is, 0 … MOST; None where it is none: below 0, beyond, a fraction, no number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON knows one kind of number: 16.0 is 16
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST else None
