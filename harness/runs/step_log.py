"""The step log of a real engine's scheduler (policies/plugin/step_log.py), taken into a run's tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.core.apart import reading
from harness.core.count import MOST
from harness.core.errors import UserError
from harness.core.files import open_plain
from harness.core.records import NAMES, REQUESTS, STEPS, step_columns, to_batch
from harness.core.sizes import MOST_REQUESTS, MOST_STEPS
from harness.core.text import spelled
from harness.runs.schema import refuse_odd_values
from harness.runs.tables import fault_of
from policies.core import STEP_COLUMNS, PolicyState
from policies.plugin.step_log import (
    ABORT,
    ARRIVAL,
    EVENT,
    EVENT_BYTES,
    EVENT_COLUMNS,
    EVENTS,
    FINISH,
    HEADER,
    MAGIC,
    PREFIX,
    STATE,
    STEP,
    STEP_BYTES,
)

# The scheduler's file in a run directory. It stays there: it holds each request's events as well.
STEP_LOG = "steps.log"
# All that the engine's processes say; each holds its lock.
ENGINE_LOG = "engine.log"

Batches = Iterator[pa.RecordBatch]

ROWS_A_BATCH = 65_536
# Bytes of a log that are looked at together; a record has at most 64 KiB.
_STRETCH = 1 << 20
# Of those that are kept: an end a request, or all of a log that somebody looks into.
MOST_EVENTS = 2 * MOST_REQUESTS

EVENT_TABLE = pa.schema(
    [
        ("event", NAMES),  # arrival, admission, preemption, finish, abort
        ("t_s", pa.float64()),
        ("step", pa.int64()),  # of the STEPS rows: the one it happened in or before
        ("request", pa.string()),  # the X-Request-Id that the client sent
        ("engine_request", pa.string()),  # the engine's own name for it
        ("tokens", pa.int64()),  # arrival: prompt; admission: found in the prefix cache; else output so far
        ("preemptions", pa.int64()),
    ]
)

# vLLM's names: `cmpl-<X-Request-Id>-<prompt's place>-<8 hex digits>`, `chatcmpl-<X-Request-Id>-<8 hex digits>`.
_COMPLETION = re.compile(r"cmpl-(.*)-\d+-[0-9a-f]{8}")
_CHAT = re.compile(r"chatcmpl-(.*)-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class StepLog:
    """A log as read: its header, the steps, the requests' events, and the bytes of a last record cut off."""

    header: dict[str, Any]
    states: list[PolicyState]
    rows: np.ndarray[tuple[int, int], np.dtype[np.int64]]  # (steps, len(STEP_COLUMNS)), times from the origin, ns
    events: pa.Table  # EVENT_TABLE
    cut_off: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The steps as STEPS record batches, in order."""
        for start in range(0, len(self.rows), ROWS_A_BATCH):
            rows = self.rows[start : start + ROWS_A_BATCH]
            columns = dict(zip(STEP_COLUMNS, rows.T, strict=True))
            yield to_batch(step_columns(columns, self.states), STEPS, len(columns["t"]))


def client_id(engine_id: str) -> str:
    """The X-Request-Id in the engine's name for a request; the name itself where it has another form."""
    match = _COMPLETION.fullmatch(engine_id) or _CHAT.fullmatch(engine_id)
    return match[1] if match else engine_id


def read_step_log(path: Path, origin_ns: int, only: Collection[int] | None = None) -> StepLog:
    """Reads a log; times become seconds since `origin_ns` of the engine's monotonic clock.

    Of the events those of the kinds in `only` are kept, all unless told. A last record that a crash cut off is left
    out and counted. UserError where the file is no step log, or holds more than is read.
    """
    header: dict[str, Any] = {}
    states: list[PolicyState] = []
    steps, events = bytearray(), bytearray()
    names: list[str] = []
    end = len(MAGIC)
    with _opened(path) as file:
        for kind, at, content in _records(file):
            size = len(content)
            if kind == STEP and size == STEP_BYTES:
                steps += content
            elif kind == EVENT and size >= EVENT_BYTES:
                if only is None or int.from_bytes(content[:8], "little", signed=True) in only:
                    events += content[:EVENT_BYTES]
                    names.append(content[EVENT_BYTES:].decode())
            elif kind == STATE:
                states.append(_state_of(json.loads(content)))
            elif kind == HEADER:
                header = json.loads(content)
            else:
                raise UserError(f"{path}: no known record at byte {at}: the file is damaged, or of another version")
            end = at + PREFIX.size + size
            if max(len(steps) // STEP_BYTES, len(states)) > MOST_STEPS or len(names) > MOST_EVENTS:
                raise UserError(
                    f"{path}: more than {MOST_STEPS:,} steps or {MOST_EVENTS:,} events, the most that are read"
                )
        cut_off = file.tell() - end
    rows = np.frombuffer(steps, dtype="<i8").reshape(-1, len(STEP_COLUMNS)).astype(np.int64, copy=False)
    rows[:, 0] -= origin_ns
    return StepLog(header, states, rows, _event_table(events, names, origin_ns), cut_off)


def _opened(path: Path) -> BinaryIO:
    """A step log, open after its first line; UserError where it is none."""
    reading(path)
    try:
        file = open_plain(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; the engine writes its step log there") from error
    if file.read(len(MAGIC)) != MAGIC:
        file.close()
        raise UserError(f"{path} is not a step log of this version: it should begin with {MAGIC.decode().strip()!r}")
    return file


def _records(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """The kind of each whole record, the byte at which it begins, and its content, a stretch of the file at a time."""
    first, data = len(MAGIC), b""
    while more := file.read(_STRETCH):
        data += more
        at = 0
        while at + PREFIX.size <= len(data):
            kind, size = PREFIX.unpack_from(data, at)
            start = at + PREFIX.size
            if start + size > len(data):
                break
            yield kind, first + at, data[start : start + size]
            at = start + size
        first, data = first + at, data[at:]


def _state_of(values: Any) -> PolicyState:
    if not isinstance(values, dict):
        raise TypeError("a policy's state is no object of keys and values")
    own = values.pop("own", None)
    return PolicyState(**values, own=None if own is None else tuple(own))


def _event_table(packed: bytearray, names: list[str], origin_ns: int) -> pa.Table:
    """The requests' events (EVENT_TABLE), times in seconds since the run's origin."""
    rows = np.frombuffer(packed, dtype="<i8").reshape(-1, len(EVENT_COLUMNS)).astype(np.int64, copy=False)
    column = dict(zip(EVENT_COLUMNS, rows.T, strict=True))
    return pa.Table.from_pydict(
        {
            "event": pa.DictionaryArray.from_arrays(pa.array(column["kind"].astype(np.int8)), pa.array(EVENTS)),
            "t_s": (column["t"] - origin_ns) / 1e9,
            "step": column["step"],
            "request": [client_id(name) for name in names],
            "engine_request": names,
            "tokens": column["tokens"],
            "preemptions": column["preemptions"],
        },
        schema=EVENT_TABLE,
    )


def read_engine_log(directory: Path, manifest: dict[str, Any]) -> dict[str, Callable[[Batches], Batches]] | None:
    """What becomes of each table's rows by the engine's step log; None where the engine has written none.

    The log is on the client's monotonic clock, whose origin of the run stands in the manifest. A log that cannot be
    read costs the steps, not the requests, and the manifest's notes say so.
    """
    path, origin_ns = directory / STEP_LOG, manifest.get("clock", {}).get("origin_ns")
    if origin_ns is None or not path.is_file():
        return None
    try:
        log = read_step_log(path, origin_ns, (FINISH, ABORT))
        preemptions = _checked(log)
    # What stands in a log is an engine's or a stranger's, and none of it may keep the requests from their table.
    except (UserError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError, pa.ArrowException) as error:
        why = spelled(error) or type(error).__name__
        manifest["notes"] = [*manifest.get("notes", ()), f"{STEP_LOG} cannot be read, so no step is known: {why}"]
        return None
    manifest["engine_steps"] = log.header

    def steps(_: Batches) -> Batches:
        yield from map(_of_the_run, log.batches())

    def requests(batches: Batches) -> Batches:
        place = REQUESTS.get_field_index("preemptions")
        for batch in batches:
            logged = pa.array([preemptions.get(name) for name in batch.column("id").to_pylist()], pa.int64())
            # A virtual run's rows know it already, and its ids need not be those of the engine.
            counts = pc.coalesce(batch.column(place), logged)
            yield batch.set_column(place, REQUESTS.field(place), counts)

    return {"steps": steps, "requests": requests}


def _of_the_run(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The steps of the run alone: before its start was the warm-up."""
    return batch.filter(pc.greater_equal(batch.column("t_s"), 0))


def _checked(log: StepLog) -> dict[str, int]:
    """The preemptions by request of a log whose every step is one that a table can hold; UserError where one is not."""
    refuse_odd_values(log.header)
    if not isinstance(log.header, dict):
        raise UserError("its header is no object of keys and values")
    for batch in map(_of_the_run, log.batches()):
        batch.validate(full=True)
        for name in batch.schema.names:
            if why := fault_of(name, batch.column(name)):
                raise UserError(why)
    preemptions = _preemptions_by_request(log.events)
    if not all(0 <= number <= MOST for number in preemptions.values()):
        raise UserError(f"an event holds a count below 0 or above {MOST:,}")
    return preemptions


def unfinished(path: Path) -> int | None:
    """Requests whose end the log at `path` does not tell yet; None where it is no log."""
    left = 0
    try:
        with _opened(path) as file:
            for kind, _, content in _records(file):
                if kind == EVENT:
                    event = int.from_bytes(content[:8], "little", signed=True)
                    left += (event == ARRIVAL) - (event in (FINISH, ABORT))
    except (UserError, OSError):
        return None
    return left


def _preemptions_by_request(events: pa.Table) -> dict[str, int]:
    """How often each request was preempted, by the id that the client gave it."""
    return dict(zip(events.column("request").to_pylist(), events.column("preemptions").to_pylist(), strict=True))
