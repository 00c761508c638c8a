"""Traces in a user's own file: our JSON lines, or ShareGPT's array; the format is guessed from the content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson

from workloads import cache
from workloads.datasets.json_array import read_array
from workloads.errors import WorkloadError
from workloads.reading import brief, open_regular, shown
from workloads.trace import Trace

FORMATS = ("jsonl", "sharegpt")
MOST_TOKENS = 10**9
# Seconds since 1970 are 1.8e9; nanoseconds in 64 bits end at 9.2e9 s.
LARGEST_STAMP_S = 9e9
_ONE_A_LINE = "write one object a line, without the array's brackets and commas"
_COLUMNS = ("prompt_tokens", "output_tokens", "timestamp_s", "id", "session", "turn", "out_hint")

_KNOWN = frozenset(_COLUMNS)


def guess_format(path: Path) -> str:
    """`sharegpt` for a JSON array, `jsonl` for JSON objects; WorkloadError for anything else."""
    with open_regular(path) as file:
        head = file.read(65536).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not head:
        raise WorkloadError(f"{shown(path)} is empty: nothing to replay")
    if head[:1] not in b"[{":
        raise WorkloadError(f"{shown(path)}: format not recognised: known are {', '.join(FORMATS)} (format=…)")
    if head[:1] == b"{":
        return "jsonl"
    if _is_array_of_rows(path):
        raise WorkloadError(f"{shown(path)}: a JSON array of rows: {_ONE_A_LINE}")
    return "sharegpt"


def _is_array_of_rows(path: Path) -> bool:
    """Whether an array's first element is a row of ours rather than a conversation."""
    try:
        first = next(read_array(path), None)
    except WorkloadError:
        # What is wrong with the array is told where it is read.
        return False
    return first is not None and isinstance(first.value, dict) and not first.value.keys().isdisjoint(_COLUMNS[:2])


def _whole(where: str, column: str, value: Any, minimum: int) -> int:
    if type(value) is not int:
        raise WorkloadError(f"{where}: {column} is {brief(value)}, not a whole number of at least {minimum}")
    if not minimum <= value <= MOST_TOKENS:
        raise WorkloadError(f"{where}: {column} is {brief(value)}; it must be {minimum} to {MOST_TOKENS}")
    return value


def _checked(where: str, row: Any) -> dict[str, Any]:
    """The row's known columns, each of the right type."""
    if not isinstance(row, dict):
        raise WorkloadError(f"{where}: not a JSON object{f': {_ONE_A_LINE}' if isinstance(row, list) else ''}")
    found = {column: row[column] for column in _COLUMNS if row.get(column) is not None}
    for column in ("prompt_tokens", "output_tokens"):
        if column not in found:
            raise WorkloadError(f"{where}: {column} is missing")
        _whole(where, column, found[column], 1)
    if "timestamp_s" in found:
        stamp = found["timestamp_s"]
        # Neither a number that is not finite nor milliseconds since 1970 pass.
        if type(stamp) not in (int, float) or not abs(stamp) <= LARGEST_STAMP_S:
            raise WorkloadError(
                f"{where}: timestamp_s is {brief(stamp)}, not a number of seconds within ±{LARGEST_STAMP_S:g}"
            )
    for column in ("id", "session"):
        if column in found and type(found[column]) not in (int, str):
            raise WorkloadError(f"{where}: {column} is {brief(found[column])}, neither text nor a whole number")
    if "turn" in found:
        _whole(where, "turn", found["turn"], 0)
        if "session" not in found:
            raise WorkloadError(f"{where}: turn without session")
    if "out_hint" in found:
        found["out_hint"] = _hint(where, found["out_hint"])
    return found


def _hint(where: str, value: Any) -> tuple[int, int]:
    """The least and most output tokens that its sender expects."""
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2:
        raise WorkloadError(f"{where}: out_hint is {brief(value)}, neither a number of tokens nor a pair [low, high]")
    low, high = (_whole(where, "out_hint", one, 1) for one in pair)
    if low > high:
        raise WorkloadError(f"{where}: out_hint is {brief(value)}: write the lower number first")
    return low, high


def _rows(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], dict[str, None]]:
    """The rows with their lines' numbers, and the keys that are none of ours in the order in which they come."""
    rows: list[tuple[int, dict[str, Any]]] = []
    unknown: dict[str, None] = {}
    with open_regular(path) as file:
        for number, raw in enumerate(file, 1):
            line = raw.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else raw.strip()
            if not line:
                continue
            where = f"{shown(path)}, row {number}"
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise WorkloadError(f"{where}: not JSON ({error}): one JSON object a line") from None
            rows.append((number, _checked(where, value)))
            if not value.keys() <= _KNOWN:
                unknown |= dict.fromkeys(key for key in value if key not in _KNOWN)
    return rows, unknown


def _same_columns(path: Path, rows: list[tuple[int, dict[str, Any]]]) -> frozenset[str]:
    """The columns of the first row, which every row must have."""
    first = frozenset(rows[0][1])
    for number, row in rows:
        if odd := sorted(first.symmetric_difference(row)):
            has = "has" if odd[0] in row else "lacks"
            raise WorkloadError(
                f"{shown(path)}, row {number}: {has} {odd[0]}, other than row {rows[0][0]}: "
                "give it in every row or in none"
            )
    return first


def load_jsonl(path: Path) -> Trace:
    """A trace of JSON lines: prompt_tokens, output_tokens, and timestamp_s, id, session, turn, out_hint where known.

    Timestamps are seconds and ascend; the trace counts them from the first. Other keys are not read, and
    source["notices"] names them.
    Raises WorkloadError naming file, row (line, from 1) and column.
    """
    file_sha = cache.file_digest(path)
    rows, unknown = _rows(path)
    if not rows:
        raise WorkloadError(f"{shown(path)} is empty: nothing to replay")
    columns = _same_columns(path, rows)
    stamps = np.array([row["timestamp_s"] for _, row in rows], np.float64) if "timestamp_s" in columns else None
    if stamps is not None and (back := np.flatnonzero(np.diff(stamps) < 0)).size:
        number, row = rows[int(back[0]) + 1]
        raise WorkloadError(
            f"{shown(path)}, row {number}: timestamp_s {row['timestamp_s']} is earlier than the row before it: "
            "sort the file by timestamp_s"
        )
    seen: dict[str, int] = {}
    for number, row in rows if "id" in columns else []:
        name = str(row["id"])
        if name in seen:
            raise WorkloadError(
                f"{shown(path)}, row {number}: id {brief(name)} is row {seen[name]}'s already: ids are unique"
            )
        seen[name] = number
    sessions: dict[Any, int] = {}
    turns: dict[Any, int] = {}
    session, turn = [], []
    for _, row in rows if "session" in columns else []:
        key = row["session"]
        session.append(sessions.setdefault(key, len(sessions)))
        turns[key] = turns.get(key, -1) + 1
        turn.append(row.get("turn", turns[key]))
    source: dict[str, Any] = {"kind": "file", "format": "jsonl", "file": shown(path.name), "file_sha256": file_sha}
    if unknown:
        more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
        source["notices"] = [
            f"{source['file']}: keys that are not read: {', '.join(map(brief, [*unknown][:8]))}{more} "
            f"(known are {', '.join(_COLUMNS)})"
        ]
    hints = np.array([row["out_hint"] for _, row in rows], np.int64) if "out_hint" in columns else None
    return Trace(
        name="file",
        prompt_tokens=np.array([row["prompt_tokens"] for _, row in rows], np.int64),
        output_tokens=np.array([row["output_tokens"] for _, row in rows], np.int64),
        source=source,
        timestamp_s=None if stamps is None else stamps - stamps[0],
        session=np.array(session, np.int64) if session else None,
        turn=np.array(turn, np.int64) if session else None,
        ids=tuple(seen) if seen else None,
        hint_low=None if hints is None else hints[:, 0],
        hint_high=None if hints is None else hints[:, 1],
    )
