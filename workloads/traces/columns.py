"""The columns of our own format, whatever file holds them: their names, their limits, and the trace they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.core.blocks import Blocks, misfit
from workloads.core.errors import WorkloadError
from workloads.core.reading import brief, shown
from workloads.core.trace import Floats, Ints, Trace
from workloads.traces.assemble import rate_question
from workloads.traces.header import with_header
from workloads.traces.mooncake import BLOCK_TOKENS

COLUMNS = ("prompt_tokens", "output_tokens", "timestamp_s", "id", "session", "turn", "out_hint", "hash_ids")
MOST_TOKENS = 10**9
# Seconds since 1970 are 1.8e9; nanoseconds in 64 bits end at 9.2e9 s.
LARGEST_STAMP_S = 9e9


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """The columns of a file of ours, checked one by one; None where it has no such column.

    `seconds` count from the first request. `hints` has a row [low, high] a request. `unread` are the keys or columns
    that are none of ours.
    """

    prompt_tokens: Ints
    output_tokens: Ints
    seconds: Floats | None = None
    session: Ints | None = None
    turn: Ints | None = None
    ids: tuple[str, ...] | None = None
    hints: Ints | None = None
    blocks: Blocks | None = None
    unread: Sequence[str] = ()


def trace_of(path: Path, format_: str, file_sha: str, columns: OwnColumns, header: dict[str, Any] | None) -> Trace:
    """The trace of a file of ours, with what its header says; WorkloadError where that does not fit the rows."""
    source: dict[str, Any] = {"kind": "file", "format": format_, "file": shown(path.name), "file_sha256": file_sha}
    notices = [_unread_notice(source["file"], columns.unread)] if columns.unread else []
    question = None if columns.seconds is None else rate_question(source["file"], columns.seconds)
    if question:
        notices.append(question)
    if notices:
        source["notices"] = notices
    hints = columns.hints
    trace = Trace(
        name="file",
        prompt_tokens=columns.prompt_tokens,
        output_tokens=columns.output_tokens,
        source=source,
        timestamp_s=columns.seconds,
        session=columns.session,
        turn=columns.turn,
        ids=columns.ids,
        hint_low=None if hints is None else hints[:, 0],
        hint_high=None if hints is None else hints[:, 1],
        blocks=columns.blocks,
    )
    return with_header(trace, header, shown(path))


def _unread_notice(file: str, keys: Sequence[str]) -> str:
    """What to say of keys or columns that are none of ours."""
    more = f" and {len(keys) - 8} more" if len(keys) > 8 else ""
    listed = ", ".join(map(brief, keys[:8]))
    return f"{file}: keys that are not read: {listed}{more} (known are {', '.join(COLUMNS)})"


def whole_number(where: str, column: str, value: Any, minimum: int) -> int:
    """A whole number from `minimum` to 10⁹; WorkloadError for anything else."""
    if type(value) is not int:
        raise WorkloadError(f"{where}: {column} is {brief(value)}, not a whole number of at least {minimum}")
    if not minimum <= value <= MOST_TOKENS:
        raise WorkloadError(f"{where}: {column} is {brief(value)}; it must be {minimum} to {MOST_TOKENS}")
    return value


def hint(where: str, value: Any) -> tuple[int, int]:
    """The least and most output tokens that its sender expects; WorkloadError for what is no such thing."""
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2:
        raise WorkloadError(f"{where}: out_hint is {brief(value)}, neither a number of tokens nor a pair [low, high]")
    low, high = (whole_number(where, "out_hint", bound, 1) for bound in pair)
    if low > high:
        raise WorkloadError(f"{where}: out_hint is {brief(value)}: write the lower number first")
    return low, high


def ids_of(file: str, rows: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    """The ids of rows (number in the file, id); WorkloadError where one occurs twice."""
    row_of: dict[str, int] = {}
    for row, id_ in rows:
        if id_ in row_of:
            raise WorkloadError(f"{file}, row {row}: id {brief(id_)} is row {row_of[id_]}'s already: ids are unique")
        row_of[id_] = row
    return tuple(row_of)


def blocks_of(file: str, rows: Iterable[tuple[int, Sequence[Any], int]], header: dict[str, Any] | None) -> Blocks:
    """The hash_ids of rows (number in the file, ids, prompt tokens), in blocks as the header says, else Mooncake's.

    WorkloadError where a row's do not fit its prompt.
    """
    tokens = (header or {}).get("block_tokens") or BLOCK_TOKENS
    all_ids = []
    for row, ids, prompt_tokens in rows:
        why = "a hash_id is missing" if None in ids else misfit(ids, prompt_tokens, tokens)
        if why:
            raise WorkloadError(f"{file}, row {row}: {why}")
        all_ids.append(tuple(ids))
    return Blocks(tuple(all_ids), tokens)
