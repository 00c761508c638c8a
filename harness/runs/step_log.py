"""The step log of a real engine's scheduler (policies/plugin/step_log.py), taken into a run's tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.core.errors import UserError
from harness.core.records import NAMES, REQUESTS, STEPS, step_columns
from policies.core import STEP_COLUMNS, PolicyState
from policies.plugin.step_log import (
    EVENT,
    EVENT_BYTES,
    EVENT_COLUMNS,
    EVENTS,
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
            yield pa.RecordBatch.from_pydict(step_columns(columns, self.states), schema=STEPS)


def client_id(engine_id: str) -> str:
    """The X-Request-Id in the engine's name for a request; the name itself where it has another form."""
    match = _COMPLETION.fullmatch(engine_id) or _CHAT.fullmatch(engine_id)
    return match[1] if match else engine_id


def read_step_log(path: Path, origin_ns: int) -> StepLog:
    """Reads a whole log; times become seconds since `origin_ns` of the engine's monotonic clock.

    A last record that a crash cut off is left out and counted. UserError where the file is no step log.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; the engine writes its step log there") from error
    if not data.startswith(MAGIC):
        raise UserError(f"{path} is not a step log of this version: it should begin with {MAGIC.decode().strip()!r}")
    header: dict[str, Any] = {}
    states: list[PolicyState] = []
    steps, events = bytearray(), bytearray()
    names: list[str] = []
    end = len(MAGIC)
    for kind, at, start, stop in _records(data):
        if kind == STEP and stop - start == STEP_BYTES:
            steps += data[start:stop]
        elif kind == EVENT and stop - start >= EVENT_BYTES:
            events += data[start : start + EVENT_BYTES]
            names.append(data[start + EVENT_BYTES : stop].decode())
        elif kind == STATE:
            states.append(_state_of(json.loads(data[start:stop])))
        elif kind == HEADER:
            header = json.loads(data[start:stop])
        else:
            raise UserError(f"{path}: no known record at byte {at}: the file is damaged, or of another version")
        end = stop
    rows = np.frombuffer(bytes(steps), dtype="<i8").reshape(-1, len(STEP_COLUMNS)).astype(np.int64)
    rows[:, 0] -= origin_ns
    return StepLog(header, states, rows, _event_table(events, names, origin_ns), len(data) - end)


def _state_of(values: dict[str, Any]) -> PolicyState:
    own = values.pop("own", None)
    return PolicyState(**values, own=None if own is None else tuple(own))


def _records(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """The kind of each whole record, where it begins, and where its content begins and ends."""
    at = len(MAGIC)
    while at + PREFIX.size <= len(data):
        kind, size = PREFIX.unpack_from(data, at)
        start, stop = at + PREFIX.size, at + PREFIX.size + size
        if stop > len(data):
            return
        yield kind, at, start, stop
        at = stop


def _event_table(packed: bytearray, names: list[str], origin_ns: int) -> pa.Table:
    """The requests' events (EVENT_TABLE), times in seconds since the run's origin."""
    rows = np.frombuffer(bytes(packed), dtype="<i8").reshape(-1, len(EVENT_COLUMNS)).astype(np.int64)
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
        log = read_step_log(path, origin_ns)
    except (UserError, ValueError, KeyError, TypeError) as error:
        manifest["notes"] = [*manifest.get("notes", ()), f"{STEP_LOG} cannot be read, so no step is known: {error}"]
        return None
    manifest["engine_steps"] = log.header
    preemptions = _preemptions_by_request(log.events)

    def steps(_: Batches) -> Batches:
        for batch in log.batches():
            # Before the run's start was the warm-up.
            yield batch.filter(pc.greater_equal(batch.column("t_s"), 0))

    def requests(batches: Batches) -> Batches:
        place = REQUESTS.get_field_index("preemptions")
        for batch in batches:
            logged = pa.array([preemptions.get(name) for name in batch.column("id").to_pylist()], pa.int64())
            # A virtual run's rows know it already, and its ids need not be those of the engine.
            counts = pc.coalesce(batch.column(place), logged)
            yield batch.set_column(place, REQUESTS.field(place), counts)

    return {"steps": steps, "requests": requests}


def unfinished(path: Path) -> int | None:
    """Requests whose end the log at `path` does not tell yet; None where it is no log."""
    try:
        events = read_step_log(path, 0).events.column("event").cast(pa.string())
    except (UserError, ValueError, KeyError, TypeError):
        return None
    counts = {tally["values"]: tally["counts"] for tally in pc.value_counts(events).to_pylist()}
    return int(counts.get("arrival", 0) - counts.get("finish", 0) - counts.get("abort", 0))


def _preemptions_by_request(events: pa.Table) -> dict[str, int]:
    """How often each request was preempted, by the id that the client gave it."""
    last = events.filter(pc.is_in(events.column("event").cast(pa.string()), pa.array(["finish", "abort"])))
    return dict(zip(last.column("request").to_pylist(), last.column("preemptions").to_pylist(), strict=True))
