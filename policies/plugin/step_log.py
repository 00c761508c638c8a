"""The packed step log: written inside the engine, a row a step and a row a request event.

A file is MAGIC and then records: a prefix (kind, payload bytes) and the payload. Integers are little-endian.
HEADER and STATE are JSON; STEP is the seventeen integers of `STEP_COLUMNS`; EVENT is the five integers of
`EVENT_COLUMNS` and the request's id. Only whole records are handed to the file, so a reader meets at most one
record that a crash cut off, at the end.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from policies.core import STEP_COLUMNS, PolicyState

MAGIC = b"bench steps 1\n"
HEADER, STEP, STATE, EVENT = 1, 2, 3, 4

# `step` counts the steps logged before: what happened with step n, or before it was scheduled.
EVENT_COLUMNS = ("kind", "t", "step", "tokens", "preemptions")

# What `tokens` means: of an arrival its prompt; of an admission those found in the prefix cache; else its output.
EVENTS = ("arrival", "admission", "preemption", "finish", "abort")
ARRIVAL, ADMISSION, PREEMPTION, FINISH, ABORT = range(5)

PREFIX = struct.Struct("<HH")
STEP_RECORD = struct.Struct(f"<HH{len(STEP_COLUMNS)}q")
EVENT_RECORD = struct.Struct(f"<HH{len(EVENT_COLUMNS)}q")
STEP_BYTES = STEP_RECORD.size - PREFIX.size
EVENT_BYTES = EVENT_RECORD.size - PREFIX.size

FLUSH_S = 0.1


class StepLog:
    """Writes one log; the engine's thread only appends to a queue, another writes it out every FLUSH_S seconds.

    Before it writes it calls `gather`, which may append what was put off until then. `fault` holds what stopped the
    writing, if anything did.
    """

    def __init__(self, path: Path, header: dict[str, Any], gather: Callable[[], None] = lambda: None) -> None:
        # A log is never added to: its header holds for all of it.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        # Steps and events are packed by the thread that writes: the engine's only puts them down.
        self._queue: deque[bytes | tuple[int, ...] | tuple[str, int, int, int, int, int]] = deque()
        self._stop = threading.Event()
        self._gather = gather
        self.fault: Exception | None = None
        self._queue.append(MAGIC)
        self._append_json(HEADER, header)
        self._flush()
        self._thread = threading.Thread(target=self._flush_often, name="step-log", daemon=True)
        self._thread.start()
        # An engine that goes without saying so (its process ends in order) still has its last steps written.
        self._finalizer = weakref.finalize(self, _close, self._stop, self._thread)

    def step(self, columns: tuple[int, ...]) -> None:
        """A step, its integers in the order of STEP_COLUMNS."""
        self._queue.append(columns)

    def event(self, kind: int, t: int, step: int, tokens: int, preemptions: int, request_id: str) -> None:
        """A request's event; `kind` counts as in EVENTS."""
        self._queue.append((request_id, kind, t, step, tokens, preemptions))

    def state(self, state: PolicyState) -> None:
        """What the policy holds to be true from the next step on."""
        self._append_json(STATE, {key: value for key, value in asdict(state).items() if value is not None})

    def close(self) -> None:
        """Writes what is left."""
        self._finalizer()

    def _append_json(self, kind: int, value: dict[str, Any]) -> None:
        text = json.dumps(value).encode()
        self._queue.append(PREFIX.pack(kind, len(text)) + text)

    def _flush_often(self) -> None:
        while not self._stop.wait(FLUSH_S) and self.fault is None:
            self._flush()
        self._flush()
        os.close(self._file)

    def _flush(self) -> None:
        queue = self._queue
        try:
            self._gather()
            unwritten = b"".join([_packed(queue.popleft()) for _ in range(len(queue))])
            while unwritten:
                unwritten = unwritten[os.write(self._file, unwritten) :]
        except Exception as error:
            self.fault = error


def _packed(record: Any) -> bytes:
    """The bytes of what stands in the queue: bytes already, an event (its request's id first), or a step's columns."""
    if isinstance(record, bytes):
        return record
    if isinstance(record[0], str):
        request_id = record[0].encode()
        return EVENT_RECORD.pack(EVENT, EVENT_BYTES + len(request_id), *record[1:]) + request_id
    return STEP_RECORD.pack(STEP, STEP_BYTES, *record)


def _close(stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    thread.join()
