"""Chosen columns of a parquet file, a batch of rows at a time; the other columns are never read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

from workloads.core.errors import WorkloadError
from workloads.core.reading import open_regular, shown

BATCH_ROWS = 1024
_FETCH = "fetch it again"


def _listed(names: list[str]) -> str:
    shown_names = ", ".join(shown(name, 40) for name in names[:20])
    return f"found are {shown_names}{f' and {len(names) - 20} more' if len(names) > 20 else ''}"


def _leaves(path: Path, paths: list[str], wanted: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The leaf columns of the wanted columns; of a list of structs only the wanted fields (`?` ends an optional one).

    A leaf is spelled `conversation.list.element.content`; the middle depends on who wrote the file.
    """
    parts = [leaf.split(".") for leaf in paths]
    chosen = []
    for column, fields in wanted.items():
        name = column.removesuffix("?")
        mine = [leaf for leaf in parts if leaf[0] == name]
        if not mine:
            if column.endswith("?"):
                continue
            found = list(dict.fromkeys(leaf[0] for leaf in parts))
            raise WorkloadError(f"{shown(path)}: no column {name}: {_listed(found)}; is it the right data set?")
        if not fields:
            chosen += mine
        for one in fields:
            leaves = [leaf for leaf in mine if len(leaf) > 1 and leaf[-1] == one.removesuffix("?")]
            # A field of the turn itself, not one of a struct inside it: those lie deeper.
            depth = min((len(leaf) for leaf in mine), default=0)
            leaves = [leaf for leaf in leaves if len(leaf) == depth]
            if not leaves and not one.endswith("?"):
                found = list(dict.fromkeys(leaf[-1] for leaf in mine))
                raise WorkloadError(f"{shown(path)}: column {name} has no field {one}: {_listed(found)}")
            chosen += leaves
    return [".".join(leaf) for leaf in chosen]


def _opened(file: BufferedReader, path: Path) -> Any:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        # A buffer of a megabyte a column: without it whole column chunks would be held.
        return ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise WorkloadError(f"{shown(path)}: no parquet, or cut off ({_first(error)}): {_FETCH}") from None


def column_names(path: Path) -> list[str]:
    """The names of a file's columns, those of structs once."""
    with open_regular(path) as file:
        schema = _opened(file, path).schema
        return list(dict.fromkeys(schema.column(i).path.split(".")[0] for i in range(len(schema))))


def read_batches(
    path: Path, wanted: Mapping[str, tuple[str, ...]], batch_rows: int = BATCH_ROWS
) -> Iterator[tuple[int, Any]]:
    """(number of its first row, pyarrow RecordBatch) of a file, with the wanted columns and fields only.

    Raises WorkloadError naming the file where it is cut off, corrupt, no parquet, or lacks a column.
    """
    import pyarrow as pa

    with open_regular(path) as file:
        table = _opened(file, path)
        schema = table.schema
        columns = _leaves(path, [schema.column(i).path for i in range(len(schema))], wanted)
        row = 0
        batches = table.iter_batches(batch_size=batch_rows, columns=columns, use_threads=False)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise WorkloadError(
                    f"{shown(path)}: corrupt in or after row {row + 1} ({_first(error)}): {_FETCH}"
                ) from None
            if batch is None:
                return
            yield row, batch
            row += batch.num_rows


def _first(error: Exception) -> str:
    return shown(str(error).splitlines()[0] if str(error) else type(error).__name__, 80)


def strings(column: Any) -> list[Any]:
    """A column of text as Python strings; where its bytes are not valid Unicode, with lone surrogates for them."""
    import pyarrow as pa

    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        raw = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()).to_pylist()
        return [None if one is None else one.decode("utf-8", "surrogateescape") for one in raw]
