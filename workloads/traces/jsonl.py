"""Our own format: JSON lines, with a header as the first of them where the trace was converted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.reading import open_regular, shown, spelled
from workloads.core.trace import Floats, Ints, Trace
from workloads.datasets.json_array import read_array
from workloads.traces.columns import (
    COLUMNS,
    OwnColumns,
    hint,
    ids_of,
    trace_of,
    whole_number,
)
from workloads.traces.file_options import NOTHING, FileOptions
from workloads.traces.header import checked
from workloads.traces.units import LARGEST_S, UNITS

_ONE_A_LINE = "write one object a line, without the array's brackets and commas"
_KNOWN = frozenset(COLUMNS)
# Of a row of ours or of Mooncake's.
_LENGTHS = frozenset({*COLUMNS[:2], "input_length", "output_length"})


def refuse_array_of_rows(path: Path) -> None:
    """WorkloadError where a JSON array holds rows of ours rather than conversations."""
    if _is_array_of_rows(path):
        raise WorkloadError(f"{spelled(path)}: a JSON array of rows: {_ONE_A_LINE}")


def _is_array_of_rows(path: Path) -> bool:
    """Whether an array's first element is a row of ours, or of Mooncake's, rather than a conversation."""
    try:
        first = next(read_array(path), None)
    except WorkloadError:
        # What is wrong with the array is told where it is read.
        return False
    return first is not None and isinstance(first.value, dict) and not first.value.keys().isdisjoint(_LENGTHS)


def _checked(where: str, row: Any, unit: str) -> dict[str, Any]:
    """The row's known columns, each of the right type; times are of `unit`."""
    if not isinstance(row, dict):
        raise WorkloadError(f"{where}: not a JSON object{f': {_ONE_A_LINE}' if isinstance(row, list) else ''}")
    known = {column: row[column] for column in COLUMNS if row.get(column) is not None}
    for column in ("prompt_tokens", "output_tokens"):
        if column not in known:
            raise WorkloadError(f"{where}: {column} is missing")
        whole_number(where, column, known[column], 1)
    if "timestamp_s" in known:
        _check_stamp(where, known["timestamp_s"], unit)
    for column in ("id", "session"):
        if column in known and type(known[column]) not in (int, str):
            raise WorkloadError(f"{where}: {column} is {shown(known[column])}, neither text nor a whole number")
    if "turn" in known:
        whole_number(where, "turn", known["turn"], 0)
        if "session" not in known:
            raise WorkloadError(f"{where}: turn without session")
    if "hash_ids" in known:
        _check_hash_ids(where, known["hash_ids"])
    if "out_hint" in known:
        known["out_hint"] = hint(where, known["out_hint"])
    return known


def _check_stamp(where: str, stamp: Any, unit: str) -> None:
    # Neither a number that is not finite nor milliseconds since 1970 pass for seconds.
    if type(stamp) not in (int, float) or not abs(stamp) <= LARGEST_S * UNITS[unit]:
        raise WorkloadError(
            f"{where}: timestamp_s is {shown(stamp)}, not a number of seconds within ±{LARGEST_S:g} "
            "(unit=ms, unit=us and unit=ns say another)"
        )


def _check_hash_ids(where: str, ids: Any) -> None:
    if not isinstance(ids, list) or any(type(block) is not int for block in ids):
        raise WorkloadError(f"{where}: hash_ids is {shown(ids)}, not a list of whole numbers")


@dataclass(slots=True)
class _Lines:
    """What the lines of a file hold: its rows with their numbers (lines from 1), the header, the keys not known."""

    unit: str
    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    header: dict[str, Any] | None = None
    unread: dict[str, None] = field(default_factory=dict)  # in the order in which they come

    def add(self, where: str, number: int, value: Any) -> None:
        """A line's JSON value: the header where it is the first, else a row."""
        if not self.rows and self.header is None and isinstance(value, dict) and value.keys() == {"header"}:
            self.header = checked(where, value["header"])
            return
        self.rows.append((number, _checked(where, value, self.unit)))
        if not value.keys() <= _KNOWN:
            self.unread |= dict.fromkeys(key for key in value if key not in _KNOWN)

    def columns(self, file: str) -> frozenset[str]:
        """The columns of the first row; WorkloadError where another row has others."""
        first_number, first_row = self.rows[0]
        first = frozenset(first_row)
        for number, row in self.rows:
            odd = sorted(first.symmetric_difference(row))
            if odd:
                has = "has" if odd[0] in row else "lacks"
                raise WorkloadError(
                    f"{file}, row {number}: {has} {odd[0]}, other than row {first_number}: "
                    "give it in every row or in none"
                )
        return first


def _read(path: Path, unit: str) -> _Lines:
    lines = _Lines(unit)
    with open_regular(path) as file:
        for number, raw in enumerate(file, 1):
            line = raw.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else raw.strip()
            if not line:
                continue
            where = f"{spelled(path)}, row {number}"
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise WorkloadError(f"{where}: not JSON ({error}): one JSON object a line") from None
            lines.add(where, number, value)
    if not lines.rows:
        raise WorkloadError(f"{spelled(path)} is empty: nothing to replay")
    return lines


def load_jsonl(path: Path, given: FileOptions = NOTHING) -> Trace:
    """A trace of JSON lines: prompt_tokens, output_tokens, and timestamp_s, id, session, turn, out_hint, hash_ids
    where known.

    Timestamps are seconds, unless another unit is `given`, and ascend; the trace counts them from the first. Other keys
    are not read, and source["notices"] names them. The first line may be {"header": …}, as `bench trace import` writes
    it.
    Raises WorkloadError naming file, row (line, from 1) and column.
    """
    file, file_sha = spelled(path), cache.file_digest(path)
    lines = _read(path, given.unit or "s")
    rows, header, names = lines.rows, lines.header, lines.columns(file)
    ids = ids_of(file, ((number, str(row["id"])) for number, row in rows)) if "id" in names else None
    session, turn = _sessions(rows, header is not None) if "session" in names else (None, None)
    columns = OwnColumns(
        prompt_tokens=_ints(rows, "prompt_tokens"),
        output_tokens=_ints(rows, "output_tokens"),
        stamps=_stamps(file, rows) if "timestamp_s" in names else None,
        session=session,
        turn=turn,
        ids=ids,
        hints=_ints(rows, "out_hint") if "out_hint" in names else None,
        hash_ids=[(number, row["hash_ids"]) for number, row in rows] if "hash_ids" in names else None,
        unread=list(lines.unread),
    )
    return trace_of(path, "jsonl", file_sha, columns, header, given)


def _ints(rows: list[tuple[int, dict[str, Any]]], column: str) -> Ints:
    return np.array([row[column] for _, row in rows], np.int64)


def _stamps(file: str, rows: list[tuple[int, dict[str, Any]]]) -> Floats:
    """The timestamps as they stand there; WorkloadError where they do not ascend."""
    stamps = np.array([row["timestamp_s"] for _, row in rows], np.float64)
    back = np.flatnonzero(np.diff(stamps) < 0)
    if len(back):
        number, row = rows[int(back[0]) + 1]
        raise WorkloadError(
            f"{file}, row {number}: timestamp_s {row['timestamp_s']} is earlier than the row before it: "
            "sort the file by timestamp_s"
        )
    return stamps


def _sessions(rows: list[tuple[int, dict[str, Any]]], converted: bool) -> tuple[Ints, Ints]:
    """A number for each row's session, in the order in which they come, and the row's turn: as given, else counted.

    A converted trace keeps its sessions' own numbers: they are part of its digest.
    """
    number_of: dict[Any, int] = {}
    turns: dict[Any, int] = {}
    session, turn = [], []
    for _, row in rows:
        key = row["session"]
        number = number_of.setdefault(key, len(number_of))
        keeps = converted and type(key) is int and abs(key) < 1 << 63
        session.append(key if keeps else number)
        turns[key] = turns.get(key, -1) + 1
        turn.append(row.get("turn", turns[key]))
    return np.array(session, np.int64), np.array(turn, np.int64)
