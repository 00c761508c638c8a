"""When a server wants a request again: Retry-After in both its forms, and retry-after-ms."""

from __future__ import annotations

import datetime
import email.utils
import math

# Where a server says nothing that can be read.
UNSAID_S = 1.0
# What is asked for beyond this is waited for no longer: the request's own time-out comes first.
MOST_S = 1e7


def wait_s(retry_after: bytes, date: bytes, retry_after_ms: bytes, now: float) -> float:
    """Seconds from `now` (Unix time) until a server wants the request again, by its headers, b"" where it has none.

    A date counts from the server's own Date where it sent one, so that no clock need agree with another; it has
    whole seconds, so without that one more is waited.
    """
    milliseconds = _number(retry_after_ms)
    if milliseconds is not None:
        return min(milliseconds / 1e3, MOST_S)
    seconds = _number(retry_after)
    if seconds is not None:
        return min(seconds, MOST_S)
    until = _time_of(retry_after)
    if until is None:
        return UNSAID_S
    sent = _time_of(date)
    return min(max(until - sent, 0.0) if sent is not None else max(until + 1 - now, 0.0), MOST_S)


def _number(value: bytes) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _time_of(value: bytes) -> float | None:
    """Unix time of an HTTP date in any of its three forms; None where it is none."""
    try:
        found = email.utils.parsedate_to_datetime(value.decode("ascii"))
        return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
