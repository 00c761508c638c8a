"""What a driving process writes to the process that records: rows packed as bytes, and notes as JSON.

A frame is a kind (one byte), a length and that many bytes, so that the reader needs no look ahead.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import Any

import orjson

from harness.drive.openai_stream import COUNTED
from harness.drive.settings import Result

# Kinds of frames: rows; a driving process is ready, tells how it is, has ended, could not start.
RESULTS, READY, STATUS, FINAL, REFUSED = range(5)

NONE = -1

# The finishes of `records` that a driver gives; `records` itself would load pyarrow into every driving process.
ENDS = ("length", "stop", "short", "error", "timeout", "cancelled")

_HEADER = struct.Struct("<BI")
# place, due, sent, done, output tokens, prompt tokens, finish, flags, bytes of the error, stamps, tokens of them
_ROW = struct.Struct("<qqqqqqBBHII")
_FINISH_CODES = {name: code for code, name in enumerate(ENDS)}
_MOST_ERROR_BYTES = 600
# Flags: how tokens were counted, then these.
_COUNTED = 0b11
_BEYOND, _NAMED, _ECHOED = 0b100, 0b1000, 0b10000


def frame(kind: int, payload: bytes) -> bytes:
    """A frame of bytes."""
    return _HEADER.pack(kind, len(payload)) + payload


def note(kind: int, content: dict[str, Any]) -> bytes:
    """A frame of JSON."""
    return frame(kind, orjson.dumps(content))


def pack(result: Result) -> bytes:
    """A result as bytes, to be joined with others into a RESULTS frame."""
    error = (result.error or "").encode(errors="replace")[:_MOST_ERROR_BYTES]
    tokens = b"" if result.tokens is None else result.tokens.tobytes()
    flags = COUNTED.index(result.counted) | _BEYOND * result.beyond
    flags |= _NAMED * (result.echoed is not None) | _ECHOED * bool(result.echoed)
    row = _ROW.pack(
        result.place,
        result.due_ns,
        NONE if result.sent_ns is None else result.sent_ns,
        NONE if result.done_ns is None else result.done_ns,
        result.output_tokens,
        NONE if result.prompt_tokens is None else result.prompt_tokens,
        _FINISH_CODES[result.finish],
        flags,
        len(error),
        len(result.stamps),
        len(tokens) // 8,
    )
    return b"".join((row, error, result.stamps.tobytes(), tokens))


def unpack(payload: bytes) -> Iterator[Result]:
    """The results of a RESULTS frame."""
    at = 0
    while at < len(payload):
        place, due, sent, done, tokens, prompt, finish, flags, error_size, count, told = _ROW.unpack_from(payload, at)
        at += _ROW.size
        error = payload[at : at + error_size].decode(errors="replace") or None
        at += error_size
        stamps = array("q")
        stamps.frombytes(payload[at : at + 8 * count])
        at += 8 * count
        each = array("q")
        each.frombytes(payload[at : at + 8 * told])
        at += 8 * told
        yield Result(
            place,
            due,
            None if sent == NONE else sent,
            None if done == NONE else done,
            memoryview(stamps),
            tokens,
            None if prompt == NONE else prompt,
            ENDS[finish],
            error,
            memoryview(each) if told else None,
            COUNTED[flags & _COUNTED],
            bool(flags & _BEYOND),
            bool(flags & _ECHOED) if flags & _NAMED else None,
        )


class Frames:
    """Bytes read from a pipe, cut anywhere, as whole frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames, (kind, payload), that these bytes complete."""
        self._bytes += data
        while len(self._bytes) >= _HEADER.size:
            kind, size = _HEADER.unpack_from(self._bytes)
            end = _HEADER.size + size
            if len(self._bytes) < end:
                return
            payload = bytes(self._bytes[_HEADER.size : end])
            del self._bytes[:end]
            yield kind, payload
