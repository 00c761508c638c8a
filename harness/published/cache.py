"""What was computed once and need not be again: JSON values by the digest of what they were made from."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

# Values that stay in memory for the next page that wants them.
REMEMBERED = 64


class JsonCache:
    """A directory of JSON files for one version of the code (`code`, a digest); what is not there is made again.

    Where the directory cannot be written, what was made stays in memory and `write_error` says why.
    """

    def __init__(self, parent: Path, code: str = "") -> None:
        self.code = code
        self.parent = parent
        self.root = parent / f"code-{code}"
        self.write_error: str | None = None
        self._used: set[str] = set()
        self._recent: OrderedDict[str, Any] = OrderedDict()
        self._unwritten: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Callable[[Path, str], JsonCache], tuple[Path, str]]:
        """In another process all that is sent there shares one; what is in memory here is read again."""
        return _shared, (self.parent, self.code)

    def get_or_make(self, key: str, make: Callable[[], Any]) -> Any:
        """The value kept under `key` (hex), or the value that `make` gives, which is then kept; not to be changed."""
        is_kept, value = self.look_up(key)
        return value if is_kept else self.put(key, make())

    def put(self, key: str, value: Any) -> Any:
        """Keeps a value under `key`; the value as JSON reads it, so that a first build and a later one see the same."""
        self._used.add(key)
        data = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
        value = orjson.loads(data)
        if not self._write(self._path(key), data):
            self._unwritten[key] = value
        return self._remember(key, value)

    def look_up(self, key: str) -> tuple[bool, Any]:
        """Whether a value is kept under `key`, and the value."""
        self._used.add(key)
        for in_memory in (self._recent, self._unwritten):
            if key in in_memory:
                return True, in_memory[key]
        with contextlib.suppress(OSError, orjson.JSONDecodeError):
            return True, self._remember(key, orjson.loads(self._path(key).read_bytes()))
        return False, None

    def take_used(self) -> set[str]:
        """The keys that were asked for since the last call: another process tells them to the one that sweeps."""
        used, self._used = self._used, set()
        return used

    def add_used(self, keys: set[str]) -> None:
        """Keys that another process asked for."""
        self._used |= keys

    def sweep(self) -> None:
        """Takes away what this build did not use, and what other versions of the code kept."""
        for path in self.root.glob("*/*"):
            if path.suffix != ".json" or path.stem not in self._used:
                with contextlib.suppress(OSError):
                    path.unlink()
        for other in self.parent.glob("code-*"):
            if other != self.root:
                shutil.rmtree(other, ignore_errors=True)

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / f"{key}.json"

    def _remember(self, key: str, value: Any) -> Any:
        self._recent[key] = value
        if len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)
        return value

    def _write(self, path: Path, data: bytes) -> bool:
        part = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
            part.replace(path)
        except OSError as error:
            self.write_error = f"{self.parent}: {error.strerror or error}"
            return False
        return True


@functools.cache
def _shared(parent: Path, code: str) -> JsonCache:
    return JsonCache(parent, code)
