"""The plan of a run in one file: every request's body, encoded, and columns that say which and when.

Bodies stay on disk (in the page cache) until they are sent, so a plan of any size costs a driving process
72 bytes a request and its id, and processes share it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

from harness.core.errors import UserError

COLUMNS = (
    "row",
    "session",
    "turn",
    "due_ns",
    "think_ns",
    "prompt_tokens",
    "expected_output_tokens",
    "id_end",
    "body_end",
)
NONE = -1


@dataclass(frozen=True, slots=True)
class Planned:
    """A request that is ready to go.

    `due_ns` counts from the run's start; None in a closed loop and for the later turns of a session, which
    are due `think_ns` after the answer before them ended. `body` is the whole JSON. Token counts are what the
    plan expects; 0 expected output tokens leave the length open.
    """

    id: str
    row: int
    due_ns: int | None
    body: bytes
    prompt_tokens: int
    expected_output_tokens: int
    session: int | None = None
    turn: int | None = None
    think_ns: int = 0


class Plan:
    """The requests of a plan by their place in it: columns of integers (NONE where there is none), ids, bodies."""

    def __init__(self, file: IO[bytes], bodies_end: int, ids: bytes, columns: dict[str, array[int]]) -> None:
        self._file = file
        self._fd = file.fileno()
        self._ids = ids
        self.shape = {"bodies_end": bodies_end, "ids_end": bodies_end + len(ids), "count": len(columns["row"])}
        self.columns = columns
        self._id_end = columns["id_end"]
        self._body_end = columns["body_end"]

    @classmethod
    def write(cls, requests: Iterable[Planned]) -> Plan:
        """A plan of requests, in their order; UserError where there is none, or no room for it."""
        columns = {name: array("q") for name in COLUMNS}
        ids = bytearray()
        size = 0
        file = tempfile.TemporaryFile(prefix="bench-plan-")  # noqa: SIM115 - the Plan that is made of it closes it
        try:
            for request in requests:
                file.write(request.body)
                size += len(request.body)
                ids += request.id.encode()
                values = (
                    request.row,
                    NONE if request.session is None else request.session,
                    NONE if request.turn is None else request.turn,
                    NONE if request.due_ns is None else request.due_ns,
                    request.think_ns,
                    request.prompt_tokens,
                    request.expected_output_tokens,
                    len(ids),
                    size,
                )
                for name, value in zip(COLUMNS, values, strict=True):
                    columns[name].append(value)
            file.write(ids)
            for column in columns.values():
                file.write(column.tobytes())
            file.flush()
        except OSError as error:
            # Closing would write what has not been written yet, to the same full disk.
            with contextlib.suppress(OSError):
                file.close()
            raise UserError(f"{tempfile.gettempdir()}: no room for the plan ({error.strerror}): set TMPDIR") from None
        except BaseException:
            file.close()
            raise
        if not columns["row"]:
            file.close()
            raise UserError("the plan is empty: nothing to send")
        return cls(file, size, bytes(ids), columns)

    @classmethod
    def read(cls, fd: int, shape: dict[str, int]) -> Plan:
        """The plan behind an open file, which it then owns; `shape` is that of the plan that wrote it."""
        count = shape["count"]
        at = shape["ids_end"]
        columns = {}
        for name in COLUMNS:
            columns[name] = array("q")
            columns[name].frombytes(_pread(fd, 8 * count, at))
            at += 8 * count
        bodies_end = shape["bodies_end"]
        ids = _pread(fd, shape["ids_end"] - bodies_end, bodies_end)
        return cls(os.fdopen(fd, "rb"), bodies_end, ids, columns)

    def __len__(self) -> int:
        return len(self._body_end)

    def fileno(self) -> int:
        """The open file, to hand to another process."""
        return self._fd

    def contents(self) -> bytes:
        """All bytes of the file, to be a plan elsewhere."""
        return _pread(self._fd, os.fstat(self._fd).st_size, 0)

    def id(self, i: int) -> str:
        """The id of request `i`."""
        start = self._id_end[i - 1] if i else 0
        return self._ids[start : self._id_end[i]].decode()

    def body(self, i: int) -> bytes:
        """The body of request `i`."""
        start = self._body_end[i - 1] if i else 0
        return _pread(self._fd, self._body_end[i] - start, start)

    def share(self, worker: int, workers: int) -> list[int]:
        """The places that one of several workers sends: by session, or by row where there is none."""
        rows, sessions = self.columns["row"], self.columns["session"]
        return [i for i in range(len(self)) if (rows[i] if sessions[i] == NONE else sessions[i]) % workers == worker]

    def chains(self, places: list[int]) -> tuple[list[int], dict[int, int]]:
        """The places that wait for no other, in the order they go; and for each turn the one that follows it."""
        due, session, turn, row = (self.columns[name] for name in ("due_ns", "session", "turn", "row"))
        heads: list[int] = []
        after: dict[int, int] = {}
        last: dict[int, int] = {}
        for i in sorted(places, key=lambda i: (session[i], turn[i], row[i])):
            if session[i] != NONE and session[i] in last:
                after[last[session[i]]] = i
            else:
                heads.append(i)
            last[session[i]] = i
        heads.sort(key=lambda i: (due[i], row[i]))
        return heads, after

    def close(self) -> None:
        """Let go of the file; it is gone with its last holder."""
        self._file.close()


def _pread(fd: int, size: int, at: int) -> bytes:
    """`size` bytes at `at`; pread gives 2 GB at most."""
    data = os.pread(fd, size, at)
    while len(data) < size:
        more = os.pread(fd, size - len(data), at + len(data))
        assert more, "the plan file is shorter than its columns say"
        data += more
    return data


def busiest(due_ns: list[int], window_ns: int) -> int:
    """The most of the ascending times that fall into a window."""
    start = most = 0
    for i, due in enumerate(due_ns):
        while due_ns[start] <= due - window_ns:
            start += 1
        most = max(most, i + 1 - start)
    return most
