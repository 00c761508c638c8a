"""The columns of our own format, whatever file holds them: their names, their limits, and the trace they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workloads.core.errors import WorkloadError
from workloads.core.reading import shown, spelled
from workloads.core.trace import Floats, Ints, Trace
from workloads.traces.block_size import blocks_of
from workloads.traces.file_options import NO_TIMES, FileOptions
from workloads.traces.header import settled, with_header
from workloads.traces.units import unit_of

COLUMNS = ("prompt_tokens", "output_tokens", "timestamp_s", "id", "session", "turn", "out_hint", "hash_ids")
MOST_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """The columns of a file of ours, checked one by one; None where it has no such column.

    `stamps` are times as they stand in the file, ascending. `hints` has a row [low, high] a request. `hash_ids` has
    each row's number in the file and its ids. `unread` are the keys or columns that are none of ours.
    """

    prompt_tokens: Ints
    output_tokens: Ints
    stamps: Floats | None = None
    session: Ints | None = None
    turn: Ints | None = None
    ids: tuple[str, ...] | None = None
    hints: Ints | None = None
    hash_ids: Sequence[tuple[int, Sequence[Any]]] | None = None
    unread: Sequence[str] = ()


def trace_of(
    path: Path,
    format_: str,
    file_sha: str,
    columns: OwnColumns,
    header: dict[str, Any] | None,
    given: FileOptions,
) -> Trace:
    """The trace of a file of ours, with what its header says, and the user of times and blocks.

    WorkloadError where that does not fit the rows.
    """
    given.refuse(
        path,
        no_times=NO_TIMES if columns.stamps is None else "",
        no_blocks="it has no hash_ids" if columns.hash_ids is None else "",
    )
    given = settled(spelled(path), header, given)
    source: dict[str, Any] = {"kind": "file", "format": format_, "file": spelled(path.name), "file_sha256": file_sha}
    if columns.unread:
        source["notices"] = [_unread_notice(source["file"], columns.unread)]
    seconds = None if columns.stamps is None else _seconds(source, columns.stamps, given)
    blocks = None
    if columns.hash_ids is not None:
        blocks = blocks_of(path, columns.hash_ids, columns.prompt_tokens, given, source)
    hints = columns.hints
    trace = Trace(
        name="file",
        prompt_tokens=columns.prompt_tokens,
        output_tokens=columns.output_tokens,
        source=source,
        timestamp_s=seconds,
        session=columns.session,
        turn=columns.turn,
        ids=columns.ids,
        hint_low=None if hints is None else hints[:, 0],
        hint_high=None if hints is None else hints[:, 1],
        blocks=blocks,
    )
    return with_header(trace, header, spelled(path))


def _seconds(source: dict[str, Any], stamps: Floats, given: FileOptions) -> Floats:
    """Ascending times as seconds from the first; what there is to say of their unit joins the source."""
    unit = unit_of(source["file"], stamps, "s", given.unit)
    unit.join(source)
    return np.asarray((stamps - stamps[0]) / unit.per_second)


def _unread_notice(file: str, keys: Sequence[str]) -> str:
    """What to say of keys or columns that are none of ours."""
    more = f" and {len(keys) - 8} more" if len(keys) > 8 else ""
    listed = ", ".join(map(shown, keys[:8]))
    return f"{file}: keys that are not read: {listed}{more} (known are {', '.join(COLUMNS)})"


def whole_number(where: str, column: str, value: Any, minimum: int) -> int:
    """A whole number from `minimum` to 10⁹; WorkloadError for anything else."""
    if type(value) is not int:
        raise WorkloadError(f"{where}: {column} is {shown(value)}, not a whole number of at least {minimum}")
    if not minimum <= value <= MOST_TOKENS:
        raise WorkloadError(f"{where}: {column} is {shown(value)}; it must be {minimum} to {MOST_TOKENS}")
    return value


def hint(where: str, value: Any) -> tuple[int, int]:
    """The least and most output tokens that its sender expects; WorkloadError for what is no such thing."""
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2:
        raise WorkloadError(f"{where}: out_hint is {shown(value)}, neither a number of tokens nor a pair [low, high]")
    low, high = (whole_number(where, "out_hint", bound, 1) for bound in pair)
    if low > high:
        raise WorkloadError(f"{where}: out_hint is {shown(value)}: write the lower number first")
    return low, high


def ids_of(file: str, rows: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    """The ids of rows (number in the file, id); WorkloadError where one occurs twice."""
    row_of: dict[str, int] = {}
    for row, id_ in rows:
        if id_ in row_of:
            raise WorkloadError(f"{file}, row {row}: id {shown(id_)} is row {row_of[id_]}'s already: ids are unique")
        row_of[id_] = row
    return tuple(row_of)
