"""Regret over cells, by arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.report.regret import Outcome, cells_of, regrets
from harness.runs.run import Run

CELLS = {
    "a": {"v1": Outcome(100.0, 0.5), "eb": Outcome(80.0, 0.25), "new": Outcome(105.0, 0.75)},
    "b": {"v1": Outcome(50.0), "eb": Outcome(100.0), "new": Outcome(90.0)},
}


def test_regret_is_lost_against_the_best_of_the_hindsight() -> None:
    rows = {row.policy: row for row in regrets(CELLS, ("v1", "eb"))}
    new = rows["new"]
    assert new.mean == pytest.approx((-0.05 + 0.1) / 2)
    assert new.positive == pytest.approx(0.05)
    assert new.p95 == pytest.approx(-0.05 + 0.95 * 0.15)
    assert new.worst == pytest.approx(0.1)
    assert new.worst_in == "b"
    assert new.over == pytest.approx((0.05 + 0.8) / 2)
    assert new.below == 0
    assert new.good == 0.75
    assert rows["eb"].below == 0.5
    assert rows["v1"].worst == 0.5
    assert rows["v1"].over == 0
    assert [row.policy for row in regrets(CELLS, ("v1", "eb"))] == ["new", "eb", "v1"]


def test_without_names_the_best_of_all_is_the_best_in_hindsight() -> None:
    rows = {row.policy: row for row in regrets(CELLS)}
    assert rows["new"].mean == pytest.approx((0 + 0.1) / 2)
    assert min(row.positive for row in rows.values()) >= 0


def test_a_cell_without_any_of_the_hindsight_is_refused() -> None:
    with pytest.raises(UserError, match="a: none of v0 ran there"):
        regrets(CELLS, ("v0",))


def test_without_the_reference_there_is_no_gain_over_it() -> None:
    assert regrets(CELLS, reference="sjf")[0].over is None


def a_run(policy: str, tok_s: float, **spec: object) -> Run:
    given = RunSpec("h200", "m", policy, "w", **spec)  # type: ignore[arg-type]
    metrics = {"output_throughput": {"value": tok_s}, "request_throughput": {"value": 2.0}, "goodput": {"value": 1.0}}
    return Run(Path("x"), {}, given, {"metrics": metrics})


def test_repeats_are_averaged_and_a_budget_can_belong_to_the_policy() -> None:
    runs = [
        a_run("v1", 10.0),
        a_run("v1", 20.0, seed=1, repeat=1),
        a_run("v1", 40.0, token_budget=4096),
        a_run("eb", 30.0),
        a_run("eb", 5.0, slots=64),
    ]
    cells = cells_of(runs, ("token_budget",))
    assert cells == {
        "1024": {"v1": Outcome(15.0, 0.5), "v1 [token_budget=4096]": Outcome(40.0, 0.5), "eb": Outcome(30.0, 0.5)},
        "64": {"eb": Outcome(5.0, 0.5)},
    }
    assert len(cells_of(runs)) == 3
    with pytest.raises(UserError, match="--across nothing: a run has no such option"):
        cells_of(runs, ("nothing",))
    with pytest.raises(UserError, match="no output throughput was measured"):
        cells_of([a_run("v1", 0.0)])
