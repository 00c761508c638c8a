"""Equal arms are seldom told apart: how often a comparison claims a difference that is not there."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from harness.core.records import REQUESTS, STEPS
from harness.measure.estimate import within_run_ratio
from harness.measure.measured import measure
from harness.report.comparison import compare
from harness.report.words import NOT_TESTED, ComparedMetric
from tests.support.runfactory import SPEC, request, table_of, toy_run, write_run


def holds_none(row: ComparedMetric) -> bool:
    """Whether the interval holds that nothing changed."""
    assert row.low is not None
    assert row.high is not None
    return row.low <= 1 <= row.high


def test_intervals_over_requests_seldom_miss_that_arms_are_equal(tmp_path: Path) -> None:
    trials, rows, told = 40, 0, 0
    for trial in range(trials):
        pair = []
        for arm in range(2):
            requests, steps = toy_run(120, 1000 * arm + trial, stream_seed=trial, mean_output=10)
            spec = dataclasses.replace(SPEC, policy=f"p{arm}", seed=trial)
            pair.append(write_run(tmp_path, requests, steps, spec=spec))
        found = compare(pair[:1], pair[1:])
        for name in ("output_throughput", "request_throughput", "ttft_s", "itl_s", "tpot_s", "e2el_s"):
            rows += 1
            told += not holds_none(found.metrics[name])
    assert told / rows <= 0.10, f"{told} of {rows} rows claim a difference between equal arms"


def test_intervals_of_percentiles_seldom_miss_it_either(tmp_path: Path) -> None:
    trials, compared_rows, told = 40, 0, 0
    for trial in range(trials):
        pair = []
        lengths = np.random.default_rng([trial, 0]).lognormal(0, 0.5, 600)
        for arm in range(2):
            noise = np.random.default_rng([trial, 1, arm]).lognormal(0, 0.3, 600)
            rows = [
                request(row, at=row * 0.1, first_token_s=row * 0.1 + 0.1 * float(lengths[row] * noise[row]))
                for row in range(600)
            ]
            for one in rows:
                one["token_gaps_s"] = [0.1]
                one["last_token_s"] = one["done_s"] = one["first_token_s"] + 0.1
            spec = dataclasses.replace(SPEC, policy=f"p{arm}", seed=trial, engine="vllm", arrival="poisson:rate=10")
            pair.append(write_run(tmp_path, rows, spec=spec, kind="measured"))
        found = compare(pair[:1], pair[1:])
        thin = found.metrics["ttft_s.p99"]
        assert (thin.low, thin.p, thin.word) == (None, None, NOT_TESTED)
        for name in ("ttft_s.p50", "ttft_s.p90", "ttft_s.p95"):
            compared_rows += 1
            told += not holds_none(found.metrics[name])
    assert told / compared_rows <= 0.10, f"{told} of {compared_rows}"


def test_a_run_of_few_stays_gives_latencies_no_interval(tmp_path: Path) -> None:
    pair = []
    for arm in range(2):
        requests, steps = toy_run(200, arm, stream_seed=0, concurrency=100)
        pair.append(write_run(tmp_path, requests, steps, spec=dataclasses.replace(SPEC, policy=f"p{arm}")))
    found = compare(pair[:1], pair[1:])
    assert "use --repeat" in found.notes[0]
    assert (found.metrics["ttft_s"].low, found.metrics["ttft_s"].word) == (None, NOT_TESTED)
    assert found.metrics["output_throughput"].low is not None


@pytest.mark.parametrize(("n", "concurrency"), [(400, 64), (400, 8)])
def test_rates_of_equal_arms_are_seldom_told_apart_however_few_stays(n: int, concurrency: int) -> None:
    told = 0
    for trial in range(60):
        arms_ = []
        for arm in range(2):
            requests, steps = toy_run(n, 1000 * arm + trial, stream_seed=trial, concurrency=concurrency)
            arms_.append(measure(table_of(REQUESTS, requests), table_of(STEPS, steps), SPEC, True))
        left, right = (one.rates["output_throughput"] for one in arms_)
        assert left is not None
        assert right is not None
        ratio = within_run_ratio(left, right, paired=True)
        assert ratio is not None
        told += ratio.p < 0.05
    assert told / 60 <= 0.10
