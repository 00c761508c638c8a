"""Any trace written in our own format: JSON lines or parquet, with a header that keeps where its rows come from."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from workloads.core.errors import WorkloadError
from workloads.core.reading import spelled
from workloads.core.trace import Trace
from workloads.traces.header import header_of
from workloads.traces.parquet import METADATA

SUFFIXES = (".jsonl", ".parquet")
_ROWS = 8192


def write_trace(trace: Trace, out: Path, *, overwrite: bool = False) -> None:
    """Write a trace to OUT.jsonl or OUT.parquet; reading it gives the same digest.

    Raises WorkloadError for another suffix, a file that is there already, and one that cannot be written.
    """
    if out.suffix not in SUFFIXES:
        raise WorkloadError(f"{spelled(out)}: the name must end in {' or '.join(SUFFIXES)}")
    if out.exists() and not overwrite:
        raise WorkloadError(f"{spelled(out)} is there already: give another name, or --overwrite")
    with _into(out) as file:
        if out.suffix == ".jsonl":
            _write_lines(trace, file)
        else:
            _write_parquet(trace, file)


@contextmanager
def _into(out: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `out` in one step, once all of it has been written."""
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(dir=out.parent, prefix=f".{out.name[:64]}-", delete=False) as file:
            temporary = file.name
            yield file  # type: ignore[misc]
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(out)
    except OSError as error:
        raise WorkloadError(f"{spelled(out)}: cannot be written: {error.strerror or error}") from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def columns_of(trace: Trace) -> dict[str, Any]:
    """The columns that the trace has, as lists, by the names of our format."""
    arrays: dict[str, Any] = {
        "prompt_tokens": trace.prompt_tokens,
        "output_tokens": trace.output_tokens,
        "timestamp_s": trace.timestamp_s,
        "session": trace.session,
        "turn": trace.turn,
    }
    columns = {name: values.tolist() for name, values in arrays.items() if values is not None}
    if trace.ids is not None:
        columns["id"] = list(trace.ids)
    if trace.hint_low is not None and trace.hint_high is not None:
        pairs = zip(trace.hint_low.tolist(), trace.hint_high.tolist(), strict=True)
        columns["out_hint"] = [list(pair) for pair in pairs]
    if trace.blocks is not None:
        columns["hash_ids"] = [list(ids) for ids in trace.blocks.ids]
    return columns


def _write_lines(trace: Trace, file: BinaryIO) -> None:
    file.write(orjson.dumps({"header": header_of(trace)}) + b"\n")
    columns = columns_of(trace)
    names, lists = list(columns), list(columns.values())
    for start in range(0, len(trace), _ROWS):
        rows = zip(*(values[start : start + _ROWS] for values in lists), strict=True)
        objects = (dict(zip(names, row, strict=True)) for row in rows)
        file.write(b"".join(orjson.dumps(value) + b"\n" for value in objects))


def _write_parquet(trace: Trace, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        "timestamp_s": pa.float64(),
        "id": pa.string(),
        "out_hint": pa.list_(pa.int64()),
        "hash_ids": pa.list_(pa.uint64()),
    }
    columns = columns_of(trace)
    table = pa.table({name: pa.array(values, kinds.get(name, pa.int64())) for name, values in columns.items()})
    header = json.dumps(header_of(trace), ensure_ascii=False).encode()
    pq.write_table(table.replace_schema_metadata({METADATA: header}), file, compression="zstd")
