"""Profit from runs' records: both forms, prices with their sources, break-even, curves, what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.measure.profit import PAPER, Account, Prices, TokenStep, break_even, curves, profit_money
from harness.profiles.files import load_gpu
from harness.profiles.pair import load_pair
from harness.report.prices import GivenPrices, given_prices, price_lines, prices_of_runs, read_price
from harness.report.profit import profit_document, profit_report
from harness.report.profit_tables import profit_table
from harness.runs.run import Run, load_run
from tests.support.console import rendered
from tests.support.places import ROOT
from tests.support.runfactory import SPEC, toy_run, write_run
from tests.support.schedules import Schedule

LENGTHS = [40, 30, 30, 20, 12, 8, 6, 4]
STARTS = {
    "fcfs": [0, 0, 30, 40, 60, 60, 68, 72],
    "ljf": [0, 0, 40, 40, 70, 70, 82, 82],
    "isjl:alpha=10": [0, 8, 40, 46, 70, 0, 40, 70],
}
PRICES = Prices(1e-6, 3e-6, 2.0, "USD")


def runs_in(directory: Path, **spec: Any) -> list[Run]:
    paths = []
    for policy, starts in STARTS.items():
        one = Schedule(starts, LENGTHS, [100] * 8, [10**9] * 100)
        # A small run has no steady window to speak of; an open loop needs none.
        given = dataclasses.replace(SPEC, policy=policy, arrival="poisson:rate=9.0", **spec)
        paths.append(write_run(directory / policy, one.requests(), one.steps(), spec=given))
    return [load_run(path) for path in paths]


def by_policy(points: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["policy"]: one for one in points}


def test_both_forms_are_recomputed_from_the_records(tmp_path: Path) -> None:
    runs = runs_in(tmp_path)
    before = [(run.path / "summary.json").read_bytes() for run in runs]
    k = TokenStep(rho0=0.5, tau=0.01, c=0.25)
    document = profit_document(profit_report(runs, k, dict.fromkeys(range(3), PRICES), alpha=5.0), {})
    for entry, (policy, starts) in zip(document["runs"], STARTS.items(), strict=True):
        one = Schedule(starts, LENGTHS, [100] * 8, [10**9] * 100)
        cost = sum(k.c + k.tau * len(r) * max(r) for t in range(one.end) if (r := one.counts(t)))
        found = entry["metrics"]
        assert entry["policy"] == policy
        assert found["profit_tokenstep"]["value"] == pytest.approx(k.rho0 * sum(LENGTHS) - cost)
        money = 800 * 1e-6 + sum(LENGTHS) * 3e-6 - 2.0 * one.end / 3600
        assert found["profit_money"] == {"value": pytest.approx(money), "unit": "USD", "low": None, "high": None}
        told = entry["profit"]["tokenstep"]
        assert told["charged"] == told["intrinsic"] + told["externality"]
        assert 0 < found["violation_share"]["value"] < 1 if policy == "fcfs" else True
    assert [(run.path / "summary.json").read_bytes() for run in runs] == before


def test_the_curves_follow_alpha_and_meet_at_the_break_even(tmp_path: Path) -> None:
    runs = runs_in(tmp_path)
    found = profit_report(runs, TokenStep(1.0, 0.001, 0.1), dict.fromkeys(range(3), PRICES))
    assert found.curves is not None
    path = found.curves["profit_over_throughput"]["tokenstep"]
    assert [(one["policy"], one["alpha"]) for one in path] == [("ljf", 0.0), ("isjl:alpha=10", 10.0), ("fcfs", None)]
    ends = by_policy(found.curves["break_even"])
    assert ends.keys() == {"isjl:alpha=10", "fcfs"}
    lines = by_policy(found.curves["profit_over_c"]["lines"])
    c = ends["fcfs"]["c"]
    assert ends["fcfs"]["pays"] == "above"
    assert c < found.curves["profit_over_c"]["c"][-1]
    ljf, fcfs = lines["ljf"], lines["fcfs"]
    assert ljf["at_0"] - c * ljf["steps"] == pytest.approx(fcfs["at_0"] - c * fcfs["steps"])
    violation = by_policy(found.curves["violation_over_throughput"])
    assert violation["ljf"]["gap_max"] == 0
    assert violation["ljf"]["violation_share"] == 0
    assert violation["isjl:alpha=10"]["violation_share"] == 0
    assert violation["fcfs"]["violation_share"] is None
    hours = by_policy(found.curves["profit_over_gpu_hour"]["lines"])["fcfs"]
    assert hours["profit"][0] == hours["revenue"]
    assert hours["revenue"] - hours["break_even"] * hours["hours"] == pytest.approx(0)
    text = rendered(profit_table(found))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "units of its own" in " ".join(text.split())
    assert "profit in money, USD" in text
    json.dumps(profit_document(found, {}), allow_nan=False)


def test_repeats_are_means_and_keep_the_break_even(tmp_path: Path) -> None:
    once = runs_in(tmp_path / "0")
    twice = once + runs_in(tmp_path / "1", seed=1, repeat=1)
    one, two = (profit_report(runs, prices=dict.fromkeys(range(len(runs)), PRICES)) for runs in (once, twice))
    assert one.curves == two.curves
    assert [row.total.runs for row in two.arms] == [2, 2, 2]
    assert "fcfs ×2" in rendered(profit_table(two))


def test_break_even_of_other_work_or_without_steps_is_none() -> None:
    none = Account("x", None, 1, 1, 1, 1.0, None)
    assert break_even(none, none, 1.0) is None
    assert curves([none], PAPER, none)["profit_over_c"]["lines"] == []
    assert profit_money(dataclasses.replace(none, seconds=3600.0), PRICES) == pytest.approx(4e-6 - 2)


def test_runs_without_a_step_log_have_a_profit_in_money_alone(tmp_path: Path) -> None:
    requests, _ = toy_run(50)
    run = load_run(write_run(tmp_path, requests))
    with pytest.raises(UserError, match=r"no step log.*--price-in"):
        profit_report([run])
    found = profit_report([run], prices={0: PRICES})
    (entry,) = profit_document(found, {})["runs"]
    assert "profit_tokenstep" not in entry["metrics"]
    assert "profit_money" in entry["metrics"]


def test_what_is_invalid_or_differs_is_in_no_curve(tmp_path: Path) -> None:
    runs = runs_in(tmp_path / "a")
    other = runs_in(tmp_path / "b", slots=7)
    assert profit_report([*runs, *other]).curves is None
    assert "no curves: the runs differ in slots" in profit_report([*runs, *other]).notes
    one = Schedule(STARTS["fcfs"], LENGTHS, [100] * 8, [10**9] * 100)
    cut = load_run(write_run(tmp_path / "c", one.requests(), one.steps(), status="interrupted", reason="Ctrl-C"))
    found = profit_report([cut])
    assert found.curves is None
    assert "INVALID" in rendered(profit_table(found))
    assert any("in no curve" in note for note in found.notes)


def test_arms_of_one_policy_are_named_by_what_differs(tmp_path: Path) -> None:
    runs = runs_in(tmp_path / "a", slots=64, slo={"ttft_s": 1.0, "tpot_s": 0.1})
    assert [row.total.name for row in profit_report(runs).arms] == list(STARTS)
    # The order in which service levels are typed makes no other arm.
    again = runs_in(tmp_path / "b", slots=64, seed=1, repeat=1, slo={"tpot_s": 0.1, "ttft_s": 1.0})
    assert [row.total.name for row in profit_report([*runs, *again]).arms] == list(STARTS)
    other = runs_in(tmp_path / "c", slots=32, slo={"ttft_s": 1.0})[:1]
    found = profit_report([*runs, *other])
    assert [row.total.name for row in found.arms] == [
        "fcfs [slots 64, slo.tpot_s 0.1]",
        "ljf [slots 64, slo.tpot_s 0.1]",
        "isjl:alpha=10 [slots 64, slo.tpot_s 0.1]",
        "fcfs [slots 32, slo.tpot_s unset]",
    ]
    names = [one["name"] for one in profit_document(found, {})["runs"]]
    assert names == [row.total.name for row in found.arms]
    table = rendered(profit_table(found), width=200)
    assert all(name in table for name in names)


def test_arms_that_share_curves_have_names_of_their_own_in_them(tmp_path: Path) -> None:
    found = profit_report([*runs_in(tmp_path / "a"), *runs_in(tmp_path / "b", alpha=5.0)])
    assert found.curves is not None
    names = [one["name"] for one in found.curves["profit_over_c"]["lines"]]
    assert len(set(names)) == len(names) == 6
    assert {"fcfs [alpha none]", "fcfs [alpha 5.0]"} < set(names)
    table = rendered(profit_table(found), width=200)
    assert table.count("fcfs [alpha 5.0]") == 2, "in the table of profits and in that of their curves"


def test_a_policy_that_looks_at_no_lengths_is_in_the_curves_of_those_that_do(tmp_path: Path) -> None:
    told = {"v1": "none", "ljf": "oracle", "isjl:alpha=10": "oracle"}
    runs = []
    for (policy, lengths), starts in zip(told.items(), STARTS.values(), strict=True):
        one = Schedule(starts, LENGTHS, [100] * 8, [10**9] * 100)
        spec = dataclasses.replace(SPEC, policy=policy, lengths=lengths, arrival="poisson:rate=9.0")
        runs.append(load_run(write_run(tmp_path / policy, one.requests(), one.steps(), spec=spec)))
    found = profit_report(runs)
    assert found.curves is not None
    assert by_policy(found.curves["break_even"]).keys() == {"v1", "isjl:alpha=10"}
    guessed = dataclasses.replace(runs[2], spec=dataclasses.replace(runs[2].spec, lengths="noisy:sigma=0.3"))
    assert "no curves: the runs differ in lengths" in profit_report([*runs[:2], guessed]).notes


def test_own_alphas_are_held_against_what_they_count(tmp_path: Path) -> None:
    one = Schedule([0, 3, 5, 9, 20, 30, 31, 32], LENGTHS, [100] * 8, [10**9] * 100)
    for policy, footprint in (("ljf", "kv"), ("isjl:alpha=10", "kv"), ("isjl:alpha=10,footprint=kv", "decode")):
        spec = dataclasses.replace(SPEC, policy=policy, arrival="poisson:rate=9.0")
        run = load_run(write_run(tmp_path / policy, one.requests(), one.steps(), spec=spec))
        (row,) = profit_report([run], footprint=footprint).arms
        assert row.total.against is None
        (row,) = profit_report([run], footprint="kv" if footprint == "decode" else "decode").arms
        assert row.total.against == row.total.alpha


def test_a_price_is_per_token_or_per_million() -> None:
    assert read_price("2e-7", "--price-in") == 2e-7
    assert read_price("0.2/M", "--price-in") == pytest.approx(2e-7)
    assert read_price("0", "--gpu-hour") == 0
    for text in ("-1", "nan", "inf", "", "free", "1/K", "1/"):
        with pytest.raises(UserError, match=r"--price-out .*not a price"):
            read_price(text, "--price-out")
    with pytest.raises(UserError, match="--gpu-hour"):
        read_price("2/M", "--gpu-hour")


def test_prices_come_with_date_and_source_from_a_profile(tmp_path: Path) -> None:
    options: dict[str, Any] = {"price_in": None, "price_out": None, "gpu_hour": None, "prices": None, "currency": None}
    pair = [("a100", "Qwen/Qwen3-8B", 1)]
    assert prices_of_runs(given_prices(options), pair) == ({}, {})
    tokens = {"price_in": "0.1/M", "price_out": "0.3/M"}
    found, sources = prices_of_runs(given_prices(options | tokens | {"prices": "profile"}), pair)
    hour = load_gpu("a100").prices["gpu_hour"]
    assert dataclasses.astuple(found[0]) == (pytest.approx(1e-7), pytest.approx(3e-7), hour.value, "USD")
    (line,) = [line for line in price_lines(sources) if "GPU hour" in line]
    assert hour.date in line
    assert hour.source in line
    several, told = prices_of_runs(
        given_prices(options | tokens | {"prices": "profile"}), [("a100", "Qwen/Qwen3-8B", 4)]
    )
    assert several[0].gpu_hour == 4 * hour.value
    assert "4 GPUs at " in told["4 × a100 / Qwen/Qwen3-8B"]["gpu_hour"]["source"]
    # One that is given is of all of them already.
    given = given_prices(options | tokens | {"gpu_hour": "3"})
    assert prices_of_runs(given, [("a100", "Qwen/Qwen3-8B", 4)])[0][0].gpu_hour == 3
    with pytest.raises(UserError, match=r"no price of a prompt token.*--price-in and --price-out"):
        prices_of_runs(GivenPrices({}, True, None), pair)
    with pytest.raises(UserError, match=r"give --gpu-hour$"):
        prices_of_runs(given_prices(options | tokens), pair)
    with pytest.raises(UserError, match="EUR and USD"):
        prices_of_runs(given_prices(options | tokens | {"prices": "profile", "currency": "EUR"}), pair)
    with pytest.raises(UserError, match="no price of a GPU hour"):
        prices_of_runs(given_prices(options | tokens | {"prices": "profile"}), [("unknown", "mine", 1)])
    assert "prices" not in json.dumps(load_pair("a100", "Qwen/Qwen3-8B").to_manifest())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("value = -1.0", "value is -1: it must be 0 to"),
        ('currency = "dollars"', "currency is 'dollars': write three letters"),
        ('date = "last year"', "date is 'last year': write YYYY-MM"),
        ('source = " "', "source is empty"),
        ('sauce = "x"', "sauce is no key of a profile"),
    ],
)
def test_a_price_in_a_profile_needs_all_of_it(tmp_path: Path, line: str, why: str) -> None:
    whole = (ROOT / "harness/profiles/gpus/a100.toml").read_text(encoding="utf-8")
    head, table, price = whole.partition("[prices.gpu_hour]\n")
    kept = [one for one in price.splitlines() if one.partition(" ")[0] != line.partition(" ")[0]]
    file = tmp_path / "mine.toml"
    file.write_text(head + table + "\n".join([*kept, line]), encoding="utf-8")
    with pytest.raises(UserError, match=r"mine.toml: prices.gpu_hour") as error:
        load_gpu(str(file))
    assert why in str(error.value)


def test_the_papers_constants_are_the_papers() -> None:
    # arXiv 2608.02244, the constants behind its Tables 1 to 3.
    assert (PAPER.rho0, PAPER.tau, PAPER.c) == (0.002, 1e-6, 5e-4)


def test_a_policy_with_an_alpha_and_no_step_log_has_no_share_over_it(tmp_path: Path) -> None:
    requests, _ = toy_run(40)
    spec = dataclasses.replace(SPEC, policy="isjl:alpha=10", engine="endpoint", arrival="poisson:rate=9.0")
    run = load_run(write_run(tmp_path, requests, None, spec=spec))
    document = profit_document(profit_report([run], prices={0: PRICES}), {})
    (entry,) = document["runs"]
    assert "profit_tokenstep" not in entry["metrics"]
    assert entry["metrics"]["profit_money"]["unit"] == "USD"
    assert any("no step log" in note for note in document["notes"])
