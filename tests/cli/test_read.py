"""The commands that read: compare, list, show, trace info, and the catalogs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import RUN, Bench


def test_compare_gives_differences_ratios_and_words(bench: Bench) -> None:
    runs = bench(*RUN, "--policy", "v1,eb:k=16", "--json").json["runs"]
    a, b = (next(run["dir"] for run in runs if run["policy"] == name) for name in ("v1", "eb:k=16"))
    result = bench("compare", a, b, "--json")
    assert result.code == 0, result.err
    assert result.json["differences"]["policy"] == {"a": "v1", "b": "eb:k=16"}
    for row in result.json["metrics"].values():
        assert set(row) >= {"a", "b", "ratio", "low", "high", "p", "word"}
        assert row["word"] in ("not tested", "no difference shown"), "one repeat has no word of a difference"
    told = bench("compare", a, b)
    assert told.code == 0
    assert "simulated" in told.out
    assert "one repeat" in told.out


def test_a_run_against_itself_shows_no_difference(bench: Bench) -> None:
    runs = [bench(*RUN, "--policy", "v1", "--out", out, "--json").json["runs"][0]["dir"] for out in ("x", "y")]
    result = bench("compare", *runs, "--json")
    assert result.code == 0, result.err
    assert {row["word"] for row in result.json["metrics"].values()} == {"no difference shown"}


def test_compare_refuses_what_differs_in_more_than_the_policy(bench: Bench) -> None:
    a = bench(*RUN, "--policy", "v1", "--json").json["runs"][0]["dir"]
    b = bench(*RUN, "--policy", "eb:k=8", "--token-budget", "2048", "--json").json["runs"][0]["dir"]
    refused = bench("compare", a, b)
    assert refused.code == 2
    assert "token_budget" in refused.err
    assert bench("compare", a, b, "--allow", "token_budget").code == 0


def test_fail_on_sets_the_exit_code(bench: Bench) -> None:
    runs = bench(*RUN, "--policy", "v1,eb:k=64", "--json").json["runs"]
    a, b = (next(run["dir"] for run in runs if run["policy"] == name) for name in ("v1", "eb:k=64"))
    assert bench("compare", a, b, "--fail-on", "output_throughput<-90%").code == 0
    assert bench("compare", a, b, "--fail-on", "ttft_s>-99%").code == 1
    assert bench("compare", a, b, "--fail-on", "speed<1").code == 2


def test_list_and_show_agree_with_the_run(bench: Bench) -> None:
    ran = bench(*RUN, "--policy", "v0,v1", "--json").json
    listed = bench("list", "runs", "--json").json
    assert sorted(run["dir"] for run in listed["runs"]) == sorted(run["dir"] for run in ran["runs"])
    shown = bench("show", ran["runs"][0]["dir"], "--json").json["runs"][0]
    assert shown == ran["runs"][0]
    text = bench("show", ran["runs"][0]["dir"]).out
    assert "simulated" in text
    assert "output_throughput" in text


def test_what_is_no_run_is_said(bench: Bench, tmp_path: Path) -> None:
    for command in ("show", "recover", "compare"):
        result = bench(command, str(tmp_path))
        assert result.code == 2, command
        assert "run.json" in result.err
    assert bench("list", "nowhere").code == 2


@pytest.mark.parametrize("name", ["sharegpt", "longbench", "wildchat", "numinamath", "lmsys"])
def test_trace_info_of_every_data_set(bench: Bench, name: str) -> None:
    result = bench("trace", "info", name, "--json")
    assert result.code == 0, result.err
    document = result.json
    assert document["rows"] >= 4000
    for column in ("prompt_tokens", "output_tokens"):
        assert set(document[column]) == {"sum", "mean", "p50", "p99", "max"}
    assert set(document) >= {"rows", "first_s", "last_s", "skipped", "source", "digest"}
    twin = "" if name == "sharegpt" else " (twin)"
    assert f"{name}{twin}" in bench("trace", "info", name).out


def test_the_catalogs_list_names_options_and_sources(bench: Bench) -> None:
    policies = {entry["name"]: entry for entry in bench("policies", "--json").json["policies"]}
    assert {"v0", "v1", "eb", "ebplus"} <= set(policies)
    assert "delta" in {option["name"] for option in policies["ebplus"]["options"]}
    assert all(entry["source"] for entry in policies.values())
    assert "arXiv 2606.00516" in bench("policies").out
    workloads = {entry["name"] for entry in bench("workloads", "--json").json["workloads"]}
    assert {"sharegpt", "longbench", "wildchat", "numinamath", "lmsys", "synthetic", "file"} <= workloads
    pairs = bench("gpus", "--json").json["pairs"]
    assert {pair["basis"] for pair in pairs} == {"published", "measured kernels", "derived", None}
    known = {(pair["gpu"], pair["model"]): pair for pair in pairs}
    assert known["l40s", "meta-llama/Llama-3.1-70B"]["tp"] == 4
    assert set(known["h200", "Qwen/Qwen3-8B"]["cost_models"]) == {"linear", "roofline", "kernels"}
    assert known["b300", "Qwen/Qwen3-8B"]["mixed_call"] == "assumed"
    listed = bench("gpus").out
    assert "3.1×" in listed
    assert "largest gap" in listed
    assert "Qwen/Qwen3-32B-FP8: rtxpro6000" in listed


def test_help_and_version(bench: Bench) -> None:
    assert bench("--help").code == 0
    assert "bench" in bench("--version").out
    assert bench("nonsense").code == 2
    # Two options of one name would be warned of.
    assert bench("run", "--help").err == ""
    group = bench("trace")
    assert group.code == 2
    assert group.err.startswith("Usage: bench trace")
    assert "--help` lists" not in group.err


def test_publishing_a_folder_again_adds_what_is_new(bench: Bench) -> None:
    first = bench(*RUN, "--policy", "v1", "--json").json["runs"][0]["dir"]
    assert bench("publish", "runs").code == 0
    bench(*RUN, "--policy", "v0")
    again = bench("publish", "runs")
    assert again.code == 0, again.err
    assert again.out.count("there already") == 1
    assert again.out.count("places masked: ") == 1
    named = bench("publish", first)
    assert named.code == 2
    assert "there already" in named.err
    assert bench("site", "check").code == 0
    elsewhere = bench("site", "check", "runs")
    assert elsewhere.code == 2
    assert "bench publish" in elsewhere.err
