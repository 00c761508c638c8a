"""What a log of Arrow batches holds, looked up in the frames of its messages before Arrow reads any of it.

The format: https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.core.files import open_plain
from harness.core.sizes import MOST_BATCH_BYTES

_CONTINUED = 0xFFFFFFFF
# A schema and the places of a batch's columns: ours take a few thousand bytes.
_MOST_METADATA = 1 << 20
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_KINDS = (_SCHEMA, _DICTIONARY, _BATCH)


@dataclass(frozen=True, slots=True)
class Survey:
    """A log's whole batches: how many, their rows, and what no log of ours has (`fault`), None where all is well."""

    batches: int
    rows: int
    fault: str | None = None


def survey(path: Path, most_rows: int) -> Survey:
    """Looks through a log's messages up to its end or the first that is not whole; OSError where it cannot be read.

    A fault is a message that is none, a batch that is compressed (small in the file and large in memory) or too large,
    and more rows than are read.
    """
    batches = rows = 0
    with open_plain(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        while (metadata := _next(file)) is not None:
            try:
                kind, body, length, compressed = _message(metadata)
            except (struct.error, IndexError, ValueError):
                return Survey(batches, rows, f"message {batches + 1} is none of Arrow's")
            if kind not in _KINDS or body < 0 or length < 0:
                return Survey(batches, rows, f"message {batches + 1} is none of a log's")
            if body > MOST_BATCH_BYTES:
                return Survey(
                    batches, rows, f"a batch of {body >> 20:,} MiB, at most {MOST_BATCH_BYTES >> 20:,} are read"
                )
            if compressed:
                return Survey(batches, rows, "a batch is compressed, which bench does not write")
            if file.seek(body, 1) > size:
                break
            if kind == _BATCH:
                batches, rows = batches + 1, rows + length
            if rows > most_rows:
                return Survey(batches, rows, f"{rows:,} rows, at most {most_rows:,} are read")
    return Survey(batches, rows)


def _next(file: BinaryIO) -> bytes | None:
    """The metadata of the next message; None at the end, or where it is not whole."""
    frame = file.read(8)
    if len(frame) < 8:
        return None
    mark, size = struct.unpack("<II", frame)
    if mark != _CONTINUED or not size:
        return None
    metadata = file.read(min(size, _MOST_METADATA + 1))
    if size > _MOST_METADATA:
        return b""
    return metadata if len(metadata) == size else None


def _message(data: bytes) -> tuple[int, int, int, bool]:
    """Of a message its kind, its body's bytes, a batch's rows, and whether its columns are compressed."""
    message = _table(data, 0)
    kind = data[_field(data, message, 1)]
    (body,) = struct.unpack_from("<q", data, _field(data, message, 3)) if _field(data, message, 3) else (0,)
    if kind == _SCHEMA:
        return kind, body, 0, False
    batch = _table(data, _field(data, message, 2))
    if kind == _DICTIONARY:
        batch = _table(data, _field(data, batch, 1))
    (rows,) = struct.unpack_from("<q", data, _field(data, batch, 0)) if _field(data, batch, 0) else (0,)
    return kind, body, rows if kind == _BATCH else 0, bool(_field(data, batch, 3))


def _table(data: bytes, at: int) -> int:
    """Where the table lies to which an offset at `at` leads."""
    return int(at + struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Where a table's field lies, 0 where it is left out."""
    directory = table - struct.unpack_from("<i", data, table)[0]
    if directory < 0:
        raise ValueError("a table before the message")
    (size,) = struct.unpack_from("<H", data, directory)
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", data, directory + place)[0] if place + 2 <= size else 0
    return int(table + offset) if offset else 0
