"""Results of other tools: what their real programs wrote comes in with their counts and means, and nothing else does.

The files under tests/data/exchange were written by the programs of those names and versions, driven against
`bench mock-server` with six to fourteen requests; addresses, paths and the text of prompts were taken out. GenAI-Perf's
own load generator does not install everywhere: it was given the times of six such requests in that one's form.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.errors import UserError
from harness.published.check import check
from harness.published.foreign import Fields
from harness.published.imports import Labels, import_runs, read_foreign
from harness.published.publish import publish
from harness.published.verify import verify_run
from harness.runs.run import load_run

DATA = Path(__file__).resolve().parents[2] / "data" / "exchange"
FILES = sorted(path.name for path in DATA.iterdir())


def document(name: str) -> Any:
    text = (DATA / name).read_text()
    return yaml.safe_load(text) if name.endswith(".yaml") else json.loads(text)


def imported(name: str, tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Counts and metrics of the one run in a file."""
    (directory,) = import_runs(DATA / name, tmp_path, Labels(gpu="l40s"))
    run = load_run(directory)
    assert (run.kind, run.level, run.spec.gpu) == ("reported", "NONE", "l40s")
    return run.manifest["counts"], run.summary["metrics"]


def same(found: float, told: float) -> bool:
    return math.isclose(found, told, rel_tol=1e-12)


def test_vllm_bench_keeps_its_counts_and_means(tmp_path: Path) -> None:
    told = document("vllm-bench-0.32.json")
    counts, metrics = imported("vllm-bench-0.32.json", tmp_path)
    assert counts == {
        "requests": told["completed"] + told["failed"],
        "completed": told["completed"],
        "failed": told["failed"],
        "prompt_tokens": told["total_input_tokens"],
        "output_tokens": told["total_output_tokens"],
    }
    for ours, theirs in (("ttft_from_sent_s", "ttft"), ("tpot_s", "tpot"), ("itl_s", "itl"), ("e2el_s", "e2el")):
        for key, field in (("mean", "mean"), ("p50", "median"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99")):
            assert same(metrics[ours][key], told[f"{field}_{theirs}_ms"] / 1e3)
        assert metrics[ours]["unit"] == "s"
    assert metrics["request_throughput"] == {"value": told["request_throughput"], "unit": "req/s"}
    assert metrics["output_throughput"]["value"] == told["output_throughput"]
    assert metrics["total_throughput"]["value"] == told["total_token_throughput"]
    # Theirs is null without --goodput.
    assert "goodput" not in metrics
    # Counted from the send, so it is not what an open loop of ours calls TTFT.
    assert "ttft_s" not in metrics


@pytest.mark.parametrize("name", ["request_goodput", "request_goodput:"])
def test_vllm_bench_of_any_version_tells_its_goodput(name: str, tmp_path: Path) -> None:
    told = {key: value for key, value in document("vllm-bench-0.32.json").items() if key != "request_goodput"}
    path = tmp_path / "good.json"
    path.write_text(json.dumps(told | {name: 3.5}))
    assert read_foreign(path)[0].figures["goodput"].value == 3.5


def test_aiperf_keeps_its_counts_and_means(tmp_path: Path) -> None:
    told = document("aiperf-0.13.json")
    counts, metrics = imported("aiperf-0.13.json", tmp_path)
    assert counts == {
        "requests": told["request_count"]["avg"],
        "completed": told["request_count"]["avg"],
        "failed": 0,
        "prompt_tokens": told["total_isl"]["avg"],
        "output_tokens": told["total_osl"]["avg"],
    }
    for ours, theirs in (
        ("ttft_from_sent_s", "time_to_first_token"),
        ("tpot_s", "inter_token_latency"),
        ("itl_s", "inter_chunk_latency"),
        ("e2el_s", "request_latency"),
    ):
        for key, field in (("mean", "avg"), ("p50", "p50"), ("p99", "p99"), ("max", "max")):
            assert same(metrics[ours][key], told[theirs][field] / 1e3)
    assert metrics["request_throughput"]["value"] == told["request_throughput"]["avg"]
    assert metrics["output_throughput"]["value"] == told["output_token_throughput"]["avg"]


def test_genai_perf_keeps_its_counts_and_means(tmp_path: Path) -> None:
    told = document("genai-perf-0.0.16.json")
    counts, metrics = imported("genai-perf-0.0.16.json", tmp_path)
    lengths = {name: told[f"{name}_sequence_length"]["avg"] * 6 for name in ("input", "output")}
    assert (counts["completed"], counts["failed"]) == (told["request_count"]["avg"], 0)
    assert (counts["prompt_tokens"], counts["output_tokens"]) == (lengths["input"], lengths["output"])
    for ours, theirs in (
        ("ttft_from_sent_s", "time_to_first_token"),
        ("tpot_s", "inter_token_latency"),
        ("e2el_s", "request_latency"),
    ):
        for key, field in (("mean", "avg"), ("p50", "p50"), ("p99", "p99"), ("max", "max")):
            assert same(metrics[ours][key], told[theirs][field] / 1e3)
    assert metrics["request_throughput"]["value"] == told["request_throughput"]["avg"]
    assert read_foreign(DATA / "genai-perf-0.0.16.json")[0].tool == "genai-perf"


def test_guidellm_keeps_its_counts_and_means(tmp_path: Path) -> None:
    told = document("guidellm-0.8.json")["benchmarks"][0]["metrics"]
    counts, metrics = imported("guidellm-0.8.json", tmp_path)
    assert counts["completed"] == told["request_totals"]["successful"] == 6
    assert counts["failed"] == told["request_totals"]["errored"] + told["request_totals"]["incomplete"]
    assert counts["prompt_tokens"] == round(told["prompt_token_count"]["successful"]["total_sum"])
    assert counts["output_tokens"] == round(told["output_token_count"]["successful"]["total_sum"])
    for ours, theirs, scale in (
        ("ttft_from_sent_s", "time_to_first_token_ms", 1e-3),
        ("tpot_s", "inter_token_latency_ms", 1e-3),
        ("e2el_s", "request_latency", 1.0),
    ):
        values = told[theirs]["successful"]
        assert same(metrics[ours]["mean"], values["mean"] * scale)
        assert same(metrics[ours]["p95"], values["percentiles"]["p95"] * scale)
    assert metrics["request_throughput"]["value"] == told["requests_per_second"]["successful"]["mean"]
    assert metrics["output_throughput"]["value"] == told["output_tokens_per_second"]["successful"]["mean"]


@pytest.mark.parametrize("name", ["inference-perf-0.7-stage.json", "inference-perf-0.7-summary.json"])
def test_inference_perf_keeps_its_counts_and_means(name: str, tmp_path: Path) -> None:
    told = document(name)
    counts, metrics = imported(name, tmp_path)
    assert counts == {
        "requests": told["successes"]["count"],
        "completed": told["successes"]["count"],
        "failed": told["failures"]["count"],
        "prompt_tokens": told["successes"]["prompt_tokens"]["total"],
        "output_tokens": told["successes"]["output_tokens"]["total"],
    }
    latencies = told["successes"]["latency"]
    for ours, theirs in (
        ("ttft_from_sent_s", "time_to_first_token"),
        ("tpot_s", "time_per_output_token"),
        ("itl_s", "inter_token_latency"),
        ("e2el_s", "request_latency"),
    ):
        for key, field in (("mean", "mean"), ("p50", "median"), ("p95", "p95"), ("max", "max")):
            assert metrics[ours][key] == latencies[theirs][field]
    assert metrics["request_throughput"]["value"] == told["successes"]["throughput"]["requests_per_sec"]


@pytest.mark.parametrize(
    ("name", "base", "scale"),
    [
        ("llm-d-0.1.yaml", ("metrics",), 1e-3),
        ("llm-d-0.2.1.yaml", ("results", "request_performance", "aggregate"), 1e-3),
        ("llm-d-0.2.1-inference-perf.yaml", ("results", "request_performance", "aggregate"), 1.0),
    ],
)
def test_llmd_reports_keep_their_counts_and_means(
    name: str, base: tuple[str, ...], scale: float, tmp_path: Path
) -> None:
    told = document(name)
    for part in base:
        told = told[part]
    counts, metrics = imported(name, tmp_path)
    assert counts["requests"] == told["requests"]["total"]
    assert counts["failed"] == told["requests"].get("failures", 0)
    for ours, theirs in (
        ("ttft_from_sent_s", "time_to_first_token"),
        ("tpot_s", "time_per_output_token"),
        ("itl_s", "inter_token_latency"),
        ("e2el_s", "request_latency"),
    ):
        for key in ("mean", "p50", "p90", "p99"):
            assert same(metrics[ours][key], told["latency"][theirs][key] * scale)
    rates = told["throughput"]
    rate = rates["request_rate"]["mean"] if "request_rate" in rates else rates["requests_per_sec"]
    assert metrics["request_throughput"]["value"] == rate


@pytest.mark.parametrize("name", FILES)
def test_every_figure_tells_its_field_and_every_metric_its_definition(name: str, tmp_path: Path) -> None:
    (directory,) = import_runs(DATA / name, tmp_path, Labels())
    provenance = load_run(directory).manifest["provenance"]
    metrics = load_run(directory).summary["metrics"]
    assert set(provenance["definitions"]) == set(metrics)
    assert all(figure["field"] for figure in provenance["figures"].values())
    assert verify_run(directory) is None
    summary = json.loads((directory / "summary.json").read_text())
    summary["metrics"]["e2el_s"]["mean"] *= 1.01
    (directory / "summary.json").write_text(json.dumps(summary))
    assert "summary.metrics.e2el_s.mean" in str(verify_run(directory))


@pytest.mark.parametrize("name", FILES)
def test_what_came_in_can_be_published_and_stands_the_checks_of_a_pull_request(name: str, tmp_path: Path) -> None:
    (directory,) = import_runs(DATA / name, tmp_path / "runs", Labels(gpu="l40s", policy="v1"))
    publish(directory, tmp_path / "results")
    checked = check(tmp_path / "results")
    assert (checked.runs, checked.problems) == (1, ())


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1796099150.5, "2026-12-01T04:25:50.500000+00:00"),
        ("2026-12-01T05:25:50+01:00", "2026-12-01T04:25:50+00:00"),
        ("2026-12-01T05:25:50", None),
        ("yesterday", None),
        (True, None),
        (1e300, None),
        (None, None),
    ],
)
def test_a_start_is_a_time_of_a_known_zone_or_none(value: Any, told: str | None) -> None:
    found = Fields(Path("x"), {"start": value}).time("start")
    assert (None if found is None else found.isoformat()) == told


def test_a_file_comes_in_once(tmp_path: Path) -> None:
    import_runs(DATA / "aiperf-0.13.json", tmp_path, Labels())
    with pytest.raises(UserError, match="imported already"):
        import_runs(DATA / "aiperf-0.13.json", tmp_path, Labels())


def test_several_benchmarks_of_one_file_are_runs_of_their_own(tmp_path: Path) -> None:
    told = document("guidellm-0.8.json")
    told["benchmarks"] = [told["benchmarks"][0], json.loads(json.dumps(told["benchmarks"][0]))]
    told["benchmarks"][1]["metrics"]["request_totals"]["errored"] = 2
    path = tmp_path / "two.json"
    path.write_text(json.dumps(told))
    runs = [load_run(one) for one in import_runs(path, tmp_path / "out", Labels())]
    assert [run.manifest["counts"]["failed"] for run in runs] == [0, 2]
