"""JSON objects one by one: one a line, or in an array, in a file or in the members of a zip; never all in memory."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson

from workloads.core.errors import WorkloadError
from workloads.core.reading import open_regular, spelled
from workloads.datasets.json_array import LONGEST_RECORD, TruncatedFileError, read_open_array

_FETCH = "fetch it again"


class JsonRow(NamedTuple):
    """An object, where it stands (`FILE, row 3`), the file's or member's name without its ending, its row from 1."""

    value: Any
    where: str
    stem: str
    number: int


def _parsed(line: bytes, where: str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    try:
        # Lone surrogates and stray bytes: the row stays readable, its text is found not to be valid Unicode.
        return json.loads(line.decode("utf-8", "surrogateescape"))
    except json.JSONDecodeError as error:
        raise WorkloadError(f"{where}: not JSON ({error.msg}): it must be one JSON object a line; {_FETCH}") from None
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{where}: cannot be read ({spelled(error, 80)}); {_FETCH}") from None


def _lines(file: IO[bytes], name: str) -> Iterator[tuple[Any, int]]:
    """The values of JSON lines with their rows (lines from 1); blank lines, CRLF and a last line without end pass."""
    number = whole = byte = whole_end = 0
    while line := file.readline(LONGEST_RECORD):
        number += 1
        byte += len(line)
        stripped = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()
        if not stripped:
            continue
        where = f"{name}, row {number}"
        if len(line) == LONGEST_RECORD and not line.endswith(b"\n"):
            raise WorkloadError(f"{where}: longer than {LONGEST_RECORD} bytes: it must be one JSON object a line")
        try:
            value = _parsed(stripped, where)
        except WorkloadError:
            if line.endswith(b"\n") or (not whole and number == 1):
                raise
            raise TruncatedFileError(name, whole, whole_end) from None
        whole, whole_end = number, byte
        yield value, number


def _values(file: IO[bytes], name: str) -> Iterator[tuple[Any, int]]:
    """The values of an open file, lines or array by its first character, with their rows."""
    seekable = io.BufferedReader(file) if not isinstance(file, io.BufferedReader) else file  # type: ignore[type-var]
    head = seekable.peek(4096)[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
    if head[:1] == b"[":
        yield from ((record.value, record.number) for record in read_open_array(seekable, name))
    else:
        yield from _lines(seekable, name)


def _members(path: Path, keep: Iterable[str]) -> Iterator[tuple[zipfile.ZipFile, zipfile.ZipInfo]]:
    with open_regular(path) as file:
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise WorkloadError(f"{spelled(path)}: not a zip, or cut off ({spelled(error, 80)}): {_FETCH}") from None
        endings = tuple(keep)
        members = [member for member in archive.infolist() if _is_data(member.filename, endings)]
        if not members:
            raise WorkloadError(f"{spelled(path)}: no {' or '.join(endings)} file in the zip")
        for member in sorted(members, key=lambda member: member.filename):
            yield archive, member


def _is_data(name: str, endings: tuple[str, ...]) -> bool:
    """Whether a member of a zip is data, and not what an operating system put beside it."""
    return name.lower().endswith(endings) and not Path(name).name.startswith(".") and "__MACOSX" not in name


def read_json(path: Path, only: frozenset[str] = frozenset()) -> Iterator[JsonRow]:
    """The objects of a .jsonl, .json or .zip file in order; of a zip, its members by name (`only` these stems).

    Raises TruncatedFileError where a file ends inside an object, and WorkloadError naming file and row where it is
    empty or corrupt.
    """
    if path.suffix.lower() != ".zip":
        with open_regular(path) as file:
            for value, number in _values(file, spelled(path)):
                yield JsonRow(value, f"{spelled(path)}, row {number}", path.stem, number)
        return
    for archive, member in _members(path, (".jsonl", ".json")):
        stem = Path(member.filename).stem
        if only and stem not in only:
            continue
        name = f"{spelled(path)}: {spelled(member.filename)}"
        try:
            with archive.open(member) as inside:
                for value, number in _values(inside, name):
                    yield JsonRow(value, f"{name}, row {number}", stem, number)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise WorkloadError(f"{name}: corrupt in the zip ({spelled(error, 80)}): {_FETCH}") from None


def stems(path: Path) -> list[str]:
    """The names (without ending) of what a file holds: its own, or of a zip its members'."""
    if path.suffix.lower() != ".zip":
        return [path.stem]
    return [Path(member.filename).stem for _, member in _members(path, (".jsonl", ".json"))]
