"""Runs, comparisons and traces as DataFrames: equal to the files, with units in the names of columns."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import schedbench as sb
from harness.api.frames import column_name
from harness.measure.metrics import METRICS
from harness.runs.run import find_runs, load_run
from harness.runs.tables import DIGESTS
from tests.support.places import ROOT
from tests.support.runfactory import SPEC, toy_run, write_run

PUBLISHED = [
    path
    for folder in ("l40s", "cpu", "cpu-tiny", "h200", "published/h200")
    for path in sorted(find_runs(ROOT / "results" / folder))[:2]
]
# Simulated runs are published without their tables.
WITH_TABLES = [path for path in PUBLISHED if not (path / DIGESTS).is_file()]


def equal(value: Any, frame_value: Any) -> bool:
    """Whether a table's value stands in the frame; a missing one as what pandas calls missing."""
    if value is None:
        return bool(pd.isna(frame_value))
    if isinstance(value, list):
        return bool(list(frame_value) == value)
    return bool(value == frame_value)


def test_the_package_imports_nothing_slow() -> None:
    heavy = ["pandas", "numpy", "pyarrow", "scipy", "datasets", "aiohttp", "rich"]
    code = f"import sys, schedbench; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert sorted(sb.__all__) == sorted(dir(sb))
    for name in sb.__all__:
        assert getattr(sb, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'leaderboard'"):
        _ = sb.leaderboard


@pytest.mark.parametrize("path", WITH_TABLES, ids=lambda path: path.name)
def test_the_frames_of_a_published_run_are_its_tables(path: Path) -> None:
    (result,) = sb.read(path)
    for name in ("requests", "steps"):
        if result.manifest["kind"] == "reported":
            with pytest.raises(sb.USER_ERRORS, match="a paper reported"):
                getattr(result, name)()
            continue
        table = pq.read_table(path / f"{name}.parquet")
        if not table.num_rows:
            continue
        frame = getattr(result, name)()
        assert len(frame) == table.num_rows
        for column in table.column_names:
            values = zip(table.column(column).to_pylist(), frame[column], strict=True)
            assert all(equal(value, frame_value) for value, frame_value in values), column


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_a_summary_has_each_value_of_the_document_once(path: Path) -> None:
    run = load_run(path)
    row = sb.read(path).summary.iloc[0]
    values = {
        (metric, key): value
        for metric, entry in run.summary["metrics"].items()
        for key, value in entry.items()
        if key not in ("unit", "count", "decimals")
    }
    names = {column_name(*place) for place in values}
    assert len(names) == len(values)
    for place, value in values.items():
        assert equal(value, row[column_name(*place)]), place
    assert row["verdict"] == run.level
    assert row["policy"] == run.spec.policy


def test_columns_carry_their_units() -> None:
    assert column_name("ttft_s", "p99") == "ttft_p99_s"
    assert column_name("output_throughput", "value") == "output_throughput_tok_per_s"
    assert column_name("request_throughput", "low") == "request_throughput_low_req_per_s"
    assert column_name("makespan_steps", "value") == "makespan_steps"
    assert column_name("gap_mean", "value") == "gap_mean_tokens"
    # A metric of a newer version has no unit that is known here.
    assert column_name("power_w", "mean") == "power_w_mean"
    assert all(" " not in column_name(name, "mean") for name in METRICS)


def test_frames_of_several_runs_are_told_apart(tmp_path: Path) -> None:
    requests, steps = toy_run(30)
    for repeat in (0, 1):
        spec = dataclasses.replace(SPEC, repeat=repeat, seed=repeat, policy=("v1", "eb")[repeat])
        write_run(tmp_path, requests, steps, spec=spec)
    results = sb.read(tmp_path)
    frame = results.requests()
    assert list(frame.columns[:4]) == ["gpu", "workload", "policy", "repeat"]
    assert frame.groupby("policy").size().to_dict() == {"v1": len(requests), "eb": len(requests)}
    assert len(results.where(policy="eb").steps()) == len(steps)
    assert len(results[:1]) == 1


def test_a_folder_without_runs_is_said(tmp_path: Path) -> None:
    with pytest.raises(sb.USER_ERRORS, match="no run"):
        sb.read(tmp_path)
    with pytest.raises(sb.USER_ERRORS, match="no run"):
        sb.compare(tmp_path)
    with pytest.raises(sb.USER_ERRORS, match="needs runs"):
        sb.compare()


def test_run_and_compare_from_python(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "gpu": "l40s",
        "policy": ["v1", "eb:k=8"],
        "workload": "synthetic:mu_l=64,mu_o=16",
        "requests": 200,
    }
    results = sb.run(**options, concurrency=32, slots=16, repeat=2, out=tmp_path)
    assert len(results) == 4
    comparisons = sb.compare(results, baseline="v1")
    frame = comparisons.frame
    throughput = frame[frame.metric == "output_throughput"].iloc[0]
    (comparison,) = comparisons
    row = comparison.to_dict()["metrics"]["output_throughput"]
    assert math.isclose(throughput.change_percent, 100 * (row["ratio"] - 1))
    assert (throughput.policy_a, throughput.policy_b, throughput.word) == ("v1", "eb:k=8", row["word"])
    assert str(comparisons).startswith("eb:k=8 against v1")
    assert sb.compare(tmp_path, baseline="v1").frame.equals(frame)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"polisy": "v1"}, "no option 'polisy'; did you mean policy"),
        ({"slots": 0}, "slots is 0: it must be finite, at least 1 and at most 1e\\+09"),
        ({"slots": "many"}, "slots is 'many': give a whole number"),
        ({"slots": True}, "slots is True: give a whole number"),
        ({"policy": 3}, "policy is 3: give a text"),
        ({"sessions": 1}, "sessions is 1: give true or false"),
        ({"max_duration": 0}, "max_duration is 0: it must be finite, above 0"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"api": "grpc"}, "api is 'grpc': give one of completions, chat"),
        ({"gpu": "l40s", "policy": "v1"}, "needs --workload"),
    ],
)
def test_an_option_that_is_off_is_one_line(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(sb.USER_ERRORS, match=says):
        sb.run(**options, out=tmp_path)


def test_a_trace_is_the_rows_that_a_run_takes(tmp_path: Path) -> None:
    rows = sb.trace("sharegpt", requests=50)
    assert list(rows.frame.columns[:2]) == ["prompt_tokens", "output_tokens"]
    assert len(rows.frame) == len(rows) == 50
    results = sb.run(gpu="l40s", policy="v1", workload="sharegpt", requests=50, concurrency=8, out=tmp_path)
    requests = results.requests().sort_values("row")
    assert requests.prompt_tokens.tolist() == rows.frame.prompt_tokens.tolist()
    assert requests.expected_output_tokens.tolist() == rows.frame.output_tokens.tolist()


def test_an_interrupted_run_gives_the_frames_that_it_has(tmp_path: Path) -> None:
    requests, steps = toy_run(30)
    path = write_run(tmp_path, requests[:10], steps, status="interrupted")
    (result,) = sb.read(path)
    assert result.verdict == "INVALID"
    assert len(result.requests()) == 10
    assert result.summary.status.tolist() == ["interrupted"]


def test_a_run_does_without_pandas_and_a_frame_has_it(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "import schedbench as sb\n"
        "runs = sb.run(gpu='l40s', policy='v1', workload='synthetic:mu_l=64,mu_o=16', requests=40, concurrency=8)\n"
        "assert 'pandas' not in sys.modules, 'a run has no use for it'\n"
        "print(len(runs.requests()), len(runs.steps()) > 0, 'pandas' in sys.modules)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    assert done.stdout.split() == ["40", "True", "True"]
