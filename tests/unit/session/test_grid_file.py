"""A grid's file: what its tables mean, and what is wrong with one in one line."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UserError
from harness.session.grid_file import Part, Point, points_of, read_grid


def points(tmp_path: Path, text: str, most: int = 1000) -> list[Point]:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    return points_of(read_grid(file), most)


BASE = 'gpu = ["l40s", "h200"]\npolicy = ["v1", "ebplus"]\nworkload = "lmsys"\nconcurrency = [32, 64]\n'


def test_each_value_meets_each_other(tmp_path: Path) -> None:
    found = points(tmp_path, BASE)
    places = [(point.values["gpu"], point.values["concurrency"]) for point in found]
    assert places == [("l40s", 32), ("l40s", 64), ("h200", 32), ("h200", 64)]
    assert all(point.policies == ("v1", "ebplus") for point in found)


def test_commas_and_lists_are_one(tmp_path: Path) -> None:
    listed = points(tmp_path, 'gpu = "l40s,h200"\npolicy = "v1,eb:k=4,window=50"\nworkload = ["lmsys,sharegpt"]')
    assert [(point.values["gpu"], point.values["workload"]) for point in listed] == [
        ("l40s", "lmsys"), ("l40s", "sharegpt"), ("h200", "lmsys"), ("h200", "sharegpt"),
    ]  # fmt: skip
    assert listed[0].policies == ("v1", "eb:k=4,window=50")


def test_skip_leaves_out_and_set_goes_with_an_axis(tmp_path: Path) -> None:
    found = points(
        tmp_path,
        BASE + '[[skip]]\ngpu = "L40S"\nconcurrency = [64]\n'
        '[[skip]]\ngpu = "h200"\npolicy = "ebplus"\n'
        '[[set]]\nwhere = { gpu = "h200", concurrency = 64 }\nslots = 48\n',
    )
    told = [
        (point.values["gpu"], point.values["concurrency"], point.values.get("slots"), point.policies) for point in found
    ]
    assert told == [
        ("l40s", 32, None, ("v1", "ebplus")),
        ("h200", 32, None, ("v1",)),
        ("h200", 64, 48, ("v1",)),
    ]


def test_a_setting_of_one_policy_makes_a_point_of_its_own(tmp_path: Path) -> None:
    found = points(
        tmp_path, BASE + '[[set]]\nwhere = { policy = "ebplus", gpu = "l40s", concurrency = 32 }\nslots = 8\n'
    )
    own = [point for point in found if point.values.get("slots") == 8]
    assert [point.policies for point in own] == [("ebplus",)]
    assert sum(len(point.policies) for point in found) == 8


def test_parts_take_what_stands_above_them(tmp_path: Path) -> None:
    found = points(
        tmp_path,
        'policy = ["v1", "v0"]\nrequests = 100\n[[skip]]\ngpu = "b300"\npolicy = "v0"\n'
        '[[grid]]\ngpu = "b300"\nworkload = "lmsys"\nslots = [16, 32]\n'
        '[[grid]]\ngpu = "l40s"\nworkload = "sharegpt"\nrequests = 50\npolicy = "eb"\n',
    )
    told = [
        (point.values["gpu"], point.values["requests"], point.values.get("slots"), point.policies) for point in found
    ]
    assert told == [("b300", 100, 16, ("v1",)), ("b300", 100, 32, ("v1",)), ("l40s", 50, None, ("eb",))]


def test_what_is_given_several_times_is_no_axis(tmp_path: Path) -> None:
    (point,) = points(tmp_path, 'field = ["a=1", "b=2"]\npolicy = "v1"\ngpu = "l40s"\nworkload = "lmsys"')
    assert point.values["field"] == ["a=1", "b=2"]


AXES = st.dictionaries(
    st.sampled_from(["gpu", "slots", "seed", "rate"]), st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)
)


@given(AXES, st.lists(st.dictionaries(st.sampled_from(["gpu", "slots"]), st.integers(1, 9), min_size=1), max_size=3))
def test_the_cells_are_the_product_without_what_is_skipped(
    axes: dict[str, list[int]], skip: list[dict[str, int]]
) -> None:
    from harness.session.grid_file import _cells

    part = Part("grid", axes, {"requests": 5}, skip, [])
    expected: list[dict[str, Any]] = [
        {"requests": 5} | dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    kept = [cell for cell in expected if not any(all(cell.get(k) == v for k, v in table.items()) for table in skip)]
    assert list(_cells(part)) == kept
    assert part.count == len(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu = [", "not a TOML file"),
        (BASE + "polcy = 3", "no option 'polcy'; did you mean policy?"),
        (BASE + "drivers = 2", "drivers is for bench run alone"),
        (BASE + "slots = []", "slots is an empty list"),
        (BASE + "slots = [16, 'x']", "slots is 'x': give a whole number"),
        (BASE + "repeat = [1, 2]", "repeat is a list"),
        (BASE + "aa = 3", "aa is 3: give true or false"),
        (BASE + 'skip = "l40s"', "write [[skip]]"),
        (BASE + "[[skip]]\nrate = 3", "'rate' is no key of this grid"),
        (BASE + '[[skip]]\ngpu = "l40"', "gpu = 'l40': the grid has l40s, h200"),
        (BASE + "[[skip]]", "leave out every cell"),
        (BASE + '[[skip]]\nworkload = "lmsys"', "no cell is left: [[skip]] takes all 8 away"),
        (BASE + "[[set]]\nslots = 3", "[[set]] needs where"),
        (BASE + '[[set]]\nwhere = { gpu = "l40s" }\nslots = [3, 4]', "slots is a list"),
        (BASE + '[[set]]\nwhere = { gpu = "l40s" }\npolicy = "v0"', "no option that can be set"),
        (BASE + f"seed = {list(range(200))}", "1,600 cells, more than 1,000: give shorter lists, or --most 1600"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        points(tmp_path, text)
    assert said in str(refused.value)
    assert "grid.toml" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_ten_million_cells_are_counted_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="10,000,000 cells"):
        points(tmp_path, BASE + f"seed = {list(range(12500))}\nrepeat = 100\n")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_grid(tmp_path / "absent.toml")
