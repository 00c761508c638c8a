"""Our own format as parquet: the columns of the JSON lines, the header as metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from workloads.core import cache
from workloads.core.blocks import Blocks
from workloads.core.errors import WorkloadError
from workloads.core.reading import brief, open_regular, shown
from workloads.core.trace import Trace
from workloads.traces.assemble import turns_of
from workloads.traces.header import checked, settled, with_header
from workloads.traces.jsonl import COLUMNS, MOST_TOKENS, hint, in_seconds, unread_notice
from workloads.traces.mooncake import read_blocks
from workloads.traces.table import LARGEST_S
from workloads.traces.told import NO_TIMES, NOTHING, Told
from workloads.traces.units import UNITS

METADATA = b"schedbench"


def load_parquet(path: Path, told: Told = NOTHING) -> Trace:
    """A trace of parquet columns: prompt_tokens and output_tokens, and where known the others of our format.

    Rules are those of our JSON lines. Raises WorkloadError naming file, row (from 1) and column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = shown(path)
    try:
        with open_regular(path) as file:
            table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WorkloadError(
            f"{name}: not parquet that can be read ({shown(first, 120)}): is it cut off? fetch it again"
        ) from None
    metadata = (table.schema.metadata or {}).get(METADATA)
    header = None if metadata is None else checked(name, _json(name, metadata))
    for column in ("prompt_tokens", "output_tokens"):
        if column not in table.column_names:
            found = shown(", ".join(table.column_names), 200)
            raise WorkloadError(f"{name}: no column {column}: found {found}: rename the columns")
    if not table.num_rows:
        raise WorkloadError(f"{name} has no row: nothing to replay")
    columns = {column: table.column(column).combine_chunks() for column in COLUMNS if column in table.column_names}
    # A column of nothing but nulls is one that is not there.
    columns = {column: values for column, values in columns.items() if values.null_count < len(values)}
    for column in ("prompt_tokens", "output_tokens"):
        columns.setdefault(column, table.column(column).combine_chunks())
    for column, values in columns.items():
        if values.null_count:
            row = values.is_null().index(True).as_py()
            raise WorkloadError(f"{name}, row {row + 1}: {column} is missing: give it in every row or in none")
    if "turn" in columns and "session" not in columns:
        raise WorkloadError(f"{name}: turn without session: give both")
    source: dict[str, Any] = {
        "kind": "file",
        "format": "parquet",
        "file": shown(path.name),
        "file_sha256": cache.file_digest(path),
    }
    if unread := [column for column in table.column_names if column not in COLUMNS]:
        source["notices"] = [unread_notice(source["file"], unread)]
    told.refuse(
        path,
        times="" if "timestamp_s" in columns else NO_TIMES,
        blocks="" if "hash_ids" in columns else "it has no hash_ids",
    )
    told = settled(name, header, told)
    stamps = _stamps(name, columns["timestamp_s"], told.unit or "s") if "timestamp_s" in columns else None
    prompt = _whole(name, columns, "prompt_tokens", 1)
    session = _session(name, columns["session"], header is not None) if "session" in columns else None
    turn = _whole(name, columns, "turn", 0) if "turn" in columns else None
    hints = _hints(name, columns["out_hint"]) if "out_hint" in columns else None
    trace = Trace(
        name="file",
        prompt_tokens=prompt,
        output_tokens=_whole(name, columns, "output_tokens", 1),
        source=source,
        timestamp_s=None if stamps is None else in_seconds(source, stamps, told),
        session=session,
        turn=turns_of(session) if session is not None and turn is None else turn,
        ids=_ids(name, columns["id"]) if "id" in columns else None,
        hint_low=None if hints is None else hints[:, 0],
        hint_high=None if hints is None else hints[:, 1],
        blocks=_blocks(path, columns["hash_ids"], prompt, told, source) if "hash_ids" in columns else None,
    )
    return with_header(trace, header, name)


def _json(name: str, metadata: bytes) -> Any:
    try:
        return json.loads(metadata)
    except ValueError:
        raise WorkloadError(f"{name}: its header is not JSON: import the trace again") from None


def _whole(name: str, columns: dict[str, Any], column: str, least: int) -> Any:
    import pyarrow as pa

    if not pa.types.is_integer(columns[column].type):
        raise WorkloadError(f"{name}: {column} is a column of {columns[column].type}, not of whole numbers: convert it")
    values = np.asarray(columns[column])
    odd = np.flatnonzero((values < least) | (values > MOST_TOKENS))
    if len(odd):
        told = f"{column} is {values[odd[0]]}; it must be {least} to {MOST_TOKENS}"
        raise WorkloadError(f"{name}, row {odd[0] + 1}: {told}")
    return values.astype(np.int64)


def _hints(name: str, values: Any) -> Any:
    """A row [low, high] a request, of a column of numbers or of such pairs."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_integer(kind):
        pairs = [[one, one] for one in values.to_pylist()]
    elif pa.types.is_nested(kind) and kind.num_fields == 1 and pa.types.is_integer(kind.field(0).type):
        pairs = values.to_pylist()
    else:
        raise WorkloadError(f"{name}: out_hint is a column of {kind}, neither of numbers nor of pairs: convert it")
    return np.array([hint(f"{name}, row {row}", pair) for row, pair in enumerate(pairs, 1)], np.int64)


def _stamps(name: str, values: Any, unit: str) -> Any:
    """Times of `unit` as they stand there, ascending."""
    import pyarrow as pa

    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise WorkloadError(f"{name}: timestamp_s is a column of {values.type}, not of numbers: convert it")
    stamps = np.asarray(values.cast(pa.float64(), safe=False))
    odd = np.flatnonzero(~(np.abs(stamps) <= LARGEST_S * UNITS[unit]))
    if len(odd):
        told = f"timestamp_s is {stamps[odd[0]]}, not a number of seconds within ±{LARGEST_S:g} (unit=ms says another)"
        raise WorkloadError(f"{name}, row {odd[0] + 1}: {told}")
    back = np.flatnonzero(np.diff(stamps) < 0)
    if len(back):
        raise WorkloadError(
            f"{name}, row {back[0] + 2}: timestamp_s {stamps[back[0] + 1]} is earlier than the row before it: "
            "sort the file by timestamp_s"
        )
    return stamps


def _session(name: str, values: Any, ours: bool) -> Any:
    """A number a session in the order in which they come; a file of ours has such numbers already."""
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise WorkloadError(f"{name}: session is a column of {kind}, neither text nor whole numbers: convert it")
    if ours and pa.types.is_int64(kind):
        return np.asarray(values)
    return np.asarray(values.dictionary_encode().indices).astype(np.int64)


def _ids(name: str, values: Any) -> tuple[str, ...]:
    import pyarrow as pa

    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise WorkloadError(f"{name}: id is a column of {kind}, neither text nor whole numbers: convert it")
    ids = tuple(map(str, values.to_pylist()))
    if len(set(ids)) < len(ids):
        seen: dict[str, int] = {}
        for row, one in enumerate(ids, 1):
            if one in seen:
                raise WorkloadError(f"{name}, row {row}: id {brief(one)} is row {seen[one]}'s already: ids are unique")
            seen[one] = row
    return ids


def _blocks(path: Path, values: Any, prompt: Any, told: Told, source: dict[str, Any]) -> Blocks:
    import pyarrow as pa

    name, kind = shown(path), values.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
        raise WorkloadError(f"{name}: hash_ids is a column of {kind}, not of lists of whole numbers: convert it")
    ids = values.to_pylist()
    for row, one in enumerate(ids, 1):
        if None in one:
            raise WorkloadError(f"{name}, row {row}: a hash_id is missing")
    return read_blocks(path, range(1, len(ids) + 1), ids, prompt, told, source)
