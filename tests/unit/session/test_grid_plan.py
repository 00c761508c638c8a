"""The cells of a grid: each once, pairs together, blocks in a shuffled order; what cannot be had hides no other."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.errors import UserError
from harness.session.grid_estimate import estimate
from harness.session.grid_file import Point, points_of, read_grid
from harness.session.grid_plan import Plan, plan_grid
from tests.support.places import ROOT


def point(policies: str = "v1,ebplus", **values: Any) -> Point:
    given = {"gpu": "l40s", "workload": "lmsys", "requests": 20, "engine": "simulated"}
    return Point(given | values, tuple(policies.split(",")))


def grid(repeat: int = 2, count: int = 6) -> Plan:
    return plan_grid([point(concurrency=4 + n, repeat=repeat) for n in range(count)])


def test_a_block_has_every_point_once_and_pairs_stay_together() -> None:
    plan = grid()
    assert len(plan.cells) == len({cell.key for cell in plan.cells}) == 24
    for start in (0, 6):
        block = plan.units[start : start + 6]
        assert {cell.spec.repeat for unit in block for cell in unit} == {start // 6}
        assert len({unit[0].spec.arrival for unit in block}) == 6
    for unit in plan.units:
        first, second = (cell.spec for cell in unit)
        assert (first.arrival, first.seed) == (second.arrival, second.seed)
        assert {first.policy, second.policy} == {"v1", "ebplus"}


def test_the_order_is_shuffled_and_the_same_again() -> None:
    orders = [[unit[0].spec.arrival for unit in grid().units] for _ in range(2)]
    assert orders[0] == orders[1]
    assert orders[0][:6] != sorted(orders[0][:6])
    assert orders[0][:6] != orders[0][6:]


def test_cells_that_are_one_run_run_once() -> None:
    # v1 does not look at lengths, so that it is the same run at both points.
    plan = plan_grid(
        [point("v1,sjf", lengths="oracle"), point("v1", lengths="none"), point("v1,sjf", lengths="oracle")]
    )
    assert sorted(cell.spec.label for cell in plan.cells) == ["sjf [oracle lengths]", "v1"]


def test_what_cannot_be_had_hides_no_other_cell() -> None:
    plan = plan_grid([point("v1,sjf"), point("v1", slots=512, token_budget=256, repeat=3), point("ebplus")])
    assert sorted(cell.spec.policy for cell in plan.cells) == ["ebplus", "v1"]
    assert [(one.cells, one.why.split(":")[0]) for one in plan.refused] == [
        (1, "sjf goes by output lengths, and none are known"),
        (3, "--token-budget 256 is below --slots 512"),
    ]


def test_a_grid_of_nothing_that_can_be_had_is_refused() -> None:
    with pytest.raises(UserError, match="no cell of the grid can be had: no GPU named 'l40'; did you mean l40s"):
        plan_grid([point(gpu="l40")])


def test_a_virtual_run_is_no_partner_of_itself() -> None:
    with pytest.raises(UserError, match="repeats itself exactly"):
        plan_grid([point()], twice=True)


def test_longer_grids_are_estimated_longer_and_more_processes_shorter() -> None:
    cells = grid().cells
    assert estimate(cells, 1).seconds == pytest.approx(2 * estimate(cells, 2).seconds)
    assert estimate(cells * 2, 2).seconds == pytest.approx(2 * estimate(cells, 2).seconds)
    assert estimate(cells, 2).unknown == 0


def test_the_published_grid_can_be_had() -> None:
    plan = plan_grid(points_of(read_grid(ROOT / "results" / "grid.toml")))
    assert not plan.refused
    assert len(plan.cells) == 380
    assert {cell.spec.engine for cell in plan.cells} == {"simulated"}
