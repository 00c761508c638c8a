"""Rows of a data set as files in bench's cache: written once, found again by what was asked for.

Each set of rows is a folder of its own, `rows/KEY/CONFIG/SPLIT-00000-of-00001.parquet`; beside them lie small files,
`rows/asked/KEY.json`, that say which folder answers which question. A part is parquet where its columns have one type
each, and a JSON array where rows differ in their keys.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.reading import spelled
from workloads.datasets.shards import Layout, Shards

# Raise it when the meaning of what is stored changes: older rows are then never read.
FORMAT = 1
# A row group: enough to be worth its overhead, little enough to hold.
GROUP_BYTES = 32 << 20
_HEX = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RowsKey:
    """What rows are asked for: the first `rows` (0: all) of a split of a configuration at a revision."""

    id: str
    revision: str
    config: str
    split: str
    rows: int
    layout: Layout

    def name(self) -> str:
        """64 hex digits for it."""
        columns = {column: list(fields) for column, fields in self.layout.columns.items()}
        parts = [FORMAT, self.id, self.revision, self.config, self.split, self.rows, columns]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def answers(self, resolved: RowsKey) -> Iterator[RowsKey]:
        """Every way in which the rows of this question, resolved so, may be asked for again."""
        for revision, config, split in itertools.product(
            {self.revision, resolved.revision}, {self.config, resolved.config}, {self.split, resolved.split}
        ):
            yield RowsKey(self.id, revision, config, split, self.rows, self.layout)


def _folder() -> Path:
    return cache.cache_dir() / "rows"


def _pointer(key: RowsKey) -> Path:
    return _folder() / "asked" / f"{key.name()}.json"


def find(key: RowsKey) -> Shards | None:
    """The rows that were kept for a question; None where there are none, or not as they were written."""
    # Anything may stand in a file of the cache.
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        name = json.loads(_pointer(key).read_bytes())["rows"]
        return _load(name) if _HEX.fullmatch(name) else None
    return None


def _load(name: str) -> Shards | None:
    folder = _folder() / name
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, WorkloadError):
        kept = json.loads((folder / "rows.json").read_bytes())
        files = {folder / file: digest for file, digest in kept["files"].items()}
        if files and all(cache.large_file_digest(path) == digest for path, digest in files.items()):
            return Shards(tuple(files), dict(kept["origin"]))
    return None


def keep(key: RowsKey, resolved: RowsKey, tables: Iterable[Any], origin: Mapping[str, object], where: str) -> Shards:
    """Write pyarrow tables as the rows of a question, resolved so, in one step; the table's source gets their number.

    Raises WorkloadError where there are none, a column is missing, or the cache cannot be written.
    """
    folder = _folder() / resolved.name()
    temporary = None
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=_folder(), prefix="unfinished-"))
        parts, rows = _write(temporary, resolved, tables, where)
        if not rows:
            raise WorkloadError(f"{where}: split {spelled(resolved.split, 40)} has no rows")
        kept = {
            "files": {str(part.relative_to(temporary)): cache.file_digest(part) for part in parts},
            "origin": {**origin, "rows": rows},
        }
        (temporary / "rows.json").write_text(json.dumps(kept))
        damaged = folder.exists() and _load(folder.name) is None
        if damaged:
            shutil.rmtree(folder)
        # Another process may have put the same rows there meanwhile.
        with contextlib.suppress(FileExistsError):
            _rename(temporary, folder)
    except OSError as error:
        raise WorkloadError(
            f"{where}: {spelled(_folder())} cannot be written ({error.strerror or error}): set BENCH_CACHE=FOLDER to "
            "another place, or take fewer rows with rows=N"
        ) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    for asked in key.answers(resolved):
        cache.write_atomic(_pointer(asked), json.dumps({"rows": resolved.name()}).encode())
    found = _load(folder.name)
    assert found is not None
    notices = (f"{spelled(folder)} was damaged: its rows were fetched again",) if damaged else ()
    return Shards(found.files, found.origin, notices)


def _rename(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        raise FileExistsError from None


def _write(folder: Path, key: RowsKey, tables: Iterable[Any], where: str) -> tuple[list[Path], int]:
    """The parts that tables make, named as the hub names shards, and the number of their rows."""
    parts: list[Path] = []
    rows = 0
    inner = folder / (re.sub(r"[^\w.-]", "_", key.config).lstrip(".") or "_")
    inner.mkdir()
    wanted = (_only(table, key.layout, where) for table in tables)
    # One parquet file has one schema.
    for schema, group in itertools.groupby(wanted, key=_schema):
        part = inner / f"{len(parts)}{'.json' if schema is None else '.parquet'}"
        if schema is None:
            rows += _write_json(part, group, key.layout)
        else:
            rows += _write_parquet(part, schema, group)
        parts.append(part)
    split = re.sub(r"[^\w.-]", "_", key.split)
    return [
        part.rename(inner / f"{split}-{i:05}-of-{len(parts):05}{part.suffix}") for i, part in enumerate(parts)
    ], rows


def present(layout: Layout, names: Iterable[str], where: str) -> list[str]:
    """The columns of a layout among names; WorkloadError where one is missing that must be there."""
    names = list(names)
    wanted = {column.removesuffix("?") for column in layout.columns}
    lacking = [column for column in layout.columns if column not in names and not column.endswith("?")]
    turns = [column.removesuffix("?") for column, fields in layout.columns.items() if fields]
    if turns and not set(turns) & set(names):
        lacking = turns
    if lacking:
        listed = ", ".join(spelled(name, 40) for name in names[:20]) or "none"
        raise WorkloadError(f"{where}: no column {' or '.join(lacking)}: found are {listed}; is it the right data set?")
    return [name for name in names if name in wanted]


def _fields(layout: Layout, column: str) -> frozenset[str]:
    """The fields of a column's turns that a layout asks for; none where the column is taken whole."""
    fields = layout.columns.get(column, layout.columns.get(f"{column}?", ()))
    return frozenset(field.removesuffix("?") for field in fields)


def _only(table: Any, layout: Layout, where: str) -> Any:
    """The layout's columns of a table, with its fields of turns: addresses and their like are not kept."""
    import pyarrow as pa

    table = table.select(present(layout, table.column_names, where)).replace_schema_metadata(None)
    for i, name in enumerate(table.column_names):
        type_ = table.schema.field(i).type
        wanted = _fields(layout, name)
        if wanted and (pa.types.is_list(type_) or pa.types.is_large_list(type_)):
            turn = type_.value_type
            if pa.types.is_struct(turn):
                turn = pa.struct([field for field in turn if field.name in wanted])
                make = pa.large_list if pa.types.is_large_list(type_) else pa.list_
                table = table.set_column(i, name, table.column(i).cast(make(turn)))
        _check_text(table.schema.field(i), name, where)
    return table


def _check_text(field: Any, path: str, where: str) -> None:
    """WorkloadError where texts that look like times were taken for times: what they said cannot be had back."""
    import pyarrow as pa

    if pa.types.is_timestamp(field.type) and field.name != "timestamp":
        raise WorkloadError(
            f"{where}: {spelled(path, 80)} was read as times, not as text, because all of it looks like times: "
            "give path=FILE, whose reader takes text for text"
        )
    for i in range(field.type.num_fields):
        inner = field.type.field(i)
        _check_text(inner, path if pa.types.is_struct(inner.type) else f"{path}.{inner.name}", where)


def _schema(table: Any) -> Any:
    """The schema of a table that parquet can hold for the reader; None where it has to be JSON."""
    return table.schema if all(map(_plain, table.schema.types)) else None


def _plain(type_: Any) -> bool:
    """Whether a type is a type throughout: not JSON text, and not a column without a value, whose type nobody knows."""
    import pyarrow as pa

    if pa.types.is_null(type_) or isinstance(type_, pa.BaseExtensionType):
        return False
    return all(_plain(type_.field(i).type) for i in range(type_.num_fields))


def _write_parquet(path: Path, schema: Any, tables: Iterable[Any]) -> int:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    held: list[Any] = []
    rows = 0
    with ParquetWriter(path, schema, compression="zstd") as writer:

        def write() -> None:
            if held:
                writer.write_table(pa.concat_tables(held))
                held.clear()

        for table in tables:
            held.append(table)
            rows += table.num_rows
            if sum(each.nbytes for each in held) >= GROUP_BYTES:
                write()
        write()
    return rows


def _write_json(path: Path, tables: Iterable[Any], layout: Layout) -> int:
    rows = 0
    with path.open("w") as file:
        for table in tables:
            for row in table.to_pylist():
                decoded = {
                    field.name: _turns(_decoded(row[field.name], field.type), _fields(layout, field.name))
                    for field in table.schema
                }
                file.write(f"{',' if rows else '['}\n{json.dumps(decoded)}")
                rows += 1
        file.write("\n]\n" if rows else "[]\n")
    return rows


def _decoded(value: Any, type_: Any) -> Any:
    """A value of a table as JSON has it: the library keeps what varies as JSON text, and times as times."""
    import pyarrow as pa

    if value is None:
        return None
    if isinstance(type_, pa.BaseExtensionType):
        return json.loads(value)
    if pa.types.is_struct(type_):
        return {field.name: _decoded(value[field.name], field.type) for field in type_}
    if type_.num_fields == 1:
        return [_decoded(item, type_.field(0).type) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _turns(value: Any, wanted: frozenset[str]) -> Any:
    """A column's value with the wanted fields of its turns, all of it where none are named."""
    if not wanted or not isinstance(value, list):
        return value
    return [
        {name: held for name, held in turn.items() if name in wanted} if isinstance(turn, dict) else turn
        for turn in value
    ]
