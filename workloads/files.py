"""Traces in a user's own file: our JSON lines, or ShareGPT's array; the format is guessed from the content."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from workloads import cache
from workloads.errors import WorkloadError
from workloads.trace import Trace

FORMATS = ("jsonl", "sharegpt")
MOST_TOKENS = 10**9
_COLUMNS = ("prompt_tokens", "output_tokens", "timestamp_s", "id", "session", "turn")


def guess_format(path: Path) -> str:
    """`sharegpt` for a JSON array, `jsonl` for JSON objects; WorkloadError for anything else."""
    try:
        with path.open("rb") as file:
            head = file.read(65536).removeprefix(b"\xef\xbb\xbf").lstrip()
    except FileNotFoundError:
        raise WorkloadError(f"{path}: no such file") from None
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}") from None
    if not head:
        raise WorkloadError(f"{path} is empty: nothing to replay")
    if head[:1] in b"[{":
        return "sharegpt" if head[:1] == b"[" else "jsonl"
    raise WorkloadError(f"{path}: format not recognised: known are {', '.join(FORMATS)} (format=…)")


def _whole(where: str, column: str, value: Any, minimum: int) -> int:
    if type(value) is not int:
        raise WorkloadError(f"{where}: {column} is {value!r}, not a whole number of at least {minimum}")
    if not minimum <= value <= MOST_TOKENS:
        raise WorkloadError(f"{where}: {column} is {value}; it must be {minimum} to {MOST_TOKENS}")
    return value


def _checked(where: str, row: Any) -> dict[str, Any]:
    """The row's known columns, each of the right type."""
    if not isinstance(row, dict):
        raise WorkloadError(f"{where}: not a JSON object")
    found = {column: row[column] for column in _COLUMNS if row.get(column) is not None}
    for column in ("prompt_tokens", "output_tokens"):
        if column not in found:
            raise WorkloadError(f"{where}: {column} is missing")
        _whole(where, column, found[column], 1)
    if "timestamp_s" in found:
        stamp = found["timestamp_s"]
        if type(stamp) not in (int, float) or not math.isfinite(stamp):
            raise WorkloadError(f"{where}: timestamp_s is {stamp!r}, not a number of seconds")
    for column in ("id", "session"):
        if column in found and type(found[column]) not in (int, str):
            raise WorkloadError(f"{where}: {column} is {found[column]!r}, neither text nor a whole number")
    if "turn" in found:
        _whole(where, "turn", found["turn"], 0)
        if "session" not in found:
            raise WorkloadError(f"{where}: turn without session")
    return found


def _rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    rows: list[tuple[int, dict[str, Any]]] = []
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line = raw.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else raw.strip()
            if not line:
                continue
            where = f"{path}, row {number}"
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise WorkloadError(f"{where}: not JSON ({error}): one JSON object a line") from None
            rows.append((number, _checked(where, value)))
    return rows


def _same_columns(path: Path, rows: list[tuple[int, dict[str, Any]]]) -> frozenset[str]:
    """The columns of the first row, which every row must have."""
    first = frozenset(rows[0][1])
    for number, row in rows:
        if odd := sorted(first.symmetric_difference(row)):
            has = "has" if odd[0] in row else "lacks"
            raise WorkloadError(
                f"{path}, row {number}: {has} {odd[0]}, other than row {rows[0][0]}: give it in every row or in none"
            )
    return first


def load_jsonl(path: Path) -> Trace:
    """A trace of JSON lines: prompt_tokens, output_tokens, and timestamp_s, id, session, turn where known.

    Timestamps are seconds and ascend; the trace counts them from the first. Other keys are ignored.
    Raises WorkloadError naming file, row (line, from 1) and column.
    """
    file_sha = cache.file_digest(path)
    rows = _rows(path)
    if not rows:
        raise WorkloadError(f"{path} is empty: nothing to replay")
    columns = _same_columns(path, rows)
    stamps = np.array([row["timestamp_s"] for _, row in rows], np.float64) if "timestamp_s" in columns else None
    if stamps is not None and (back := np.flatnonzero(np.diff(stamps) < 0)).size:
        number, row = rows[int(back[0]) + 1]
        raise WorkloadError(
            f"{path}, row {number}: timestamp_s {row['timestamp_s']} is earlier than the row before it: "
            "sort the file by timestamp_s"
        )
    seen: dict[str, int] = {}
    for number, row in rows if "id" in columns else []:
        name = str(row["id"])
        if name in seen:
            raise WorkloadError(f"{path}, row {number}: id {name!r} is row {seen[name]}'s already: ids are unique")
        seen[name] = number
    sessions: dict[Any, int] = {}
    turns: dict[Any, int] = {}
    session, turn = [], []
    for _, row in rows if "session" in columns else []:
        key = row["session"]
        session.append(sessions.setdefault(key, len(sessions)))
        turns[key] = turns.get(key, -1) + 1
        turn.append(row.get("turn", turns[key]))
    return Trace(
        name="file",
        prompt_tokens=np.array([row["prompt_tokens"] for _, row in rows], np.int64),
        output_tokens=np.array([row["output_tokens"] for _, row in rows], np.int64),
        source={"kind": "file", "format": "jsonl", "file": path.name, "file_sha256": file_sha},
        timestamp_s=None if stamps is None else stamps - stamps[0],
        session=np.array(session, np.int64) if session else None,
        turn=np.array(turn, np.int64) if session else None,
        ids=tuple(seen) if seen else None,
    )
