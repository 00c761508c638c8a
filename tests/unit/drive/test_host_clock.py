"""Another host's clock: its offset is within what is said of it, and one clock is not asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.drive.host_clock import Reading, clock_name, read_clock

WAYS_NS = st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)), min_size=1, max_size=8)


@given(offset_ns=st.integers(-(10**15), 10**15), ways_ns=WAYS_NS)
def test_the_offset_is_within_its_error_however_slow_either_way_is(
    offset_ns: int, ways_ns: list[tuple[int, int]]
) -> None:
    here = Here(ways_ns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic_ns", lambda: here.now_ns)
        reading = read_clock(lambda: here.there(offset_ns), questions=len(ways_ns))
    assert abs(reading.offset_ns - offset_ns) <= reading.error_ns
    assert reading.error_ns == (min(map(sum, ways_ns)) + 1) // 2
    assert not reading.same


class Here:
    """This host's time, which goes on while a question is under way."""

    def __init__(self, ways_ns: list[tuple[int, int]]) -> None:
        self.now_ns = 10**16
        self._ways: Iterator[tuple[int, int]] = cycle(ways_ns)

    def there(self, offset_ns: int) -> int:
        out_ns, back_ns = next(self._ways)
        self.now_ns += out_ns
        told_ns = self.now_ns + offset_ns
        self.now_ns += back_ns
        return told_ns


def test_one_clock_is_asked_nothing() -> None:
    name = clock_name()
    assert name, "Linux tells"
    assert read_clock(lambda: pytest.fail("asked"), name) == Reading(0, 0, same=True)


@pytest.mark.parametrize("name", ["", "another kernel's time:[1]"])
def test_a_clock_of_another_name_or_of_none_is_asked(name: str) -> None:
    reading = read_clock(time.monotonic_ns, name)
    assert not reading.same
    assert abs(reading.offset_ns) <= reading.error_ns
