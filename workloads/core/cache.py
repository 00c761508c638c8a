"""What was costly to count, kept under the user's cache directory."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from workloads.core.errors import WorkloadError
from workloads.core.reading import open_regular, spelled
from workloads.core.trace import Ints

# Raise it when the meaning of what is stored changes: older files are then never read.
FORMAT = 2
LARGE_BYTES = 64_000_000
SETTLED_NS = 2_000_000_000
_HEX = re.compile("[0-9a-f]{64}")
HOMELESS = "there is no home directory: counted lengths are kept in a temporary one; set BENCH_CACHE to choose"


def cache_dir() -> Path:
    """$BENCH_CACHE, else $XDG_CACHE_HOME/schedbench, else ~/.cache/schedbench; it need not exist.

    Without a home directory it is one of the user's own under the temporary directory.
    """
    if own := os.environ.get("BENCH_CACHE"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "schedbench"
    home = _home()
    return home / ".cache" / "schedbench" if home else _temporary()


def homeless() -> str | None:
    """A line to say where nothing tells where the cache goes: no variable and no home directory."""
    named = os.environ.get("BENCH_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return None if named or _home() else HOMELESS


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def _temporary() -> Path:
    folder = Path(tempfile.gettempdir()) / f"schedbench-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    # Anyone may make a directory there: what a stranger put into it is not to be believed.
    with contextlib.suppress(OSError):
        if os.lstat(folder).st_uid != os.getuid() or folder.is_symlink():
            raise WorkloadError(f"{folder}: another user's, and there is no home directory: set BENCH_CACHE=FOLDER")
    return folder


def file_digest(path: Path) -> str:
    """The sha256 (hex) of a file's content; WorkloadError where it cannot be read."""
    with open_regular(path) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise WorkloadError(f"{spelled(path)}: cannot be read: {error.strerror}") from None


def large_file_digest(path: Path) -> str:
    """`file_digest`, remembered for files of 64 MB and more as long as the file's inode, size and times stay.

    A file that was changed in the last two seconds is not remembered: its times might not tell the next change.
    """
    try:
        stat = os.stat(path)
    except OSError:
        return file_digest(path)
    if stat.st_size < LARGE_BYTES:
        return file_digest(path)
    stamp = [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    key = hashlib.sha256(os.path.realpath(path).encode("utf-8", "surrogateescape")).hexdigest()
    kept = cache_dir() / "digests" / f"{key}.json"
    with contextlib.suppress(Exception):
        remembered = json.loads(kept.read_bytes()) if kept.is_file() else None
        if remembered and remembered["stamp"] == stamp and _HEX.fullmatch(remembered["sha256"]):
            return str(remembered["sha256"])
    digest = file_digest(path)
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > SETTLED_NS:
        write_atomic(kept, json.dumps({"stamp": stamp, "sha256": digest}).encode())
    return digest


def write_atomic(path: Path, content: bytes) -> str | None:
    """Put content at path in one step; None, or one line of notice where the cache cannot be written."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            temporary = file.name
            file.write(content)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        return f"{spelled(path)} could not be written ({error.strerror}): the next run counts again; set BENCH_CACHE"
    return None


def lengths_path(file_sha: str, tokenizer_sha: str, reading: str = "") -> Path:
    """Where the lengths of this file under this tokenizer are kept; `reading` tells which part was read, and how."""
    key = hashlib.sha256(f"{FORMAT} {file_sha} {tokenizer_sha} {reading}".rstrip().encode()).hexdigest()
    return cache_dir() / "lengths" / f"{key}.npz"


def save(path: Path, columns: dict[str, Ints], meta: dict[str, Any]) -> str | None:
    """Keep columns and a JSON object; None or a line of notice, as `write_atomic`."""
    meta = meta | {"key": path.stem, "columns": _digest(columns)}
    arrays: dict[str, Any] = {f"column_{name}": values for name, values in columns.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8), **arrays)
    return write_atomic(path, buffer.getvalue())


def load(path: Path, names: tuple[str, ...]) -> tuple[dict[str, Ints], dict[str, Any]] | str | None:
    """What `save` kept under these names; None where there is none; a line of notice where it is not to be believed.

    Believed are columns of whole numbers, all of them, equally long, with the digest that `save` wrote, in the
    file of their own name.
    """
    try:
        if not path.is_file():
            return None
        content = path.read_bytes()
    except OSError:
        return None
    # numpy, zip, zlib and json raise what they like on what a file may hold.
    with contextlib.suppress(Exception), np.load(io.BytesIO(content), allow_pickle=False) as stored:
        meta = json.loads(stored["meta"].tobytes())
        columns = {name: stored[f"column_{name}"] for name in names}
        ((kind, shape),) = {(values.dtype, values.shape) for values in columns.values()}
        whole = kind == np.int64 and len(shape) == 1
        if whole and (meta["key"], meta["columns"]) == (path.stem, _digest(columns)):
            return columns, meta
    return f"{spelled(path)} was corrupt: counted again and written anew"


def _digest(columns: dict[str, Ints]) -> str:
    sha = hashlib.sha256()
    for name in sorted(columns):
        sha.update(name.encode() + b" ")
        sha.update(np.ascontiguousarray(columns[name], dtype="<i8").tobytes())
    return sha.hexdigest()
