"""How long a server asks to wait, in all the forms it has for it."""

from __future__ import annotations

import pytest

from harness.drive.retry_after import MOST_S, UNSAID_S, wait_s

NOON = 1_790_251_200.0  # Thu, 24 Sep 2026 12:00:00 GMT


@pytest.mark.parametrize(
    ("retry_after", "date", "ms", "now", "expected"),
    [
        (b"7", b"", b"", NOON, 7.0),
        (b"0", b"", b"", NOON, 0.0),
        (b"2.5", b"", b"", NOON, 2.5),
        (b"86401", b"", b"", NOON, 86401.0),
        (b"", b"", b"250", NOON, 0.25),
        (b"7", b"", b"250", NOON, 0.25),
        # A date has whole seconds: one more is waited, so that it has surely come.
        (b"Thu, 24 Sep 2026 12:00:03 GMT", b"", b"", NOON, 4.0),
        (b"Thu, 24 Sep 2026 12:00:03 GMT", b"", b"", NOON + 0.7, 3.3),
        (b"Thursday, 24-Sep-26 12:00:03 GMT", b"", b"", NOON, 4.0),
        (b"Thu Sep 24 12:00:03 2026", b"", b"", NOON, 4.0),
        (b"Thu, 24 Sep 2026 14:00:03 +0200", b"", b"", NOON, 4.0),
        # The server's own Date: its clock need not be ours.
        (b"Thu, 24 Sep 2026 12:00:03 GMT", b"Thu, 24 Sep 2026 12:00:00 GMT", b"", NOON - 9000, 3.0),
        (b"Thu, 24 Sep 2026 11:00:00 GMT", b"", b"", NOON, 0.0),
        (b"Thu, 24 Sep 2026 11:00:00 GMT", b"Thu, 24 Sep 2026 12:00:00 GMT", b"", NOON, 0.0),
        (b"Fri, 31 Dec 9999 23:59:59 GMT", b"", b"", NOON, MOST_S),
        (b"1e308", b"", b"", NOON, MOST_S),
        (b"", b"", b"", NOON, UNSAID_S),
        (b"soon", b"", b"", NOON, UNSAID_S),
        (b"-3", b"", b"", NOON, UNSAID_S),
        (b"nan", b"", b"inf", NOON, UNSAID_S),
        (b"Thu, 99 Sep 2026 12:00:03 GMT", b"", b"", NOON, UNSAID_S),
        (b"\xff\xfe", b"\xff", b"\xff", NOON, UNSAID_S),
    ],
)
def test_the_wait(retry_after: bytes, date: bytes, ms: bytes, now: float, expected: float) -> None:
    assert wait_s(retry_after, date, ms, now) == pytest.approx(expected)
