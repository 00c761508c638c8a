"""`bench profit` and --alpha as users type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import RUN, Bench, bench_in
from tests.support.warm import Warm

PRICES = ("--price-in", "0.1/M", "--price-out", "0.4/M", "--gpu-hour", "1.5")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> tuple[Bench, Path]:
    directory = tmp_path_factory.mktemp("profit")
    bench = bench_in(directory, warm)
    done = bench(*RUN, "--policy", "v1,eb:k=8", "--alpha", "100", "--out", "runs")
    assert done.code == 0, done.err
    assert "gaps, tokens" in done.out
    assert "> 100" in done.out
    return bench, directory / "runs"


def test_profit_is_recomputed_without_running_again(runs: tuple[Bench, Path]) -> None:
    bench, directory = runs
    before = {path: path.read_bytes() for path in directory.rglob("*.json")}
    shown = bench("profit", "runs", *PRICES, "--baseline", "v1")
    assert shown.code == 0, shown.err
    for text in (
        "profit in money, USD",
        "simulated: token-step profit Π in units of its own",
        "Π as the cost of a step c grows",
        "0.1 a million tokens",
    ):
        assert text in shown.out
    document = bench("profit", "runs", *PRICES, "--baseline", "v1", "--json").json
    assert {"runs", "tokenstep", "prices", "curves", "notes"} <= document.keys()
    for entry in document["runs"]:
        counts, money = entry["counts"], entry["profit"]["money"]
        sold = counts["prompt_tokens"] * 1e-7 + counts["output_tokens"] * 4e-7
        assert entry["metrics"]["profit_money"]["value"] == pytest.approx(sold - 1.5 * money["hours"])
        told = entry["profit"]["tokenstep"]
        assert told["tokens"] == counts["output_tokens"]
        assert told["externality"] == entry["metrics"]["externality"]["value"]
        k = document["tokenstep"]
        expected = k["rho0"] * told["tokens"] - k["tau"] * told["charged"] - k["c"] * told["working_steps"]
        assert entry["metrics"]["profit_tokenstep"]["value"] == pytest.approx(expected)
    assert {path: path.read_bytes() for path in directory.rglob("*.json")} == before


def test_alpha_belongs_to_the_run_and_show_takes_another(runs: tuple[Bench, Path]) -> None:
    bench, directory = runs
    spec = json.loads(next(directory.rglob("run.json")).read_text())["spec"]
    assert spec["alpha"] == 100
    own = bench("show", "runs", "--json").json["runs"][0]["metrics"]
    other = bench("show", "runs", "--alpha", "0", "--json").json["runs"][0]["metrics"]
    assert other["violation_share"]["value"] >= own["violation_share"]["value"]
    assert other["excess_mean"]["value"] > own["excess_mean"]["value"]
    assert other["gap_mean"] == own["gap_mean"]
    compared = bench("compare", "runs", "--alpha", "7", "--json").json["metrics"]["violation_share"]
    shown = [one["metrics"] for one in bench("show", "runs", "--alpha", "7", "--json").json["runs"]]
    assert {compared["a"], compared["b"]} == {one["violation_share"]["value"] for one in shown}


def test_arms_of_one_policy_have_different_names(runs: tuple[Bench, Path]) -> None:
    bench, _ = runs
    assert bench(*RUN, "--policy", "v1", "--alpha", "100", "--slots", "32", "--out", "fewer").code == 0
    shown = bench("profit", "runs", "fewer", *PRICES, "--baseline", "v1")
    assert shown.code == 0, shown.err
    for name in ("v1 [slots 64]", "v1 [slots 32]", "eb:k=8 [slots 64]"):
        assert shown.out.count(name) == 2, "once in token-steps, once in money"
    assert "no curves: the runs differ in slots" in shown.out


@pytest.mark.parametrize(
    "args",
    [
        ("--price-in", "-1"),
        ("--price-out", "nan"),
        ("--gpu-hour", "much"),
        ("--gpu-hour", "-2"),
        ("--alpha", "-1"),
        ("--alpha", "nan"),
        ("--rho0", "-1"),
        ("--tau", "inf"),
        ("--c", "x"),
        ("--price-in", "1e-7"),
        ("--prices", "profile"),
        ("--prices", "guess"),
        ("--currency", ""),
        ("--price-in", "1e308"),
        ("--rho0", "1e308"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(runs: tuple[Bench, Path], args: tuple[str, ...]) -> None:
    bench, _ = runs
    done = bench("profit", "runs", *args)
    assert done.code == 2
    assert not done.out
    assert len(done.err.strip().splitlines()) == 1
    assert done.err.startswith("bench: ")


def test_a_negative_alpha_stops_a_run_before_it_begins(runs: tuple[Bench, Path]) -> None:
    bench, _ = runs
    done = bench(*RUN, "--policy", "v1", "--alpha", "-5", "--out", "none")
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1
