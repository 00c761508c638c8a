"""A CSV file as columns of text with the rows that they stand in, so that a bad value can be named."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workloads.core.errors import WorkloadError
from workloads.core.options import suggest
from workloads.core.reading import open_regular, shown, spelled
from workloads.core.trace import Floats, Ints
from workloads.traces.units import LARGEST_S, UNITS

MOST_TOKENS = 10**9
_BLOCK_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of text (pyarrow arrays) by name; `lines` is each row's line in the file, from 1."""

    path: Path
    columns: dict[str, Any]
    lines: Ints

    def where(self, row: int) -> str:
        """`FILE, row N` for an error."""
        return f"{spelled(self.path)}, row {self.lines[row]}"

    def whole(self, name: str) -> Ints:
        """The column as whole numbers of 0 to 10⁹; WorkloadError with the row of the first that is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        text = self.columns[name]
        good = pc.match_substring_regex(text, r"^[0-9]{1,10}(\.0*)?$")
        self._check(good, name, f"not a whole number of 0 to {MOST_TOKENS}: correct the row or leave it out")
        values = pc.replace_substring_regex(text, r"\..*", "").cast(pa.int64())
        self._check(pc.less_equal(values, MOST_TOKENS), name, f"above {MOST_TOKENS}: no request has so many tokens")
        return np.asarray(values)

    def times(self, name: str, unit: str) -> Floats:
        """The column as numbers of `unit` ("": s) within ±9e9 s; WorkloadError with the row of one that is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        text = self.columns[name]
        good = pc.match_substring_regex(text, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$")
        unit = unit or "s"
        self._check(good, name, f"not a number of {unit}: correct the row or leave it out")
        values = pc.replace_substring_regex(text, r"^\+", "").cast(pa.float64())
        within = pc.less_equal(pc.abs(values), LARGEST_S * UNITS[unit])
        self._check(within, name, f"beyond ±{LARGEST_S:g} s: say unit=ms, unit=us or unit=ns where it is another")
        return np.asarray(values)

    def nanoseconds(self, name: str) -> tuple[Ints, bool]:
        """A column of dates as ns since 1970, and whether they carry a time zone (they then count from UTC's 1970).

        Takes `2023-11-16 18:17:03.9799600`, with up to nine digits, and with Z or an offset; all rows alike.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        text = self.columns[name]
        date = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
        self._check(
            pc.match_substring_regex(text, date + r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)?$"),
            name,
            "not a date such as 2023-11-16 18:17:03.9799600 (up to nine digits, and Z or an offset where it has one)",
        )
        zoned = pc.match_substring_regex(text, date + r"(Z|[+-].*)$")
        has_zone = bool(zoned[0].as_py())
        same = pc.equal(zoned, has_zone)
        other = "no time zone, other than the first row" if has_zone else "a time zone, other than the first row"
        self._check(same, name, f"with {other}: give one to every row or to none")
        kind = pa.timestamp("ns", "UTC") if has_zone else pa.timestamp("ns")
        try:
            values = text.cast(kind)
        except pa.ArrowInvalid:
            row = next(row for row, date in enumerate(text.to_pylist()) if not _is_date(date, kind))
            raise WorkloadError(f"{self.where(row)}: {name} is {shown(text[row].as_py())}: no such date") from None
        return np.asarray(values.cast(pa.int64())), has_zone

    def _check(self, good: Any, name: str, why: str) -> None:
        import pyarrow.compute as pc

        row = pc.index(good, False).as_py()
        if row >= 0:
            raise WorkloadError(f"{self.where(row)}: {name} is {shown(self.columns[name][row].as_py())}, {why}")


def _is_date(text: str, kind: Any) -> bool:
    import pyarrow as pa

    try:
        pa.array([text]).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def header_of(path: Path) -> list[str]:
    """The names in a CSV file's first line, as they stand there."""
    with open_regular(path) as file:
        first = file.readline(65536).removeprefix(b"\xef\xbb\xbf")
    text = first.decode("utf-8", "replace").strip()
    return [name.strip().strip('"') for name in text.split(",")] if text else []


def read_table(path: Path, needs: Iterable[str], may: Iterable[str], format_: str) -> Table:
    """The columns that a format needs and those that it may have; blank lines are passed over.

    Raises WorkloadError naming file and row: a column missing (with those that were found), a row with too few or
    too many values, a file without rows.
    """
    import pyarrow as pa
    from pyarrow import csv

    header, needs = header_of(path), list(needs)
    _check_header(path, header, needs, format_)
    wanted = [*needs, *(name for name in may if name in header)]
    odd: list[Any] = []

    def stop(row: Any) -> str:
        odd.append(row)
        return "error"

    with open_regular(path) as file, _nothing_beside():
        try:
            table = csv.read_csv(
                file,
                # One thread: only then are the rows of what is wrong known.
                read_options=csv.ReadOptions(
                    use_threads=False, block_size=_BLOCK_BYTES, column_names=header, skip_rows=1
                ),
                parse_options=csv.ParseOptions(invalid_row_handler=stop, ignore_empty_lines=False),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(header, pa.string()), include_columns=wanted, strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid as error:
            if odd:
                raise WorkloadError(_odd_row(path, odd[0])) from None
            if "Empty CSV" in str(error) or "Could not skip" in str(error):
                raise WorkloadError(f"{spelled(path)} has a header and no row: nothing to replay") from None
            raise WorkloadError(f"{spelled(path)}: not CSV that can be read ({spelled(error, 160)})") from None
    return _without_blanks(path, table, wanted)


@contextlib.contextmanager
def _nothing_beside() -> Iterator[None]:
    """Arrow cannot hand on a row that is no text, and would print a traceback beside the error that it then raises."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _without_blanks(path: Path, table: Any, wanted: list[str]) -> Table:
    import pyarrow.compute as pc

    columns = {name: pc.utf8_trim_whitespace(table.column(name).combine_chunks()) for name in wanted}
    lines = np.arange(2, table.num_rows + 2, dtype=np.int64)
    blank = np.ones(table.num_rows, dtype=np.bool_)
    for text in columns.values():
        blank &= np.asarray(pc.equal(text, ""))
    if blank.any():
        kept = np.flatnonzero(~blank)
        columns = {name: text.take(kept) for name, text in columns.items()}
        lines = lines[kept]
    if not len(lines):
        raise WorkloadError(f"{spelled(path)} has a header and no row: nothing to replay")
    return Table(path, columns, lines)


def _check_header(path: Path, header: list[str], needs: list[str], format_: str) -> None:
    for name in needs:
        if name not in header:
            near = suggest(name, set(header) - set(needs))
            raise WorkloadError(
                f"{spelled(path)}: no column {name}{near}: found {spelled(', '.join(header), 200)}; "
                f"format {format_} needs {', '.join(needs)}: rename the columns, or give format=…"
            )
        if header.count(name) > 1:
            raise WorkloadError(
                f"{spelled(path)}: the column {name} stands there {header.count(name)} times: leave one"
            )


def _odd_row(path: Path, row: Any) -> str:
    few = row.actual_columns < row.expected_columns
    hint = "is the file cut off? fetch it again" if few else "a value with a comma needs quotes"
    return (
        f"{spelled(path)}, row {row.number}: {row.actual_columns} values ({shown(row.text)}), "
        f"the header has {row.expected_columns}: {hint}"
    )
