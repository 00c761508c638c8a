"""Append-only tables: what was added is whole on disk before the next batch, and survives `kill -9`."""

from __future__ import annotations

import fcntl
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.core.apart import reading
from harness.core.files import open_anew
from harness.core.records import FINISHES, LATER, MODES, PHASES
from harness.runs.log_survey import survey

# The names that a dictionary column may hold: fixed, so that every batch has the same codes.
_NAMES = {"finish": FINISHES, "phase": PHASES, "policy_mode": MODES}

# Rows of a Parquet row group: small batches are put together first.
_GROUP = 131_072
# Lists and texts may make few rows many bytes.
_GROUP_BYTES = 2**26
# Counts change little from row to row, and a step's start never repeats: step tables are half the size so.
_ENCODINGS = {"id": "DELTA_BYTE_ARRAY", "t_s": "BYTE_STREAM_SPLIT"}


class AppendLog:
    """An Arrow IPC stream file that holds whole batches only; locked by the process that writes it."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self.rows = 0
        self.bytes = 0
        self._file = path.open("xb", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._pending = io.BytesIO()
        self._stream = pa.ipc.new_stream(self._pending, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        """Append one batch with the log's columns; where that fails nothing of it stays."""
        self._stream.write_batch(conform(batch, self.schema))
        data = memoryview(self._pending.getvalue())
        self._pending.seek(0)
        self._pending.truncate()
        size = len(data)
        try:
            while data:
                data = data[os.write(self._file.fileno(), data) :]
        except BaseException:
            os.ftruncate(self._file.fileno(), self.bytes)
            raise
        self.bytes += size
        self.rows += batch.num_rows

    def close(self) -> None:
        """Let go of the file and its lock."""
        self._file.close()


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in the schema's columns, types and dictionaries; plain strings may stand for names.

    Columns that came later than the batch was written are null.
    """
    columns = []
    for field in schema:
        if field.name in LATER and field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        if pa.types.is_dictionary(field.type):
            names = pa.array(_NAMES[field.name], pa.string())
            if not (pa.types.is_dictionary(column.type) and column.dictionary.equals(names)):
                codes = pc.index_in(column.cast(pa.string()), value_set=names).cast(pa.int8())
                assert codes.null_count == column.null_count, f"{field.name}: a name outside {_NAMES[field.name]}"
                column = pa.DictionaryArray.from_arrays(codes, names)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def whole_batches(path: Path, most_rows: int) -> Iterator[pa.RecordBatch]:
    """The batches of a log up to its end or to the first that is not whole.

    ArrowInvalid where it holds what no log of ours does: values outside their buffers, more rows than are read.
    """
    reading(path)
    looked = survey(path, most_rows)
    if looked.fault is not None:
        raise pa.ArrowInvalid(looked.fault)
    if not looked.batches:
        return
    with pa.OSFile(str(path)) as source:
        stream = None
        for _ in range(looked.batches):
            try:
                stream = stream or pa.ipc.open_stream(source)
                batch = stream.read_next_batch()
                # Offsets beyond a buffer would end the process that follows them.
                batch.validate(full=True)
            except (OSError, StopIteration, UnicodeDecodeError) as error:
                # Arrow says it so of messages that are none of its own; a disk's fault has a number.
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                raise pa.ArrowInvalid(str(error) or "fewer batches than messages") from None
            yield batch


def to_parquet(batches: Iterable[pa.RecordBatch], target: Path, schema: pa.Schema) -> None:
    """Write batches as a Parquet file, put in place at once; OSError leaves no half of it."""
    part = target.with_suffix(".tmp")
    try:
        with open_anew(part) as file:
            with pq.ParquetWriter(file, schema, **_parquet_options(schema)) as writer:
                group: list[pa.RecordBatch] = []
                for batch in batches:
                    missing = set(schema.names) - set(batch.schema.names)
                    # Other columns are damage, which the writer tells.
                    group.append(conform(batch, schema) if missing <= LATER else batch)
                    rows = sum(in_group.num_rows for in_group in group)
                    if rows >= _GROUP or sum(in_group.nbytes for in_group in group) >= _GROUP_BYTES:
                        writer.write_table(_by_row(pa.Table.from_batches(group)))
                        group = []
                writer.write_table(_by_row(pa.Table.from_batches(group, schema=schema)))
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _by_row(table: pa.Table) -> pa.Table:
    """Requests by their row instead of by when they ended: ids, rows and send times then take next to no space."""
    return table.sort_by("row") if "row" in table.column_names else table


def _parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How a table's columns are written: counts as differences, the rest by the values that recur."""
    encodings = {field.name: "DELTA_BINARY_PACKED" for field in schema if pa.types.is_integer(field.type)}
    encodings |= {name: encoding for name, encoding in _ENCODINGS.items() if name in schema.names}
    recurring = [name for name in schema.names if name not in encodings]
    return {
        "compression": "zstd",
        "compression_level": 9,
        # A table is read whole and in columns known beforehand: in a small one these would be a tenth of the file.
        "write_statistics": False,
        "store_schema": False,
        "use_dictionary": recurring,
        "column_encoding": encodings,
    }


def is_locked(log: Path) -> bool:
    """Whether a living process still writes a log."""
    with log.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
