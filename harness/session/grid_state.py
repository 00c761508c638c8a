"""What a grid's directory knows: the cells that are finished, what was cut off, what failed, and how far it is."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from harness.core.errors import UserError
from harness.core.files import held
from harness.core.runspec import RunSpec
from harness.runs.append_log import is_locked
from harness.runs.run import PARTIAL
from harness.runs.writer import LOGS, write_json
from harness.session.grid_index import FinishedIndex
from harness.session.grid_plan import Cell

FOLDER = ".grid"
FAILED, STATUS, CELLS = "failed.jsonl", "status.json", "cells.tsv"
# Of the second runs of an A/A: the same specs, so that they lie apart.
SECOND = "-aa"
_RUN_NAME = re.compile(r"\d{8}t[\d.]+z-([0-9a-f]{8})-r\d+(\.partial)?")


@dataclass(frozen=True, slots=True)
class Found:
    """Runs by the keys of their cells: `finished` are complete, `left` were cut off, `failed` have the reason."""

    finished: dict[str, str] = field(default_factory=dict)
    left: dict[str, list[Path]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def place_of(out: Path, second: bool) -> Path:
    """Where a cell's run lands: beside `out` where it is the second of an A/A."""
    return out.with_name(out.name + SECOND) if second else out


def place_below(out: Path, run: str, second: bool) -> str:
    """What a run's directory is called in the index: the same wherever --out lies."""
    return (SECOND if second else "") + run[len(str(place_of(out, second))) :]


@contextlib.contextmanager
def alone_in(out: Path) -> Iterator[Path]:
    """The folder of a grid's own files under `out`, for one grid at a time; UserError where another works there.

    What a grid that was killed left running is waited for: its processes end by themselves, at once.
    """
    folder = out / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "working").mkdir(exist_ok=True)
        # Results are often under git; this folder is no result.
        (folder / ".gitignore").write_text("*\n")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}): give another --out") from None
    try:
        with held(folder, wait=False):
            with held(folder / "working"):
                pass
            yield folder
    except BlockingIOError:
        raise UserError(
            f"{out}: another grid works there: wait for it (`bench grid status --out {out}`), or give another --out"
        ) from None


def is_running(out: Path) -> bool:
    """Whether a grid works in `out` now."""
    folder = out / FOLDER
    if not folder.is_dir():
        return False
    try:
        with held(folder, wait=False):
            return False
    except BlockingIOError:
        return True


@contextlib.contextmanager
def working(out: Path) -> Iterator[None]:
    """Held by each process that runs cells, so that no other grid begins before it has ended."""
    handle = os.open(out / FOLDER / "working", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def find_cells(out: Path, digests: Collection[str], index: FinishedIndex, second: bool = False) -> Found:
    """The runs under `out` that are these cells; others are passed over. What `index` knows is not read again."""
    found = Found()
    begun = {digest[:8]: digest for digest in digests}
    suffix = SECOND if second else ""
    for path in _run_directories(str(place_of(out, second))):
        place, run_json = place_below(out, path, second), f"{path}/run.json"
        digest, status, reason = index.look_up(place, run_json), "complete", ""
        if digest is None:
            digest, status, reason = _read(path, begun)
            if status == "complete" and not path.endswith(PARTIAL):
                index.add(place, run_json, digest)
        if digest not in digests:
            continue
        key = digest + suffix
        if status == "complete" and not path.endswith(PARTIAL):
            found.finished[key] = path
        else:
            found.left.setdefault(key, []).append(Path(path))
            if status == "failed":
                found.failed[key] = reason
    return found


def clear(paths: Iterable[Path]) -> int:
    """Takes away what was left of cells that run again; how many directories. A run that goes on still is let be."""
    cleared = 0
    for path in paths:
        logs = [path / name for name in LOGS.values()]
        with contextlib.suppress(OSError):
            if any(is_locked(log) for log in logs if log.is_file()):
                continue
            shutil.rmtree(path)
            cleared += 1
    return cleared


def read_failures(folder: Path) -> dict[str, str]:
    """Why cells failed, by their keys; the latest reason holds, and a torn last line none."""
    reasons: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in (folder / FAILED).read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                reasons[entry["key"]] = entry["reason"]
    return reasons


def remember_failure(folder: Path, cell: Cell, reason: str) -> None:
    """Adds a line to the failures; one that finds no room there runs again, unasked."""
    entry = {"key": cell.key, "cell": cell.label, "reason": reason}
    with contextlib.suppress(OSError), (folder / FAILED).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def remember_cells(folder: Path, cells: Sequence[Cell]) -> None:
    """Writes down which cells the grid has, for `bench grid status`; UserError where there is no room for that."""
    part = folder / f"{CELLS}.tmp"
    lines = "".join(f"{cell.digest}\t{int(cell.second)}\t{cell.label}\n" for cell in cells)
    try:
        part.write_text(lines, encoding="utf-8")
        part.replace(folder / CELLS)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be written ({error.strerror}): make room or give another --out; what is finished stays"
        ) from None


def read_cells(folder: Path) -> dict[str, str]:
    """The labels of a grid's cells by their keys; UserError where no grid was begun there."""
    try:
        lines = (folder / CELLS).read_text(encoding="utf-8").splitlines()
    except OSError:
        out = folder.parent
        raise UserError(f"{out}: no grid was begun there: `bench grid FILE.toml --out {out}` begins one") from None
    rows = [line.split("\t", 2) for line in lines]
    return {digest + (SECOND if second == "1" else ""): label for digest, second, label in rows}


class StatusFile:
    """How far a grid is, in a file that another terminal reads; written at most some times a second."""

    def __init__(self, folder: Path, every_s: float = 0.5) -> None:
        self._path = folder / STATUS
        self._every_s = every_s
        self._written_s = 0.0

    def write(self, values: dict[str, Any], now: bool = False) -> None:
        """Puts the values into the file, at once where `now`; a full disk is no reason to end."""
        if not now and time.monotonic() - self._written_s < self._every_s:
            return
        self._written_s = time.monotonic()
        with contextlib.suppress(OSError):
            write_json({self._path: values})


def read_status(folder: Path) -> dict[str, Any]:
    """What the file says; empty where there is none."""
    try:
        return dict(json.loads((folder / STATUS).read_bytes()))
    except (OSError, ValueError):
        return {}


def _run_directories(root: str) -> Iterator[str]:
    """Directories whose name is a run's, at and under a directory; what lies in them is not looked at."""
    waiting = [root]
    while waiting:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False) or entry.name == FOLDER:
                    continue
                if _RUN_NAME.fullmatch(entry.name):
                    yield entry.path
                else:
                    waiting.append(entry.path)


def _read(path: str, begun: dict[str, str]) -> tuple[str, str, str]:
    """Digest, status and reason of a run; of one that was cut off before it had its run.json the digest it is named by.

    The digest is the one that its spec has today: a field that came later is no other run.
    """
    try:
        with open(f"{path}/run.json", "rb") as file:
            manifest = orjson.loads(file.read())
        digest = manifest["digest"]
        if digest[:8] not in begun or begun[digest[:8]] != digest:
            digest = RunSpec.from_dict(manifest["spec"]).digest
        return str(digest), str(manifest["status"]), str(manifest.get("reason"))
    except FileNotFoundError:
        name = _RUN_NAME.fullmatch(os.path.basename(path))
        return (begun.get(name[1], "") if name and name[2] else ""), "running", ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # No run of this grid's making; what is damaged is told where it is read.
        return "", "", ""
