"""A plan that finds no room is one line that names the place for temporary files."""

from __future__ import annotations

import tempfile

import pytest

from harness.core.errors import UserError
from harness.drive.plan import Plan, Planned
from tests.support.disk import file_size_limit


def planned(row: int) -> Planned:
    return Planned(
        row=row,
        id=f"r-{row}",
        session=None,
        turn=None,
        due_ns=None,
        think_ns=0,
        prompt_tokens=3,
        expected_output_tokens=2,
        body=b"x" * 3000,
    )


@pytest.mark.parametrize("requests", [2, 40])
def test_no_room_for_the_plan_names_the_place(requests: int) -> None:
    # Two fit into the buffer, and fail when it is written; of forty some have been written before.
    with file_size_limit(4000), pytest.raises(UserError) as told:
        Plan.write(planned(row) for row in range(requests))
    assert str(told.value).startswith(f"{tempfile.gettempdir()}: no room for the plan (")
    assert str(told.value).endswith("set TMPDIR")
