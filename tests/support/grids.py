"""Grids on disk: small ones, and what tells two of them apart."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

SMALL = """
gpu = ["l40s", "h200"]
policy = ["v1", "ebplus"]
workload = "lmsys"
requests = 60
concurrency = [8, 16]
slots = 16
repeat = 2
alone = true
engine = "simulated"
"""


def runs_in(out: Path) -> dict[str, Path]:
    """The runs of a grid by their digests; AssertionError where one is there twice, or is not whole."""
    found: dict[str, Path] = {}
    for file in sorted(out.rglob("run.json")):
        manifest = json.loads(file.read_text())
        assert manifest["status"] == "complete", file
        assert not file.parent.name.endswith(".partial"), file
        assert manifest["digest"] not in found, f"{file.parent} and {found[manifest['digest']]}"
        found[manifest["digest"]] = file.parent
    return found


def assert_same_grids(a: Path, b: Path) -> None:
    """Both have the same cells, each once, with equal tables and summaries."""
    left, right = runs_in(a), runs_in(b)
    assert left.keys() == right.keys()
    for digest, path in left.items():
        for table in ("requests.parquet", "steps.parquet"):
            assert pq.read_table(path / table).equals(pq.read_table(right[digest] / table)), path
        assert (path / "summary.json").read_text() == (right[digest] / "summary.json").read_text()
