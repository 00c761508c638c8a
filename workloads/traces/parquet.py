"""Our own format as parquet: the columns of the JSON lines, the header as metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.reading import open_regular, spelled
from workloads.core.trace import Floats, Ints, Trace
from workloads.traces.assemble import turn_numbers
from workloads.traces.columns import (
    COLUMNS,
    MOST_TOKENS,
    OwnColumns,
    hint,
    ids_of,
    trace_of,
)
from workloads.traces.file_options import NOTHING, FileOptions
from workloads.traces.header import checked
from workloads.traces.units import LARGEST_S, UNITS

METADATA = b"schedbench"


def load_parquet(path: Path, given: FileOptions = NOTHING) -> Trace:
    """A trace of parquet columns: prompt_tokens and output_tokens, and where known the others of our format.

    Rules are those of our JSON lines. Raises WorkloadError naming file, row (from 1) and column.
    """
    name, table = spelled(path), _read(path)
    metadata = (table.schema.metadata or {}).get(METADATA)
    header = None if metadata is None else checked(name, _json(name, metadata))
    values = _columns(name, table)
    file_sha = cache.file_digest(path)
    session = _session(name, values["session"], header is not None) if "session" in values else None
    turn = None if session is None else turn_numbers(session)
    if "turn" in values:
        turn = _whole(name, values, "turn", 0)
    columns = OwnColumns(
        prompt_tokens=_whole(name, values, "prompt_tokens", 1),
        hints=_hints(name, values["out_hint"]) if "out_hint" in values else None,
        output_tokens=_whole(name, values, "output_tokens", 1),
        stamps=_stamps(name, values["timestamp_s"], given.unit or "s") if "timestamp_s" in values else None,
        session=session,
        turn=turn,
        ids=_ids(name, values["id"]) if "id" in values else None,
        hash_ids=_hash_ids(name, values["hash_ids"]) if "hash_ids" in values else None,
        unread=[column for column in table.column_names if column not in COLUMNS],
    )
    return trace_of(path, "parquet", file_sha, columns, header, given)


def _read(path: Path) -> Any:
    """The file's table; WorkloadError where it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = spelled(path)
    try:
        with open_regular(path) as file:
            table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WorkloadError(
            f"{name}: not parquet that can be read ({spelled(first, 120)}): is it cut off? fetch it again"
        ) from None
    return table


def _columns(name: str, table: Any) -> dict[str, Any]:
    """Our columns of a table by name, whole; one of nothing but nulls is one that is not there.

    WorkloadError where a length is not there, no row is, a value is missing, or a turn has no session.
    """
    for column in ("prompt_tokens", "output_tokens"):
        if column not in table.column_names:
            listed = spelled(", ".join(table.column_names), 200)
            raise WorkloadError(f"{name}: no column {column}: found {listed}: rename the columns")
    if not table.num_rows:
        raise WorkloadError(f"{name} has no row: nothing to replay")
    all_columns = {column: table.column(column).combine_chunks() for column in COLUMNS if column in table.column_names}
    columns = {column: values for column, values in all_columns.items() if values.null_count < len(values)}
    for column in ("prompt_tokens", "output_tokens"):
        columns.setdefault(column, all_columns[column])
    for column, values in columns.items():
        if values.null_count:
            row = values.is_null().index(True).as_py()
            raise WorkloadError(f"{name}, row {row + 1}: {column} is missing: give it in every row or in none")
    if "turn" in columns and "session" not in columns:
        raise WorkloadError(f"{name}: turn without session: give both")
    return columns


def _json(name: str, metadata: bytes) -> Any:
    try:
        return json.loads(metadata)
    except ValueError:
        raise WorkloadError(f"{name}: its header is not JSON: import the trace again") from None


def _whole(name: str, columns: dict[str, Any], column: str, least: int) -> Ints:
    import pyarrow as pa

    if not pa.types.is_integer(columns[column].type):
        raise WorkloadError(f"{name}: {column} is a column of {columns[column].type}, not of whole numbers: convert it")
    values = np.asarray(columns[column])
    odd = np.flatnonzero((values < least) | (values > MOST_TOKENS))
    if len(odd):
        why = f"{column} is {values[odd[0]]}; it must be {least} to {MOST_TOKENS}"
        raise WorkloadError(f"{name}, row {odd[0] + 1}: {why}")
    return values.astype(np.int64)


def _hints(name: str, values: Any) -> Ints:
    """A row [low, high] a request, of a column of numbers or of such pairs."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_integer(kind):
        pairs = [[tokens, tokens] for tokens in values.to_pylist()]
    elif pa.types.is_nested(kind) and kind.num_fields == 1 and pa.types.is_integer(kind.field(0).type):
        pairs = values.to_pylist()
    else:
        raise WorkloadError(f"{name}: out_hint is a column of {kind}, neither of numbers nor of pairs: convert it")
    return np.array([hint(f"{name}, row {row}", pair) for row, pair in enumerate(pairs, 1)], np.int64)


def _stamps(name: str, values: Any, unit: str) -> Floats:
    """The timestamps as they stand there; WorkloadError where they are no times of `unit` or do not ascend."""
    import pyarrow as pa

    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise WorkloadError(f"{name}: timestamp_s is a column of {values.type}, not of seconds as numbers: convert it")
    stamps = np.asarray(values.cast(pa.float64(), safe=False))
    odd = np.flatnonzero(~(np.abs(stamps) <= LARGEST_S * UNITS[unit]))
    if len(odd):
        why = f"timestamp_s is {stamps[odd[0]]}, not a number of seconds within ±{LARGEST_S:g} (unit=ms says another)"
        raise WorkloadError(f"{name}, row {odd[0] + 1}: {why}")
    back = np.flatnonzero(np.diff(stamps) < 0)
    if len(back):
        raise WorkloadError(
            f"{name}, row {back[0] + 2}: timestamp_s {stamps[back[0] + 1]} is earlier than the row before it: "
            "sort the file by timestamp_s"
        )
    return stamps


def _check_text_or_whole(name: str, column: str, kind: Any) -> None:
    import pyarrow as pa

    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise WorkloadError(f"{name}: {column} is a column of {kind}, neither text nor whole numbers: convert it")


def _session(name: str, values: Any, ours: bool) -> Ints:
    """A number a session in the order in which they come; a file of ours has such numbers already."""
    import pyarrow as pa

    _check_text_or_whole(name, "session", values.type)
    if ours and pa.types.is_int64(values.type):
        return np.asarray(values)
    return np.asarray(values.dictionary_encode().indices).astype(np.int64)


def _ids(name: str, values: Any) -> tuple[str, ...]:
    _check_text_or_whole(name, "id", values.type)
    return ids_of(name, enumerate(map(str, values.to_pylist()), 1))


def _hash_ids(name: str, values: Any) -> list[tuple[int, list[Any]]]:
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
        raise WorkloadError(f"{name}: hash_ids is a column of {kind}, not of lists of whole numbers: convert it")
    return list(enumerate(values.to_pylist(), 1))
