"""Chosen columns of a parquet file, a batch of rows at a time; the other columns are never read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

from workloads.core.errors import WorkloadError
from workloads.core.reading import open_regular, spelled

BATCH_ROWS = 1024
_FETCH = "fetch it again"


def _listed(names: list[str]) -> str:
    first = ", ".join(spelled(name, 40) for name in names[:20])
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"found are {first}{more}"


def _leaves(path: Path, paths: list[str], wanted: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The leaf columns of the wanted columns; of a list of structs only the wanted fields (`?` ends an optional one).

    A leaf is spelled `conversation.list.element.content`; the middle depends on who wrote the file.
    """
    all_leaves = [leaf.split(".") for leaf in paths]
    chosen = []
    for column, fields in wanted.items():
        name = column.removesuffix("?")
        leaves = [leaf for leaf in all_leaves if leaf[0] == name]
        if not leaves:
            if column.endswith("?"):
                continue
            names = list(dict.fromkeys(leaf[0] for leaf in all_leaves))
            raise WorkloadError(f"{spelled(path)}: no column {name}: {_listed(names)}; is it the right data set?")
        if not fields:
            chosen += leaves
        for field in fields:
            chosen += _leaves_of_field(path, name, leaves, field)
    return [".".join(leaf) for leaf in chosen]


def _leaves_of_field(path: Path, column: str, leaves: list[list[str]], field: str) -> list[list[str]]:
    """The leaves of a field of a column's turns, and not of one of a struct inside them: those lie deeper."""
    depth = min(map(len, leaves))
    chosen = [leaf for leaf in leaves if len(leaf) == depth > 1 and leaf[-1] == field.removesuffix("?")]
    if not chosen and not field.endswith("?"):
        names = list(dict.fromkeys(leaf[-1] for leaf in leaves))
        raise WorkloadError(f"{spelled(path)}: column {column} has no field {field}: {_listed(names)}")
    return chosen


def _opened(file: BufferedReader, path: Path) -> Any:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        # A buffer of a megabyte a column: without it whole column chunks would be held.
        return ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise WorkloadError(f"{spelled(path)}: no parquet, or cut off ({_first(error)}): {_FETCH}") from None


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
                    f"{spelled(path)}: corrupt in or after row {row + 1} ({_first(error)}): {_FETCH}"
                ) from None
            if batch is None:
                return
            yield row, batch
            row += batch.num_rows


def _first(error: Exception) -> str:
    return spelled(str(error).splitlines()[0] if str(error) else type(error).__name__, 80)


def strings(column: Any) -> list[Any]:
    """A column of text as Python strings; where its bytes are not valid Unicode, with lone surrogates for them."""
    import pyarrow as pa

    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        raw = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()).to_pylist()
        return [None if text is None else text.decode("utf-8", "surrogateescape") for text in raw]
