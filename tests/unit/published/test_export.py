"""A run of ours in other tools' schemas: their definitions, and back in with the same figures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import llmd_benchmark_report
import numpy as np
import pytest

from harness.core.errors import UserError
from harness.published.exports import EXPORTS, as_text
from harness.published.imports import Labels, import_runs
from harness.runs.run import Run, load_run
from tests.support.runfactory import request, toy_run, write_run, write_toy


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return load_run(write_toy(tmp_path / "runs", policy="v1", n=150))


def test_vllm_gets_the_keys_and_lists_that_it_writes_itself(run: Run) -> None:
    theirs = json.loads((Path(__file__).parents[2] / "data/exchange/vllm-bench-0.32.json").read_text())
    ours = EXPORTS["vllm"](run)
    # What vLLM counts a second while it runs, and when a request left its own queue, nobody of ours knows.
    assert set(theirs) - set(ours) == {"max_output_tokens_per_s", "max_concurrent_requests", "rtfx", "queue_times"}
    assert set(ours) <= set(theirs)
    assert {name for name in ours if isinstance(ours[name], list)} == {
        name for name in theirs if isinstance(theirs[name], list) and name != "queue_times"
    }
    assert (ours["request_rate"], ours["max_concurrency"]) == ("inf", 8)


def test_vllms_figures_are_what_its_lists_give(run: Run) -> None:
    one = EXPORTS["vllm"](run)
    ttft, e2el, tokens = (np.array(one[name]) for name in ("ttfts", "latencies", "output_lens"))
    tpot = (e2el - ttft)[tokens > 1] / (tokens[tokens > 1] - 1)
    gaps = np.concatenate([np.array(each) for each in one["itls"]])
    for name, values in (("ttft", ttft), ("e2el", e2el), ("tpot", tpot), ("itl", gaps)):
        assert one[f"mean_{name}_ms"] == pytest.approx(1e3 * values.mean())
        assert one[f"p99_{name}_ms"] == pytest.approx(1e3 * np.percentile(values, 99))
    # In virtual time the gaps follow from the steps: one less than tokens, and up to the last token.
    assert [len(each) + 1 for each in one["itls"]] == one["output_lens"]
    assert [math.fsum(each) for each in one["itls"]] == pytest.approx((e2el - ttft).tolist())
    assert one["output_throughput"] == pytest.approx(tokens.sum() / one["duration"])


@pytest.mark.parametrize("form", list(EXPORTS))
def test_what_went_out_comes_in_with_the_figures_of_the_run(form: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{form}.json"
    path.write_text(as_text(EXPORTS[form](run)))
    (directory,) = import_runs(path, tmp_path / "in", Labels(), form)
    back = load_run(directory)
    counts = back.manifest["counts"]
    assert (counts["completed"], counts["failed"]) == (run.manifest["counts"]["completed"], 0)
    ours, theirs = run.summary["metrics"], back.summary["metrics"]
    assert back.spec.model == run.spec.model
    assert back.spec.arrival == run.spec.arrival
    # In a closed loop all of these mean the same here and there.
    for name in ("ttft_from_sent_s", "tpot_s", "itl_s", "e2el_s"):
        for key in ("mean", "p50", "p99"):
            assert theirs[name][key] == pytest.approx(ours[name][key], rel=1e-9)
    for name in ("request_throughput", "output_throughput", "total_throughput"):
        assert theirs[name]["value"] == pytest.approx(ours[name]["value"], rel=1e-9)


def test_the_report_is_valid_by_llmds_own_schema(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(as_text(EXPORTS["llm-d"](run)))
    report: Any = llmd_benchmark_report.import_benchmark_report(str(path))
    assert report.version == "0.2.1"
    latency = report.results.request_performance.aggregate.latency
    assert latency.time_to_first_token.mean == pytest.approx(run.summary["metrics"]["ttft_from_sent_s"]["mean"])


@pytest.mark.parametrize("form", list(EXPORTS))
def test_failures_are_counted_and_in_no_latency(form: str, tmp_path: Path) -> None:
    rows = [request(row, at=row) for row in range(20)]
    rows[3] |= {"finish": "error", "error": "http_500", "last_token_s": None, "output_tokens": 1}
    rows[4] |= {"finish": "timeout", "first_token_s": None, "last_token_s": None, "output_tokens": 0}
    run = load_run(write_run(tmp_path / "runs", rows))
    path = tmp_path / "out.json"
    path.write_text(as_text(EXPORTS[form](run)))
    (directory,) = import_runs(path, tmp_path / "in", Labels())
    back = load_run(directory)
    assert back.manifest["counts"]["failed"] == 2
    assert back.manifest["counts"]["completed"] == 18
    assert back.summary["metrics"]["ttft_from_sent_s"]["mean"] == pytest.approx(1.0)
    if form == "vllm":
        assert [bool(one) for one in EXPORTS[form](run)["errors"]].count(True) == 2


def test_a_reported_run_cannot_go_out(tmp_path: Path) -> None:
    requests, steps = toy_run(30)
    run = load_run(write_run(tmp_path / "runs", requests, steps))
    path = tmp_path / "out.json"
    path.write_text(as_text(EXPORTS["vllm"](run)))
    (directory,) = import_runs(path, tmp_path / "in", Labels())
    with pytest.raises(UserError, match="no tables to export"):
        EXPORTS["vllm"](load_run(directory))
