"""Reads a run's two tables, and refuses what is damaged or would fill a machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.core.apart import reading
from harness.core.count import MOST
from harness.core.errors import UserError
from harness.core.records import LATER, PRODUCED, REQUESTS, STEPS
from harness.core.sizes import MOST_REQUESTS, MOST_STEPS, MOST_TABLE_BYTES
from harness.measure.columns import LONGEST_S

TABLES = {"requests": REQUESTS, "steps": STEPS}
# Of a run whose tables are made again when they are wanted: what they hold (thin.py).
DIGESTS = "tables.json"
# And what pages and comparisons over repeats need of them (thin.py).
FIGURES = "figures.json"
# Goes up with every change of what stands there: of another form it is as if it were not there.
FORM = 2

# Made once: making one looks for a package that is not there.
_LONGEST = pa.scalar(LONGEST_S)
# Of one step: what lies beyond could not be multiplied in 64 bits.
MOST_A_STEP = 10**9
MOST_ROWS = {"requests": MOST_REQUESTS, "steps": MOST_STEPS}

_STEP_TIMES = ("t_s", "duration_s")
_TOKENS = frozenset(
    {"prompt_tokens", "expected_output_tokens", "output_tokens", "preemptions", "cached_tokens", "kv_tokens"}
)
_OF_STEPS = frozenset({"prefill_tokens", "decode_requests", "running", "waiting", "preempted", "replica", *PRODUCED})


def read_table(directory: Path, name: str, columns: Collection[str] | None = None) -> pa.Table:
    """Read a run's `requests` or `steps` (all columns, or some); UserError where it is missing or damaged.

    The file must have the columns of `records` and no others, times within 9e9 s and counts that are counts, and not
    be of a size that fills a machine. Columns that came later than the file are null.
    """
    path = directory / f"{name}.parquet"
    reading(path)
    wanted = [field for field in TABLES[name] if columns is None or field.name in columns]
    try:
        table = _with_later_columns(_read_columns(path, name, wanted), pa.schema(wanted))
        table.validate(full=True)
        faults = (fault_of(column, table.column(column)) for column in table.column_names)
        why = next((fault for fault in faults if fault), None)
    except MemoryError:
        raise
    except FileNotFoundError:
        if (directory / DIGESTS).is_file():
            raise UserError(f"{path}: not kept here: `bench expand {directory}` makes it again") from None
        raise UserError(f"{path}: not there, so nothing can be computed from this run: run again") from None
    # A name that is no text is as much damage as what Arrow itself finds.
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise _damaged(path, str(error).splitlines()[0] if str(error) else type(error).__name__) from None
    if why:
        raise _damaged(path, why)
    return table


def _read_columns(path: Path, name: str, wanted: list[pa.Field]) -> pa.Table:
    """The wanted columns that the file has, once all of it is seen to be a run's table of a size to read."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise _damaged(path, "not a regular file")
    # Opened here: given a path, Arrow takes what stands before a colon for a scheme (`--out noisy:1`).
    with pa.OSFile(str(path)) as source, pq.ParquetFile(source) as file:
        if why := _other_columns(file.schema_arrow, TABLES[name]) or _too_large(file.metadata, name):
            raise _damaged(path, why)
        held = [field for field in wanted if field.name in file.schema_arrow.names]
        if any(_is_heavy(file, field.name) for field in held if not pa.types.is_list(field.type)):
            raise _damaged(path, f"texts of more than {MOST_TABLE_BYTES >> 20:,} MiB")
        return file.read(columns=[field.name for field in held])


def _with_later_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in the schema's columns and types; those that came later than its file are null."""
    for place, field in enumerate(schema):
        if field.name not in table.column_names:
            table = table.add_column(place, field, pa.nulls(len(table), field.type))
    return table.select(schema.names).cast(schema)


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path}: damaged ({why[:200]}): take it from a copy, or run again")


def _too_large(footer: pq.FileMetaData, name: str) -> str | None:
    """What a file's footer tells of its size that no run's table has."""
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    rows = max(footer.num_rows, sum(group.num_rows for group in groups))
    if rows > MOST_ROWS[name]:
        return f"{rows:,} rows, at most {MOST_ROWS[name]:,} are read"
    # What repeats is small in the file and large in memory: values count as well, those of lists one by one.
    values = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
    size = max(sum(group.total_byte_size for group in groups), 8 * values)
    if size <= MOST_TABLE_BYTES:
        return None
    return f"{size / 2**20:,.0f} MiB in memory, at most {MOST_TABLE_BYTES >> 20:,} are read"


def _is_heavy(file: pq.ParquetFile, name: str) -> bool:
    """Whether a column's texts are too large: one that stands in the file once may stand in a million rows."""
    kind = file.schema_arrow.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_dictionary(kind)):
        return False
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    parts = [group.column(i) for group in groups for i in range(group.num_columns)]
    size = sum(part.total_uncompressed_size for part in parts if part.path_in_schema == name)
    if size * file.metadata.num_rows <= MOST_TABLE_BYTES:
        return False
    total = 0
    # So few rows at a time that they fit even where each holds all that the file has.
    for batch in file.iter_batches(max(64, MOST_TABLE_BYTES // size), columns=[name]):
        column = batch.column(0)
        total += column.nbytes if pa.types.is_string(column.type) else column.dictionary.nbytes
        if total > MOST_TABLE_BYTES:
            return True
    return False


def _other_columns(held: pa.Schema, schema: pa.Schema) -> str | None:
    """How the columns that a file holds differ from those of the schema, None where they do not."""
    for field in schema:
        if field.name in LATER and field.name not in held.names:
            continue
        if field.name not in held.names:
            return f"it has no column {field.name}"
        kind = held.field(field.name).type if held.names.count(field.name) == 1 else None
        plain = pa.types.is_dictionary(field.type) and kind == pa.string()
        if kind != field.type and not plain:
            return f"its column {field.name} is {kind or 'there twice'}, not {field.type}"
    other = sorted(set(held.names) - set(schema.names))
    return f"it has a column {other[0]!a} that is none of a run's" if other else None


def fault_of(name: str, column: pa.ChunkedArray | pa.Array) -> str | None:
    """What is wrong with a column's values: a time that is none, a count below zero or beyond all bounds."""
    if pa.types.is_list(column.type):
        column = pc.list_flatten(column)
    if pa.types.is_floating(column.type) and name.endswith("_s"):
        fits = pc.less_equal(pc.abs(column), _LONGEST)
        if pc.all(fits).as_py() is False:
            return f"its column {name} holds a time that is not finite or beyond {LONGEST_S:g} s"
    if name in _STEP_TIMES and (column.null_count or (len(column) and pc.min(column).as_py() < 0)):
        return f"its column {name} holds a time that is not there or below 0"
    if name in _TOKENS or name in _OF_STEPS:
        most = MOST if name in _TOKENS or name.endswith("_sum") else MOST_A_STEP
        ends = pc.min_max(column).as_py()
        if ends["min"] is not None and (ends["min"] < 0 or ends["max"] > most):
            return f"its column {name} holds a count below 0 or above {most}"
    return None
