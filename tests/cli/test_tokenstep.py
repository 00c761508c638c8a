"""`bench run --engine tokenstep` and `bench reproduce` as users type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Bench

RUN = (
    *("run", "--gpu", "l40s", "--engine", "tokenstep", "--workload", "sharegpt", "--requests", "300", "--slots", "16"),
    *("--repeat", "1"),
)
POLICIES = "fcfs,sjf,ljf,isjl:alpha=100,isjl-best:alpha=100,isjl-paper:alpha=100"


def test_every_policy_runs_paired_and_says_what_it_is(bench: Bench) -> None:
    result = bench(*RUN, "--policy", POLICIES, "--json")
    assert result.code == 0, result.err
    assert "oracle" in result.err
    runs = {run["policy"]: run for run in result.json["runs"]}
    assert set(runs) == {"v1", "sjf", "ljf", "isjl:alpha=100", "isjl-best:alpha=100", "isjl-paper:alpha=100"}
    steps = {name: run["counts"]["steps"] for name, run in runs.items()}
    assert steps["isjl-best:alpha=100"] <= steps["ljf"]
    for run in runs.values():
        assert (run["engine"], run["kind"], run["arrival"]) == ("tokenstep", "simulated", "offline")
        assert run["verdict"]["level"] == "VALID"
        assert run["counts"]["completed"] == 300
        assert run["counts"]["mixed_steps"] == 0
    told = bench(*RUN, "--policy", "ljf,isjl:alpha=50")
    assert told.code == 0
    assert " against ljf" in told.out


def test_it_is_never_ranked_against_another_engine(bench: Bench) -> None:
    one = bench(*RUN, "--policy", "v1", "--json").json["runs"][0]["dir"]
    rest = [part for part in RUN if part not in ("--engine", "tokenstep")]
    two = bench(*rest, "--arrival", "offline", "--policy", "v1", "--json").json["runs"][0]["dir"]
    refused = bench("compare", one, two)
    assert refused.code == 2
    assert "engine" in refused.err
    anyway = bench("compare", one, two, "--allow", "engine", "--json")
    assert anyway.code == 0, anyway.err
    assert {row["word"] for row in anyway.json["metrics"].values()} == {"not ranked"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--policy", "isjl"), "alpha"),
        (("--policy", "isjl:alpha=-1"), "alpha=-1"),
        (("--policy", "isjl-best:alpha=x"), "alpha=x"),
        (("--policy", "eb"), "plans nothing offline"),
        (("--policy", "ljf", "--rate", "5"), "--rate"),
        (("--policy", "ljf", "--concurrency", "5"), "--concurrency"),
        (("--policy", "ljf", "--kv-tokens", "500"), "--kv-tokens"),
        (("--policy", "ljf", "--max-duration", "5"), "--max-duration"),
        (("--policy", "ljf", "--token-budget", "5"), "--token-budget has no meaning"),
        (("--policy", "ljf", "--max-model-len", "5"), "--max-model-len has no meaning"),
        (("--policy", "ljf", "--block-size", "32"), "--block-size has no meaning"),
        (("--policy", "ljf", "--cost-model", "roofline"), "--cost-model"),
        (("--policy", "ljf", "--slots", "0"), "--slots"),
        (("--policy", "ljf", "--url", "http://127.0.0.1:1"), "--url"),
    ],
)
def test_what_the_user_can_mend_is_one_line(bench: Bench, tmp_path: Path, args: tuple[str, ...], said: str) -> None:
    result = bench(*RUN, *args)
    assert result.code == 2, result
    (line,) = [line for line in result.err.splitlines() if line.startswith("bench:")]
    assert said in line
    assert not (tmp_path / "runs").exists()


def test_lengths_of_0_and_empty_traces_are_said(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "zero.jsonl").write_text('{"prompt_tokens": 4, "output_tokens": 0}\n')
    base = [*RUN[: RUN.index("--workload")], "--policy", "ljf", "--workload"]
    for name, said in (("empty", "empty"), ("zero", "output_tokens")):
        result = bench(*base, f"file:{name}.jsonl")
        assert result.code == 2
        assert said in result.err


def test_slots_know_no_token_budget(bench: Bench) -> None:
    assert bench(*RUN, "--slots", "20000", "--policy", "ljf").code == 0


def test_an_offline_policy_on_another_engine_says_which_engine(bench: Bench) -> None:
    result = bench("run", "--gpu", "l40s", "--workload", "sharegpt", "--policy", "isjl-best:alpha=10")
    assert result.code == 2
    assert "--engine tokenstep" in result.err
    listed = {one["name"]: one for one in bench("policies", "--json").json["policies"]}
    assert "--engine tokenstep" in listed["isjl-best"]["summary"]


def test_tables_and_ratio_are_text_or_json_or_csv(bench: Bench) -> None:
    text = bench("reproduce", "isjl-tables", "--seeds", "1")
    assert text.code == 0
    assert all(f"Table {number}" in text.out for number in (1, 2, 3))
    document = bench("reproduce", "isjl-tables", "--seeds", "1", "--json").json
    first = document["tables"]["table1"][0]
    assert (first["policy"], first["published"]["profit"]) == ("FCFS", 128.73)
    assert bench("reproduce", "isjl-tables", "--reference", "none").code == 2
    small = ("reproduce", "competitive-ratio", "--longest", "4", "--requests", "3")
    assert "CR(γ)" in bench(*small).out
    assert bench(*small, "--csv").out.startswith("gamma,cr_stated,form,ratio_worst")
    ratio = json.loads(bench(*small, "--json").out)
    assert len(ratio["curve"]) == 199
    assert {one["alpha"] for one in ratio["worst"]} == {1, 2, 3}
    assert bench("reproduce", "competitive-ratio", "--longest", "99").code == 2
