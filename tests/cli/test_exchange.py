"""`bench import` and `bench export`, as users type them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commands import RUN, Bench
from tests.support.places import ROOT

DATA = ROOT / "tests" / "data" / "exchange"


def test_a_result_comes_in_is_shown_and_verified(bench: Bench, tmp_path: Path) -> None:
    command = ("import", str(DATA / "vllm-bench-0.32.json"), "--gpu", "l40s", "--policy", "v1", "--workload", "mine")
    result = bench(*command)
    assert result.code == 0, result.err
    directory = result.out.strip()
    told = json.loads((DATA / "vllm-bench-0.32.json").read_text())
    (run,) = bench("show", directory, "--json").json["runs"]
    assert (run["kind"], run["gpu"], run["policy"], run["workload"]) == ("reported", "l40s", "v1", "mine")
    assert run["counts"]["completed"] == told["completed"]
    assert run["metrics"]["e2el_s"]["mean"] == told["mean_e2el_ms"] / 1e3
    assert "vllm bench serve" in bench("show", directory).out
    assert bench("verify", directory).code == 0
    again = bench(*command)
    assert again.code == 2
    assert "imported already" in again.err


def test_a_run_of_ours_goes_out_and_comes_back(bench: Bench, tmp_path: Path) -> None:
    (run,) = bench(*RUN, "--policy", "v1", "--alone", "--json").json["runs"]
    for form in ("vllm", "llm-d"):
        out = bench("export", run["dir"], "--to", form, "--output", f"{form}.json")
        assert out.code == 0, out.err
        back = bench("import", f"{form}.json", "--out", "back").out.strip()
        (other,) = bench("show", back, "--json").json["runs"]
        assert abs(other["metrics"]["tpot_s"]["mean"] / run["metrics"]["tpot_s"]["mean"] - 1) < 1e-9
    refused = bench("export", run["dir"], "--to", "vllm", "--output", "vllm.json")
    assert (refused.code, "never overwritten" in refused.err) == (2, True)


def test_what_is_no_result_is_one_line(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text((DATA / "aiperf-0.13.json").read_text()[:900])
    for path, told in (("cut.json", "cut short"), ("none.json", "cannot be read"), ("runs", "cannot be read")):
        result = bench("import", path)
        assert result.code == 2, result
        assert told in result.err
        assert len(result.err.splitlines()) == 1
