"""Phases of a load that changes by plan, each by itself: worked by hand, and against pandas."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.core.records import REQUESTS
from harness.core.runspec import RunSpec
from harness.measure.measured import measure
from harness.measure.phases import phase_marks, phase_values
from harness.report.comparison import compare_runs
from harness.report.flat import comparison_rows
from harness.report.sentences import sentences
from harness.report.words import EXPLORATORY, NOT_TESTED, WORSE
from harness.runs.run import Run
from harness.session.one_run import prepare, run
from tests.support.runfactory import SPEC, request, table_of

DRIFT = "drift:lengths,mu_l=400/50,mu_o=20/120,rows=60/40"


def ran(out: Path, policy: str, repeat: int) -> Run:
    spec = RunSpec(
        gpu="l40s", model="Qwen/Qwen3-8B", policy=policy, workload=DRIFT, arrival="closed:concurrency=12",
        requests=100, slots=12, seed=repeat, repeat=repeat,
    )  # fmt: skip
    return run(prepare(spec), out, ["bench"], lambda _: None, lambda: False)


def test_a_phase_is_its_own_requests_from_their_first_send_to_their_last_token() -> None:
    rows = [
        request(0, at=0, first_token_s=1.0, last_token_s=4.0, done_s=4.0, output_tokens=4, token_gaps_s=None),
        request(1, at=2, first_token_s=3.0, last_token_s=8.0, done_s=8.0, output_tokens=2, token_gaps_s=None),
        request(2, at=3, first_token_s=6.0, last_token_s=9.0, done_s=9.0, output_tokens=7, token_gaps_s=None),
        request(3, at=4, first_token_s=None, last_token_s=None, done_s=9.5, finish="error", error="reset"),
    ]
    measured = measure(table_of(REQUESTS, rows), None, dataclasses.replace(SPEC, engine="endpoint"), True)
    found = phase_values(measured, [("a", 0), ("b", 2), ("none came", 4)])
    assert found == {
        "a": {"output_throughput": 6 / 8, "ttft_s": 1.0, "tpot_s": (1 + 5) / 2},
        "b": {"output_throughput": 7 / 6, "ttft_s": 3.0, "tpot_s": 0.5},
    }


def test_marks_are_those_of_the_manifest_and_none_of_what_is_damaged() -> None:
    def told(phases: object) -> object:
        return phase_marks({"provenance": {"trace": {"phases": phases}}})

    assert told([{"name": "a", "first_row": 0}, {"name": "b", "first_row": 3}]) == [("a", 0), ("b", 3)]
    assert told([7, {"name": "a"}, {"first_row": "2"}]) == told("abc") == []
    assert phase_marks({}) == phase_marks({"provenance": {"trace": "poisson"}}) == []


def test_phases_are_compared_each_by_itself(tmp_path: Path) -> None:
    arms = [[ran(tmp_path, policy, repeat) for repeat in range(3)] for policy in ("v1", "ljf")]
    comparison = compare_runs(arms[0], arms[1])
    assert list(comparison.phases) == ["400 in, 20 out", "50 in, 120 out"]
    for (name, rows), (first, end) in zip(comparison.phases.items(), ((0, 60), (60, 100)), strict=True):
        frames = [[pd.read_parquet(one.path / "requests.parquet") for one in arm] for arm in arms]
        own = [[frame[(frame["row"] >= first) & (frame["row"] < end)] for frame in arm] for arm in frames]
        for place, metric in enumerate(rows.values()):
            for side, arm in zip((metric.a, metric.b), own, strict=True):
                values = (
                    [f["output_tokens"].sum() / (f["last_token_s"].max() - f["sent_s"].min()) for f in arm],
                    [(f["first_token_s"] - f["sent_s"]).mean() for f in arm],
                    [((f["last_token_s"] - f["first_token_s"]) / (f["output_tokens"] - 1)).mean() for f in arm],
                )
                assert side == pytest.approx(np.mean(values[place]), rel=1e-9), (name, metric.metric)
            assert (metric.role, metric.of) == (EXPLORATORY, 6)
            assert metric.low is not None
    assert comparison.phases["50 in, 120 out"]["ttft_s"].word == WORSE
    lines = [line for line in sentences(comparison) if line.startswith("  only ")]
    assert "only 50 in, 120 out: output tok/s" in lines[1]
    flat = comparison_rows("v1", "ljf", comparison.to_dict())
    assert [row["phase"] for row in flat[-6:]] == ["400 in, 20 out"] * 3 + ["50 in, 120 out"] * 3
    # Of one repeat no interval from within the run: its ups and downs are by plan.
    alone = compare_runs(arms[0][:1], arms[1][:1]).phases["50 in, 120 out"]["ttft_s"]
    assert (alone.low, alone.p, alone.word) == (None, None, NOT_TESTED)
