"""Runs as a hostile pull request brings them, and what `bench site check` says of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.runspec import RunSpec
from harness.pages import parallel
from harness.published import corpus
from harness.published.cache import JsonCache
from harness.published.check import check
from harness.runs.run import run_path
from harness.runs.writer import recover
from tests.support.runfactory import write_toy

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def problem_lines(run: Path, *paths: Path) -> list[str]:
    return [f"{one.where}: {one.why}" for one in check(run.parents[4], paths, NOW).problems]


def left_out(run: Path) -> bool:
    """Whether a build leaves out the one bad run, and still shows a good one beside it."""
    results = run.parents[4]
    good = write_toy(results / "good", policy="v0", n=20)
    cache = JsonCache(results.parent / "kept")
    found = corpus.collect_corpus(results, cache, parallel.Workers(cache, 1).compute)
    return [one.run.path for one in found.runs] == [good] and len(found.problems) == 1


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def edit_spec(run: Path, **values: Any) -> Path:
    """Another spec and its digest, in its place, with all made again that `bench recover` makes."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["spec"].update(values)
        canonical = json.dumps(manifest["spec"], sort_keys=True, separators=(",", ":"))
        manifest["digest"] = hashlib.sha256(canonical.encode()).hexdigest()

    edit(run / "run.json", change)
    recover(run)
    manifest = json.loads((run / "run.json").read_text())
    started = datetime.fromisoformat(manifest["started_utc"])
    place = run_path(run.parents[4], RunSpec.from_dict(manifest["spec"]), started, manifest["digest"])
    if place != run:
        place.parent.mkdir(parents=True, exist_ok=True)
        run.rename(place)
    for empty in run.parents[:4]:
        if not any(empty.iterdir()):
            empty.rmdir()
    return place


def put_column(run: Path, name: str, column: str, values: Callable[[list[Any]], list[Any]]) -> None:
    path = run / f"{name}.parquet"
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    field = table.schema.field(place)
    told = pa.array(values(table.column(column).to_pylist()), field.type)
    pq.write_table(table.set_column(place, field, told), path)
