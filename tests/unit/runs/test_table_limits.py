"""Tables that are small on disk and huge in memory are refused before they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.core.errors import UserError
from harness.core.records import REQUESTS
from harness.runs import tables
from harness.runs.tables import read_table
from tests.support.runfactory import request, table_of


def test_a_small_file_of_many_rows_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = path / "steps.parquet"
    table = pq.read_table(steps).slice(0, 1)
    monkeypatch.setitem(tables.MOST_ROWS, "steps", 100_000)
    pq.write_table(table.take(pa.array(np.zeros(100_001, np.int64))), steps, compression="zstd")
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("read"))
    assert steps.stat().st_size < 2**17
    with pytest.raises(UserError, match=r"damaged \(100,001 rows, at most 100,000 are read\)"):
        read_table(path, "steps")


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", None])
def test_a_text_or_a_list_that_repeats_is_counted_before_it_is_read(
    tmp_path: Path, encoding: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_TABLE_BYTES", 2**20)
    rows = [request(row, error="x" * 5000) for row in range(1000)]
    path = tmp_path / "requests.parquet"
    pq.write_table(
        table_of(REQUESTS, rows),
        path,
        use_dictionary=encoding is None,
        column_encoding=encoding and {"error": encoding},
    )
    with pytest.raises(UserError, match=r"texts of more than 1 MiB|MiB in memory"):
        read_table(tmp_path, "requests")
    pq.write_table(table_of(REQUESTS, [request(row, token_gaps_s=[1.0] * 5000) for row in range(100)]), path)
    with pytest.raises(UserError, match="4 MiB in memory, at most 1 are read"):
        read_table(tmp_path, "requests")


@pytest.mark.parametrize("encoding", ["PLAIN", None])
def test_texts_that_are_many_and_fit_are_read(
    tmp_path: Path, encoding: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size times rows is far above the bound, so that each text is looked at; together they are below it."""
    monkeypatch.setattr(tables, "MOST_TABLE_BYTES", 2**20)
    rows = [request(row, error=f"http_500: {row}") for row in range(1000)]
    pq.write_table(
        table_of(REQUESTS, rows),
        tmp_path / "requests.parquet",
        use_dictionary=encoding is None,
        column_encoding=encoding and {"error": encoding},
    )
    assert read_table(tmp_path, "requests")["error"].to_pylist() == [f"http_500: {row}" for row in range(1000)]
