"""A simulated run without its tables: digests and figures tell what they held, and the run gives them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from harness.core.errors import UserError
from harness.core.files import open_plain
from harness.core.runspec import SCHEMA_VERSION
from harness.measure.facts import Facts
from harness.runs.schema import read_json
from harness.runs.tables import DIGESTS, FIGURES, FORM, TABLES, read_table
from harness.runs.writer import write_json

LATER_THAN_DIGESTS = ("replica",)
_HEAD = {"schema": SCHEMA_VERSION, "form": FORM}
_AGAIN = "take it from a copy, or make it again with `bench expand` and `bench thin`"


def table_digest(table: pa.Table) -> dict[str, Any]:
    """A table's `rows` and the `sha256` of its names, types and values, however they lie in a file.

    A column that came later than digests and holds nothing has no part in them.
    """
    digest = hashlib.sha256()
    for name in table.column_names:
        column = table.column(name)
        if name in LATER_THAN_DIGESTS and column.null_count == len(column):
            continue
        digest.update(f"{name} {column.type}\n".encode())
        _add(digest, column)
    return {"rows": table.num_rows, "sha256": digest.hexdigest()}


def _add(digest: Any, column: pa.ChunkedArray) -> None:
    """Lengths and values of lists; which values are null; then the values, texts as JSON."""
    kind = column.type
    if pa.types.is_list(kind):
        _add(digest, pa.chunked_array([pc.list_value_length(column).combine_chunks()]))
        _add(digest, pa.chunked_array([pc.list_flatten(column).combine_chunks()]))
        return
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if pa.types.is_string(column.type) or pa.types.is_boolean(column.type):
        digest.update(json.dumps(column.to_pylist()).encode())
        return
    digest.update(column.is_null().combine_chunks().to_numpy(zero_copy_only=False).tobytes())
    values = column.fill_null(0).combine_chunks().to_numpy(zero_copy_only=False)
    digest.update(values.astype(values.dtype.newbyteorder("<")).tobytes())


def digests_of(directory: Path) -> dict[str, Any]:
    """What both tables of a run hold, as tables.json has it."""
    return {"schema": SCHEMA_VERSION, **{name: table_digest(read_table(directory, name)) for name in TABLES}}


def is_thin(directory: Path) -> bool:
    """Whether a run's tables are told by their digests and are not there."""
    return (directory / DIGESTS).is_file() and not all((directory / f"{name}.parquet").is_file() for name in TABLES)


def make_thin(directory: Path, figures: Mapping[str, Any]) -> None:
    """Writes the digests and the figures (JSON values), then takes the tables away."""
    write_json({directory / FIGURES: {**_HEAD, **figures}}, indent=None)
    write_json({directory / DIGESTS: digests_of(directory)})
    for name in TABLES:
        (directory / f"{name}.parquet").unlink()


def told_digests(directory: Path) -> dict[str, Any]:
    """What tables.json tells; UserError where it is damaged or newer than this bench."""
    path = directory / DIGESTS
    told = read_json(path, "take it from a copy, or run again")
    if any(not isinstance(told.get(name), dict) for name in TABLES):
        raise UserError(f"{path}: no digests that this bench reads: take it from a copy, or run again")
    return told


def has_figures(directory: Path) -> bool:
    """Whether a run without its tables tells what pages and comparisons over repeats need, as this bench has it."""
    if not is_thin(directory):
        return False
    head = json.dumps(_HEAD, separators=(",", ":"))[:-1].encode()
    try:
        with open_plain(directory / FIGURES) as file:
            return file.read(len(head)) == head
    except OSError:
        return False


def told_figures(directory: Path) -> tuple[Any, Facts]:
    """What pages draw, as the file has it, and the facts of comparisons; UserError where they are damaged."""
    path = directory / FIGURES
    told = read_json(path, _AGAIN)
    if told.get("form") != FORM:
        raise UserError(f"{path}: its form is {str(told.get('form'))[:20]!a}, this bench has {FORM}: {_AGAIN}")
    try:
        return told.get("detail"), Facts.from_dict(told.get("facts"))
    except ValueError as error:
        raise UserError(f"{path}: {error}: {_AGAIN}") from None


def other_than_told(directory: Path, made: Mapping[str, pa.Table]) -> str | None:
    """One line where these tables, by name, are not those that the run's digests tell; None where they are."""
    told = told_digests(directory)
    for name in TABLES:
        found = table_digest(made[name])
        if found != told[name]:
            rows = told[name].get("rows")
            why = "other values" if found["rows"] == rows else f"{found['rows']:,} rows, not {rows}"
            return f"{name}.parquet made again has {why}, by {DIGESTS}"
    return None
