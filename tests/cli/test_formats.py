"""`--format`: the same figures as a table, JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.support.commands import RUN, Bench, bench_in
from tests.support.warm import Warm


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Bench:
    """`bench` where the runs of two policies lie in `made`."""
    bench = bench_in(tmp_path_factory.mktemp("formats"), warm)
    done = bench(*RUN, "--policy", "v1,eb:k=8", "--out", "made")
    assert done.code == 0, done.err
    return bench


@pytest.mark.parametrize(
    ("command", "columns"),
    [
        (["list"], {"policy", "verdict", "ttft_p99_s", "dir"}),
        (["show"], {"policy", "metric", "unit", "value", "mean"}),
        (["compare"], {"policy_a", "policy_b", "metric", "change_percent", "word"}),
        (["profit", "--baseline", "v1"], {"name", "profit_tokenstep"}),
    ],
    ids=["list", "show", "compare", "profit"],
)
def test_every_command_prints_csv_markdown_and_json(command: list[str], columns: set[str], made: Bench) -> None:
    bench = made
    name, *options = command
    as_rows = list(csv.DictReader(io.StringIO(bench(name, "made", *options, "--format", "csv").out)))
    assert columns <= as_rows[0].keys()
    lines = bench(name, "made", *options, "--format", "markdown").out.splitlines()
    assert len(lines) == len(as_rows) + 2
    assert {line.count(" | ") for line in lines} == {lines[0].count(" | ")}
    long, short = (bench(name, "made", *options, *form).out for form in (["--format", "json"], ["--json"]))
    assert json.loads(long) == json.loads(short)
    both = bench(name, "made", *options, "--json", "--format", "csv")
    assert (both.code, both.out) == (2, "")
    assert "two formats" in both.err


def test_a_trace_prints_its_leaves(bench: Bench) -> None:
    out = bench("trace", "info", "synthetic:mu_l=64,mu_o=16", "--requests", "50", "--format", "csv").out
    rows = {row["name"]: row["value"] for row in csv.DictReader(io.StringIO(out))}
    assert rows["rows"] == "50"
    assert float(rows["prompt_tokens.mean"]) > 0
