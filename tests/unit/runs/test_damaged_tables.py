"""Tables that are damaged or missing: one line that names file and column, and nothing overwritten."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.core.records import REQUESTS
from harness.report.tables import show_table
from harness.runs.run import load_run
from harness.runs.writer import RunWriter, recover
from tests.support.console import rendered
from tests.support.refusals import run_refusal
from tests.support.runfactory import SPEC, batch_of, toy_run


def _tables(path: Path) -> tuple[bytes, bytes]:
    return (path / "summary.json").read_bytes(), (path / "run.json").read_bytes()


def _rewrite(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(file)), file)


def _with(name: str, values: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        return table.set_column(place, field, pa.array(values(table.column(name).to_pylist()), field.type))

    return change


def _first(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [value, *values[1:]]


DAMAGE: dict[str, tuple[str, Callable[[pa.Table], pa.Table], str]] = {
    "column gone": ("requests", lambda table: table.drop_columns(["finish"]), "no column finish"),
    "column more": ("requests", lambda table: table.append_column("x", table.column("row")), "column 'x'"),
    "column renamed": ("steps", lambda table: table.rename_columns(["T", *table.column_names[1:]]), "no column t_s"),
    "other type": (
        "requests",
        lambda table: table.set_column(7, "sent_s", table.column("sent_s").cast(pa.string())),
        "column sent_s is string, not double",
    ),
    "whole numbers as floats": (
        "requests",
        lambda table: table.set_column(1, "row", table.column("row").cast(pa.float64())),
        "column row is double, not int64",
    ),
    "not a number": ("requests", _with("sent_s", _first(float("nan"))), "sent_s"),
    "endless": ("requests", _with("done_s", _first(float("inf"))), "done_s"),
    "beyond": ("requests", _with("due_s", _first(-1e12)), "due_s"),
    "gap": ("requests", _with("token_gaps_s", _first([0.1, float("nan")])), "token_gaps_s"),
    "step": ("steps", _with("duration_s", _first(1e300)), "duration_s"),
    "negative count": ("requests", _with("output_tokens", _first(-5)), "output_tokens"),
    "huge count": ("requests", _with("prompt_tokens", _first(2**62)), "prompt_tokens"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_recover_refuses_a_damaged_table_and_leaves_the_summary(path: Path, damage: str) -> None:
    name, change, why = DAMAGE[damage]
    before = _tables(path)
    _rewrite(path / f"{name}.parquet", change)
    line = run_refusal(path, recover)
    assert f"{name}.parquet: damaged" in line
    assert why in line
    assert _tables(path) == before
    assert run_refusal(path, lambda path: getattr(load_run(path), name)())


@pytest.mark.parametrize("name", ["requests", "steps"])
@pytest.mark.parametrize("kind", ["directory", "pipe", "gone", "text"])
def test_a_table_that_is_no_file_is_an_error_and_not_an_empty_table(path: Path, name: str, kind: str) -> None:
    before = _tables(path)
    table = path / f"{name}.parquet"
    table.unlink()
    if kind == "directory":
        table.mkdir()
    elif kind == "pipe":
        os.mkfifo(table)
    elif kind == "text":
        table.write_text("row,finish\n")
    assert f"{name}.parquet" in run_refusal(path, recover)
    assert f"{name}.parquet" in run_refusal(path, lambda path: getattr(load_run(path), name)())
    assert _tables(path) == before


def test_a_summary_that_is_a_pipe_is_not_waited_for(path: Path) -> None:
    (path / "summary.json").unlink()
    os.mkfifo(path / "summary.json")
    assert "not a regular file" in run_refusal(path)


def test_a_log_of_other_columns_is_refused_and_kept(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    writer.add_requests(batch_of(REQUESTS, toy_run(20)[0]))
    writer.close()
    log = writer.partial / "requests.arrows"
    with pa.ipc.new_stream(str(log), pa.schema([("x", pa.int64())])) as stream:
        stream.write_batch(pa.record_batch({"x": [1]}))
    assert "requests.arrows: damaged" in run_refusal(writer.partial, recover)
    assert log.is_file()


def test_a_run_without_a_summary_says_how_to_make_it(path: Path) -> None:
    (path / "summary.json").unlink()
    assert f"bench recover {path}" in rendered(show_table(load_run(path)), 400)
