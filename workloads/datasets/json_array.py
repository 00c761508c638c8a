"""A JSON array read record by record, with the byte at which each ends; never the whole file in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from workloads.core.errors import WorkloadError
from workloads.core.reading import open_regular, spelled

READ_BYTES = 1 << 20
LONGEST_RECORD = 64 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_NUMBER_CUT = re.compile(r"(\.\d*)?([eE][+-]?)?")
_ESCAPE_CUT = re.compile(r"\\?u?[0-9a-fA-F]{0,4}")


class ArrayRecord(NamedTuple):
    """One element: its number counted from 1, its value, and the offset of the byte after it."""

    number: int
    value: Any
    end_byte: int


class TruncatedFileError(WorkloadError):
    """The file ends inside the array: everything up to `last_whole_record` was given out."""

    def __init__(self, path: Path | str, last_whole_record: int, byte: int) -> None:
        super().__init__(
            f"{spelled(path)}: the file is cut off: its last whole record is number {last_whole_record}, "
            f"which ends at byte {byte}; fetch it again, or take what is whole with allow_truncated=true"
        )
        self.last_whole_record = last_whole_record
        self.byte = byte


def _cut_short(error: json.JSONDecodeError, text: str) -> bool:
    """Whether more text could still mend this error: it stands at the very end of what was read."""
    tail = text[error.pos :].rstrip(" \t\r\n")
    if error.msg.startswith("Unterminated string"):
        return True
    if "escape" in error.msg:
        return _ESCAPE_CUT.fullmatch(tail) is not None
    return any(word.startswith(tail) for word in _WORDS) or _NUMBER_CUT.fullmatch(tail) is not None


class _Window:
    """The text read and not yet consumed; `byte` is the offset in the file of its first character."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        # A stray byte becomes a lone surrogate: the record stays readable, its text is not valid Unicode.
        self.decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.text, self.at, self.byte, self.ended = "", 0, 0, False

    def more(self) -> bool:
        """Read on, at least as much again as is held (so re-reading stays linear); False at the end."""
        if self.ended:
            return False
        block = self.file.read(max(READ_BYTES, len(self.text) - self.at))
        self.ended = not block
        self.text = self.text[self.at :] + self.decoder.decode(block, final=self.ended)
        self.at = 0
        return True

    def step(self, to: int) -> None:
        self.byte += len(self.text[self.at : to].encode("utf-8", "surrogateescape"))
        self.at = to

    def peek(self) -> str:
        """The next character that is no white space; "" at the end of the file."""
        while True:
            self.step(_SPACE.match(self.text, self.at).end())  # type: ignore[union-attr] # it matches nothing, too
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def value(self) -> list[Any] | None:
        """The next JSON value as a one-element list; None where the file ends inside it."""
        decoder = json.JSONDecoder()
        while True:
            try:
                value, end = decoder.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                if not _cut_short(error, self.text):
                    raise
            else:
                # A number that touches the end of what was read may go on.
                if end < len(self.text) or self.text[end - 1] in '}]"':
                    self.step(end)
                    return [value]
            if len(self.text) - self.at > LONGEST_RECORD:
                raise ValueError(f"it is longer than {LONGEST_RECORD} characters")
            if not self.more():
                return None


def read_array(path: Path) -> Iterator[ArrayRecord]:
    """The elements of the JSON array in a file, one by one; raises as `read_open_array`."""
    with open_regular(path) as file:
        yield from read_open_array(file, path)


def read_open_array(file: BinaryIO, path: Path | str) -> Iterator[ArrayRecord]:
    """The elements of the JSON array in an open file, one by one; `path` names it in errors.

    Raises TruncatedFileError where the file ends before the array does, and WorkloadError with record and
    byte where it is empty, not an array, or garbage.
    """
    window = _Window(file)
    _enter_array(window, path)
    number, end = 0, window.byte
    following = window.peek()
    while following and following != "]":
        value = _next_value(window, path, number)
        if value is None:
            break
        number, end = number + 1, window.byte
        yield ArrayRecord(number, value[0], end)
        following = _after_value(window, path, number)
    if following != "]":
        raise TruncatedFileError(path, number, end)
    window.step(window.at + 1)
    if window.peek():
        raise _corrupt(path, "text after the array's end", window.byte, number)


def _corrupt(path: Path | str, what: str, byte: int, number: int) -> WorkloadError:
    return WorkloadError(
        f"{spelled(path)}: corrupt at byte {byte}, in or after record {number + 1}: {spelled(what)}; fetch it again"
    )


def _enter_array(window: _Window, path: Path | str) -> None:
    """Steps past the opening bracket; WorkloadError where there is none."""
    window.peek()
    if window.text.startswith("\ufeff"):
        window.step(1)
    first = window.peek()
    if not first:
        raise WorkloadError(f"{spelled(path)} is empty: nothing to replay")
    if first != "[":
        raise WorkloadError(f"{spelled(path)}: not a JSON array: byte {window.byte} is {first!r}, not '['")
    window.step(window.at + 1)


def _next_value(window: _Window, path: Path | str, number: int) -> list[Any] | None:
    """The value after `number` records as a one-element list; None where the file ends inside it."""
    try:
        return window.value()
    except json.JSONDecodeError as error:
        before = window.text[window.at : error.pos].encode("utf-8", "surrogateescape")
        raise _corrupt(path, error.msg, window.byte + len(before), number) from None
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, f"it cannot be read: {error}", window.byte, number) from None


def _after_value(window: _Window, path: Path | str, number: int) -> str:
    """Steps past the comma after a value; the character that follows, "" at the end of the file."""
    following = window.peek()
    if following == ",":
        window.step(window.at + 1)
        following = window.peek()
        if following == "]":
            raise _corrupt(path, "a comma before the closing ']'", window.byte, number)
    elif following and following != "]":
        raise _corrupt(path, "expecting ',' or ']'", window.byte, number)
    return following
