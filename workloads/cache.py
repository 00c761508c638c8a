"""What was costly to count, kept under the user's cache directory."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from workloads.errors import WorkloadError
from workloads.trace import Ints

# Raise it when the meaning of what is stored changes: older files are then never read.
FORMAT = 1


def cache_dir() -> Path:
    """$BENCH_CACHE, else $XDG_CACHE_HOME/schedbench, else ~/.cache/schedbench; it need not exist."""
    if own := os.environ.get("BENCH_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "schedbench"


def file_digest(path: Path) -> str:
    """The sha256 (hex) of a file's content; WorkloadError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise WorkloadError(f"{path}: no such file") from None
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}") from None


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
        return f"{path} could not be written ({error.strerror}): the next run counts again; set BENCH_CACHE"
    return None


def lengths_path(file_sha: str, tokenizer_sha: str) -> Path:
    """Where the lengths of this file under this tokenizer are kept."""
    key = hashlib.sha256(f"{FORMAT} {file_sha} {tokenizer_sha}".encode()).hexdigest()
    return cache_dir() / "lengths" / f"{key}.npz"


def save(path: Path, columns: dict[str, Ints], meta: dict[str, Any]) -> str | None:
    """Keep columns and a JSON object; None or a line of notice, as `write_atomic`."""
    arrays: dict[str, Any] = {f"column_{name}": values for name, values in columns.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8), **arrays)
    return write_atomic(path, buffer.getvalue())


def load(path: Path) -> tuple[dict[str, Ints], dict[str, Any]] | str | None:
    """What `save` kept; None where there is none; one line of notice where the file is corrupt."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            meta = json.loads(stored["meta"].tobytes())
            prefix = "column_"
            columns = {key[len(prefix) :]: stored[key] for key in stored.files if key.startswith(prefix)}
    except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, OSError, EOFError, NotImplementedError):
        return f"{path} was corrupt: counted again and written anew"
    return columns, meta
