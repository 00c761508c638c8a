"""Published tables of arXiv 2608.02244 beside ours: the cells, the fitted lengths, the ratio's curve, the document."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.reproduce.competitive import competitive_ratio, curve, ratio_csv, worst_cases
from harness.reproduce.fair_optimum import fair_optimum
from harness.reproduce.isjl_published import PublishedRow, published
from harness.reproduce.isjl_tables import PRICE, STEP_COST, TOKEN_COST, RemadeRow, tables_again
from harness.reproduce.isjl_text import tables_text
from harness.reproduce.length_laws import of_table1, of_table3
from policies.offline.baselines import makespan
from policies.offline.isjl import isjl
from tests.support.places import ROOT

REFERENCE = ROOT / "../shared/reference"


@pytest.fixture(scope="module")
def again() -> dict[str, list[RemadeRow]]:
    return tables_again(published(), seeds=5)


def row(tables: dict[str, list[RemadeRow]], table: str, policy: str, alpha: int | None = None) -> RemadeRow:
    return next(one for one in tables[table] if (one.row.policy, one.row.alpha) == (policy, alpha))


@pytest.mark.skipif(not REFERENCE.is_dir(), reason=f"{REFERENCE}: the published tables are not there")
def test_our_copy_of_the_cells_is_the_references() -> None:
    assert published().tables == published(REFERENCE).tables == published(REFERENCE / "isjl_tables.json").tables


def test_the_cells_agree_with_each_other() -> None:
    tables = published().tables
    assert [len(rows) for rows in tables.values()] == [8, 6, 6]
    for one in tables["table1"]:
        cells = one.cells
        assert cells["cost"] == pytest.approx(cells["tau_q"] + cells["c_t"] + cells["tau_e"], abs=0.011)
        assert cells["profit"] + cells["cost"] == pytest.approx(197.13, abs=0.011)
    for one in tables["table2"]:
        assert one.cells["break_even"] == pytest.approx(one.cells["tau_e"] / one.cells["saved"], abs=6e-5)


def test_the_lengths_are_those_that_were_fitted() -> None:
    samples = [of_table1(seed) for seed in range(5)]
    assert statistics.mean(map(sum, samples)) == pytest.approx(97_980, abs=1)
    assert {len(lengths) for lengths in samples} == {400}
    assert of_table1(0) == samples[0] != samples[1]
    for lengths in (of_table3(0), of_table3(1)):
        assert len(lengths) == 2000
        assert statistics.median(lengths) == pytest.approx(90, abs=1)
        assert statistics.mean(lengths) == pytest.approx(126, abs=3)
        assert (min(lengths) >= 1, max(lengths)) == (True, 905)


def test_the_base_rows_come_out(again: dict[str, list[RemadeRow]]) -> None:
    first, last = (row(again, "table1", name).ours[name.lower()] for name in ("FCFS", "LJF"))
    assert first["c_t"] / STEP_COST == pytest.approx(2479, abs=1)
    assert last["c_t"] / STEP_COST == pytest.approx(2472, abs=1)
    assert (first["gain"], first["gap"], first["tau_e"]) == pytest.approx((-0.18, 565.1, 35.14), abs=0.05)
    assert (last["gain"], last["gap"], last["tau_e"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("alpha", "gain", "tau_e", "gap"),
    [
        (50, 3.13, 1.47, 30),
        (100, 6.96, 3.08, 53),
        (150, 6.96, 4.67, 76),
        (250, 15.10, 6.41, 109),
        (400, 22.98, 8.09, 153),
        (500, 21.06, 6.91, 161),
    ],
)
def test_the_isjl_rows_are_the_known_ones(
    again: dict[str, list[RemadeRow]], alpha: int, gain: float, tau_e: float, gap: float
) -> None:
    ours = row(again, "table1", "ISJL", alpha).ours["isjl"]
    assert ours["gain"] == pytest.approx(gain, abs=0.006)
    assert ours["tau_e"] == pytest.approx(tau_e, abs=0.006)
    assert ours["gap"] == pytest.approx(gap, abs=0.55)
    assert ours["gap"] <= alpha


def test_money_adds_up_and_break_even_breaks_even(again: dict[str, list[RemadeRow]]) -> None:
    for one in again["table1"]:
        for cells in one.ours.values():
            assert cells["cost"] == pytest.approx(cells["tau_q"] + cells["c_t"] + cells["tau_e"])
            assert cells["profit"] + cells["cost"] == pytest.approx(PRICE * 97_979.8)
    for one in again["table2"]:
        cells = one.ours["isjl"]
        assert cells["break_even"] * cells["saved"] == pytest.approx(cells["tau_e"])
    assert row(again, "table1", "LJF").ours["ljf"]["tau_q"] == pytest.approx(TOKEN_COST * 32.01e6, abs=0.01)


def test_the_document_holds_what_the_command_prints(again: dict[str, list[RemadeRow]]) -> None:
    text = tables_text(again, published().source, seeds=5)
    document = (ROOT / "docs/isjl-tables.md").read_text(encoding="utf-8")
    assert f"```\n{text}\n```" in document, "make the block again with `bench reproduce isjl-tables`"


def test_differences_are_said() -> None:
    one = RemadeRow(PublishedRow("ISJL", 50, {"saved": 80.0, "tau_e": 2.0}), {"isjl": {"saved": 100.0, "tau_e": 1.0}})
    text = tables_text({"table2": [one]}, "a source", seeds=1)
    assert "isjl: saved 25.0 (+25.0 %, 50); τE 50.0 (-50.0 %, 50)" in text


@pytest.mark.parametrize("text", ["", "[]", '{"tables": [{"table": 1, "rows": []}]}', "{"])
def test_a_reference_that_is_none_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "isjl_tables.json"
    path.write_text(text)
    for given in (tmp_path, path):
        with pytest.raises(UserError, match=r"isjl_tables\.json"):
            published(given)
    with pytest.raises(UserError, match="cannot be read"):
        published(tmp_path / "none.json")


def test_the_ratios_curve() -> None:
    assert competitive_ratio(0.5) == 0.75
    assert competitive_ratio(0.25) == pytest.approx(1.25 / 1.5)
    assert competitive_ratio(0.75) == pytest.approx(1.25 / 1.5)
    assert competitive_ratio(1e-9) == pytest.approx(1)
    assert competitive_ratio(1 - 1e-9) == pytest.approx(1)
    values = [one["cr"] for one in curve(100)]
    assert min(values) == values[49] == 0.75
    for outside in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="0 < γ < 1"):
            competitive_ratio(outside)


def test_the_worst_cases_are_what_they_say() -> None:
    found = worst_cases(longest=5, requests=4)
    assert {one.alpha for one in found} == {1, 2, 3, 4}
    for one in found:
        assert one.ratio == one.optimum / one.steps
        assert fair_optimum(one.lengths, one.slots, one.alpha) == one.optimum
        assert 3 * one.optimum >= 2 * one.steps
        assert one.gamma == one.alpha / 5
        if one.form == "isjl":
            assert makespan(one.lengths, isjl(one.lengths, one.slots, one.alpha)) == one.steps
    assert len(ratio_csv(found).splitlines()) == 1 + len(found)


@pytest.mark.parametrize(("longest", "requests"), [(1, 3), (17, 3), (5, 1), (5, 7)])
def test_a_search_without_end_is_refused(longest: int, requests: int) -> None:
    with pytest.raises(UserError, match="--longest"):
        worst_cases(longest, requests)
