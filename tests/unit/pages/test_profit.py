"""Profits on a board's page: its sums give the profits of `bench profit`, and only what is not INVALID is drawn."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from harness.measure.fairness import fairness
from harness.measure.profit import PAPER, Prices, TokenStep, profit_money, profit_tokenstep
from harness.pages.charts import script_json
from harness.pages.profit import EXAMPLE_SOURCE, break_evens, charts_of, inputs_of, points_of, script_data
from harness.published.detail import GAPS
from harness.report.profit import profit_report
from harness.runs.run import find_runs, load_run
from tests.support.runfactory import SPEC, write_run
from tests.support.schedules import Schedule
from tests.support.sitefactory import only_board, site_of, write_schedules


def test_profits_are_those_of_bench_profit(tmp_path: Path) -> None:
    write_schedules(tmp_path / "results")
    some = points_of(only_board(site_of(tmp_path / "results", tmp_path / "kept")))
    runs = [load_run(path) for path in find_runs(tmp_path / "results")]
    prices = Prices(1e-6, 3e-6, 2.0, "USD")
    k = TokenStep(0.5, 0.01, 0.25)
    found = profit_report(runs, k, dict.fromkeys(range(3), prices))
    totals = {row.total.policy: row.total for row in found.arms}
    assert [one.account.policy for one in some] == ["ljf", "isjl:alpha=10", "v1"]
    for one in some:
        other = totals[one.account.policy]
        assert one.account.fairness is not None
        assert other.fairness is not None
        assert profit_tokenstep(one.account.fairness, k) == profit_tokenstep(other.fairness, k)
        assert profit_money(one.account, prices) == profit_money(other, prices)
        assert one.account.alpha == other.alpha
    assert found.curves is not None
    known = {one["policy"]: one for one in found.curves["break_even"]}
    for point, end in break_evens(some, k.tau):
        told = known[point.account.policy]
        assert end is not None
        assert (end.pays, end.c, end.steps_saved) == (told["pays"], told["c"], told["steps_saved"])


def test_the_path_of_alpha_holds_what_knew_the_same_of_lengths(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_schedules(results, lengths="oracle")
    other = dataclasses.replace(SPEC, policy="isjl:alpha=10", arrival="poisson:rate=9.0", lengths="noisy:sigma=0.3")
    one = Schedule([0] * 8, [5] * 8, [100] * 8, [10**9] * 100)
    write_run(results / "noisy", one.requests(), one.steps(), spec=other)
    (board,) = [one for one in site_of(results, tmp_path / "kept").boards if len(one.arms) > 1]
    found = {one.arm.first.run.spec.label: one.account.alpha for one in points_of(board)}
    assert found["ljf [oracle lengths]"] == 0
    assert found["isjl:alpha=10 [oracle lengths]"] == 10
    assert found["isjl:alpha=10 [noisy:sigma=0.3 lengths]"] is None


def test_violations_are_counted_at_every_gap(tmp_path: Path) -> None:
    write_schedules(tmp_path / "results")
    for one in points_of(only_board(site_of(tmp_path / "results", tmp_path / "kept"))):
        work = fairness(one.arm.first.run.steps())
        assert work is not None
        assert [n / work.busy for n in one.over] == [work.violation_share(gap) for gap in GAPS]
        assert one.gap_sum / work.busy == work.gap_mean()


def test_repeats_add_up_and_profits_are_a_runs(tmp_path: Path) -> None:
    write_schedules(tmp_path / "results" / "first")
    write_schedules(tmp_path / "results" / "second", seed=1, repeat=1)
    board = only_board(site_of(tmp_path / "results", tmp_path / "kept"))
    twice = points_of(board)
    write_schedules(tmp_path / "alone")
    once_board = only_board(site_of(tmp_path / "alone", tmp_path / "kept"))
    for one, two in zip(points_of(once_board), twice, strict=True):
        assert two.account.runs == 2
        assert two.account.output_tokens == 2 * one.account.output_tokens
    drawn = charts_of(board, twice, inputs_of(board, twice))
    alone = charts_of(once_board, points_of(once_board), inputs_of(once_board, points_of(once_board)))
    assert [one.rows for one in drawn] == [one.rows for one in alone]


def test_a_chart_and_its_table_have_the_same_numbers(tmp_path: Path) -> None:
    write_schedules(tmp_path / "results")
    board = only_board(site_of(tmp_path / "results", tmp_path / "kept"))
    some = points_of(board)
    found = {one.id: one for one in charts_of(board, some, inputs_of(board, some))}
    assert set(found) == {"tokenstep", "violations", "money"}
    for one in found.values():
        drawn = [(x, y) for series in one.series for x, y in zip(series.x, series.y, strict=True)]
        assert drawn == [row[2:] for row in one.rows]
    # One path through LJF and ISJL, v1 beside it.
    assert [len(one.x) for one in found["tokenstep"].series] == [2, 1]
    work = some[0].account.fairness
    assert work is not None
    assert found["tokenstep"].series[0].y[0] == profit_tokenstep(work, PAPER)


def test_a_price_that_nobody_told_is_an_example_and_says_so(tmp_path: Path) -> None:
    write_schedules(tmp_path / "results", gpu="unknown", model="nobody/nothing")
    board = only_board(site_of(tmp_path / "results", tmp_path / "kept"))
    some = points_of(board)
    given = {one.name: one for one in inputs_of(board, some)}
    assert {given[name].source for name in ("in", "out", "hour")} == {EXAMPLE_SOURCE}
    money = next(one for one in charts_of(board, some, list(given.values())) if one.id == "money")
    account = some[0].account
    prices = Prices(given["in"].default / 1e6, given["out"].default / 1e6, given["hour"].default, "")
    assert money.rows[0][3] == pytest.approx(profit_money(account, prices) / account.hours)


def test_the_scripts_sums_are_the_accounts(tmp_path: Path) -> None:
    write_schedules(tmp_path / "results")
    some = points_of(only_board(site_of(tmp_path / "results", tmp_path / "kept")))
    found = json.loads(script_json(script_data(some)))
    for one, arm in zip(some, found["arms"], strict=True):
        work = one.account.fairness
        assert work is not None
        assert arm["work"]["tokens"] == work.tokens
        assert arm["work"]["externality"] == work.externality
        assert arm["seconds"] == pytest.approx(one.account.seconds, rel=1e-15)
    assert found["series"]["steps"] == [[0, 1], [2]]


def test_json_in_a_page_cannot_end_its_script() -> None:
    text = script_json({"</script>": "<!--&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"</script>": "<!--&\u2028"}
