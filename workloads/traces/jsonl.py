"""Our own format: JSON lines, with a header as the first of them where the trace was converted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.reading import brief, open_regular, shown
from workloads.core.trace import Floats, Trace
from workloads.datasets.json_array import read_array
from workloads.traces.header import checked, settled, with_header
from workloads.traces.mooncake import read_blocks
from workloads.traces.table import LARGEST_S
from workloads.traces.told import NO_TIMES, NOTHING, Told
from workloads.traces.units import UNITS, unit_of

MOST_TOKENS = 10**9
_ONE_A_LINE = "write one object a line, without the array's brackets and commas"
COLUMNS = ("prompt_tokens", "output_tokens", "timestamp_s", "id", "session", "turn", "out_hint", "hash_ids")
_KNOWN = frozenset(COLUMNS)
# Of a row of ours or of Mooncake's.
_LENGTHS = frozenset({*COLUMNS[:2], "input_length", "output_length"})


def refuse_array_of_rows(path: Path) -> None:
    """WorkloadError where a JSON array holds rows of ours rather than conversations."""
    if _is_array_of_rows(path):
        raise WorkloadError(f"{shown(path)}: a JSON array of rows: {_ONE_A_LINE}")


def _is_array_of_rows(path: Path) -> bool:
    """Whether an array's first element is a row of ours, or of Mooncake's, rather than a conversation."""
    try:
        first = next(read_array(path), None)
    except WorkloadError:
        # What is wrong with the array is told where it is read.
        return False
    return first is not None and isinstance(first.value, dict) and not first.value.keys().isdisjoint(_LENGTHS)


def _whole(where: str, column: str, value: Any, minimum: int) -> int:
    if type(value) is not int:
        raise WorkloadError(f"{where}: {column} is {brief(value)}, not a whole number of at least {minimum}")
    if not minimum <= value <= MOST_TOKENS:
        raise WorkloadError(f"{where}: {column} is {brief(value)}; it must be {minimum} to {MOST_TOKENS}")
    return value


def _checked(where: str, row: Any, largest: float) -> dict[str, Any]:
    """The row's known columns, each of the right type."""
    if not isinstance(row, dict):
        raise WorkloadError(f"{where}: not a JSON object{f': {_ONE_A_LINE}' if isinstance(row, list) else ''}")
    found = {column: row[column] for column in COLUMNS if row.get(column) is not None}
    for column in ("prompt_tokens", "output_tokens"):
        if column not in found:
            raise WorkloadError(f"{where}: {column} is missing")
        _whole(where, column, found[column], 1)
    if "timestamp_s" in found:
        stamp = found["timestamp_s"]
        # Neither a number that is not finite nor milliseconds since 1970 pass.
        if type(stamp) not in (int, float) or not abs(stamp) <= largest:
            raise WorkloadError(
                f"{where}: timestamp_s is {brief(stamp)}, not a number of seconds within ±{LARGEST_S:g} "
                "(unit=ms, unit=us and unit=ns say another)"
            )
    for column in ("id", "session"):
        if column in found and type(found[column]) not in (int, str):
            raise WorkloadError(f"{where}: {column} is {brief(found[column])}, neither text nor a whole number")
    if "turn" in found:
        _whole(where, "turn", found["turn"], 0)
        if "session" not in found:
            raise WorkloadError(f"{where}: turn without session")
    if "hash_ids" in found and (
        not isinstance(found["hash_ids"], list) or any(type(one) is not int for one in found["hash_ids"])
    ):
        raise WorkloadError(f"{where}: hash_ids is {brief(found['hash_ids'])}, not a list of whole numbers")
    if "out_hint" in found:
        found["out_hint"] = hint(where, found["out_hint"])
    return found


def hint(where: str, value: Any) -> tuple[int, int]:
    """The least and most output tokens that its sender expects; WorkloadError for what is no such thing."""
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2:
        raise WorkloadError(f"{where}: out_hint is {brief(value)}, neither a number of tokens nor a pair [low, high]")
    low, high = (_whole(where, "out_hint", one, 1) for one in pair)
    if low > high:
        raise WorkloadError(f"{where}: out_hint is {brief(value)}: write the lower number first")
    return low, high


Rows = list[tuple[int, dict[str, Any]]]


def _rows(path: Path, largest: float) -> tuple[Rows, dict[str, None], dict[str, Any] | None]:
    """The rows with their lines' numbers, the keys that are none of ours in their order, the header."""
    rows: Rows = []
    header: dict[str, Any] | None = None
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
            if not rows and header is None and isinstance(value, dict) and value.keys() == {"header"}:
                header = checked(where, value["header"])
                continue
            rows.append((number, _checked(where, value, largest)))
            if not value.keys() <= _KNOWN:
                unknown |= dict.fromkeys(key for key in value if key not in _KNOWN)
    return rows, unknown, header


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


def load_jsonl(path: Path, told: Told = NOTHING) -> Trace:
    """A trace of JSON lines: prompt_tokens, output_tokens, and timestamp_s, id, session, turn, out_hint, hash_ids
    where known.

    Timestamps are seconds, unless the user has `told` another unit, and ascend; the trace counts them from the first.
    Other keys are not read, and source["notices"] names them. The first line may be {"header": …}, as
    `bench trace import` writes it.
    Raises WorkloadError naming file, row (line, from 1) and column.
    """
    file_sha = cache.file_digest(path)
    rows, unknown, header = _rows(path, LARGEST_S * UNITS[told.unit or "s"])
    if not rows:
        raise WorkloadError(f"{shown(path)} is empty: nothing to replay")
    columns = _same_columns(path, rows)
    told.refuse(
        path,
        times="" if "timestamp_s" in columns else NO_TIMES,
        blocks="" if "hash_ids" in columns else "its rows have no hash_ids",
    )
    told = settled(shown(path), header, told)
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
        number = sessions.setdefault(key, len(sessions))
        # A converted trace keeps its sessions' own numbers: they are part of its digest.
        session.append(key if header is not None and type(key) is int and abs(key) < 1 << 63 else number)
        turns[key] = turns.get(key, -1) + 1
        turn.append(row.get("turn", turns[key]))
    source: dict[str, Any] = {"kind": "file", "format": "jsonl", "file": shown(path.name), "file_sha256": file_sha}
    hints = np.array([row["out_hint"] for _, row in rows], np.int64) if "out_hint" in columns else None
    if unknown:
        source["notices"] = [unread_notice(source["file"], list(unknown))]
    seconds = None if stamps is None else in_seconds(source, stamps, told)
    prompt = np.array([row["prompt_tokens"] for _, row in rows], np.int64)
    blocks = None
    if "hash_ids" in columns:
        numbers, ids = [number for number, _ in rows], [row["hash_ids"] for _, row in rows]
        blocks = read_blocks(path, numbers, ids, prompt, told, source)
    trace = Trace(
        name="file",
        prompt_tokens=prompt,
        output_tokens=np.array([row["output_tokens"] for _, row in rows], np.int64),
        source=source,
        timestamp_s=seconds,
        session=np.array(session, np.int64) if session else None,
        turn=np.array(turn, np.int64) if session else None,
        ids=tuple(seen) if seen else None,
        hint_low=None if hints is None else hints[:, 0],
        hint_high=None if hints is None else hints[:, 1],
        blocks=blocks,
    )
    return with_header(trace, header, shown(path))


def in_seconds(source: dict[str, Any], stamps: Floats, told: Told) -> Floats:
    """Ascending times as seconds from the first; what there is to say of their unit goes to `source`."""
    unit = unit_of(source["file"], stamps, "s", told.unit)
    unit.tell(source)
    return np.asarray((stamps - stamps[0]) / unit.per_second)


def unread_notice(file: str, keys: list[str]) -> str:
    """What to say of keys or columns that are none of ours."""
    more = f" and {len(keys) - 8} more" if len(keys) > 8 else ""
    listed = ", ".join(map(brief, keys[:8]))
    return f"{file}: keys that are not read: {listed}{more} (known are {', '.join(COLUMNS)})"
