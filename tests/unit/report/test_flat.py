"""Documents as flat rows, CSV and Markdown."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from harness.report.document import runs_document
from harness.report.flat import as_csv, as_markdown, leaf_rows, listed_rows, metric_rows
from harness.runs.run import load_run
from tests.support.runfactory import write_toy


def test_csv_reads_back_with_every_digit() -> None:
    rows: list[dict[str, Any]] = [{"a": 0.1 + 0.2, "b": 'x,"y"\nz'}, {"a": None, "c": 1}]
    (heading, *lines) = list(csv.reader(io.StringIO(as_csv(rows))))
    assert heading == ["a", "b", "c"]
    assert float(lines[0][0]) == 0.1 + 0.2
    assert lines[0][1] == 'x,"y"\nz'
    assert lines[1] == ["", "", "1"]
    assert as_csv([]) == ""


def test_markdown_keeps_its_cells_together() -> None:
    rows = [{"name": "a|b\n<script>", "x": 1234567.0, "none": None}, {"name": "c", "x": 0.000012345678, "none": None}]
    assert as_markdown(rows).splitlines() == [
        "| name | x |",
        "| --- | --: |",
        "| a\\|b &lt;script> | 1,234,567 |",
        "| c | 1.2346e-05 |",
    ]
    assert as_markdown([]) == ""


def test_leaves_are_named_by_their_path() -> None:
    document = {"a": {"b": [1, {"c": None}]}, "d": "x"}
    names = {row["name"]: row["value"] for row in leaf_rows(document)}
    assert names == {"a.b.0": 1, "a.b.1.c": None, "d": "x"}


def test_rows_are_those_of_the_document(tmp_path: Path) -> None:
    run = load_run(write_toy(tmp_path))
    document = runs_document([run])
    (listed,) = listed_rows(document)
    metrics = run.summary["metrics"]
    assert listed["output_throughput_tok_per_s"] == metrics["output_throughput"]["value"]
    assert listed["ttft_p99_s"] == metrics["ttft_s"]["p99"]
    rows = {row["metric"]: row for row in metric_rows(document)}
    assert rows.keys() == metrics.keys()
    assert rows["ttft_s"]["mean"] == metrics["ttft_s"]["mean"]
    assert rows["ttft_s"]["value"] is None
    assert rows["output_throughput"]["low"] == metrics["output_throughput"]["low"]
