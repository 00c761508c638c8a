"""The crossover page: the lines are form 6 solved for the load, the points what the runs show."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.pages.crossover import RATIOS, SIZES, THETA_MAX, THETA_MIN, boundaries_of, chart_of, point_of
from harness.profiles.pair import load_pair
from policies.online.threshold import crossover, theta0
from tests.support.runfactory import SPEC, toy_run, write_run
from tests.support.sitefactory import only_board, site_of


def test_both_sides_of_the_inequality_are_equal_on_the_boundary() -> None:
    rows = boundaries_of("Qwen/Qwen3-8B")
    assert [one.bandwidth_tb_s for one in rows] == sorted(one.bandwidth_tb_s for one in rows)
    checked = 0
    for row in rows:
        pair = load_pair(row.gpu, "Qwen/Qwen3-8B")
        for size in SIZES:
            for ratio, equal in zip(RATIOS, row.equal[size], strict=True):
                if not equal:
                    continue
                mu_o = ratio * size
                costs = pair.policy_constants(size - mu_o, mu_o, 14336)
                theta = min(THETA_MAX, max(THETA_MIN, theta0(1 / mu_o, costs.alpha_p_s, costs.alpha_d_s)))
                for running, mixed in ((equal / 1.01, True), (equal * 1.01, False)):
                    left, right = crossover(theta, size - mu_o, mu_o, running, 0.0, costs)
                    assert (left < right) == mixed
                checked += 1
    assert checked > 100


@pytest.mark.parametrize("speed", [2.0, 0.5])
def test_a_board_with_both_is_a_point_that_says_who_won(tmp_path: Path, speed: float) -> None:
    for policy, pace in (("v1", 1.0), ("eb", speed), ("eb:k=4", 9.0)):
        for repeat in range(3):
            requests, steps = toy_run(seed=repeat, speed=pace)
            steps = [{**one, "running": 8} for one in steps]
            spec = dataclasses.replace(SPEC, policy=policy, seed=repeat, repeat=repeat)
            costs = dataclasses.asdict(load_pair("l40s", SPEC.model).policy_constants(136, 16, 14336))
            write_run(tmp_path / "results", requests, steps, spec=spec, provenance={"policy_constants": costs})
    board = only_board(site_of(tmp_path / "results", tmp_path / "kept"))
    found = point_of(board)
    assert found is not None
    # EB with its own threshold, not the fastest of several.
    assert found.arm.policy == "eb"
    assert found.won == ("exclusive" if speed > 1 else "mixed")
    assert found.change.ratio == pytest.approx(speed, rel=0.1)
    sums = found.arm.first.detail["sums"]
    ratio = sums["output_tokens"] / (sums["output_tokens"] + sums["prompt_tokens"])
    assert found.ratio == pytest.approx(ratio, rel=1e-12)
    # Eight requests at a time: too few for the phases of exclusive batching to pay.
    assert (found.running, found.predicted) == (8.0, "mixed")
    assert found.agrees == (speed < 1)
    assert found.bandwidth_tb_s == 0.864
    drawn = chart_of(boundaries_of(SPEC.model), [found], SPEC.model)
    series = next(one for one in drawn.series if one.name == f"{found.won} won, simulated")
    assert list(series.x) == [found.ratio]
    assert list(series.y) == [0.864]
    assert drawn.rows[0][4:6] == (found.ratio, 0.864)
    assert drawn.rows[0][2] == "simulated"


def test_without_v1_there_is_no_point(tmp_path: Path) -> None:
    requests, steps = toy_run()
    write_run(tmp_path / "results", requests, steps, spec=dataclasses.replace(SPEC, policy="eb"))
    assert point_of(only_board(site_of(tmp_path / "results", tmp_path / "kept"))) is None
