"""What was computed once and need not be again: JSON values by the digest of what they were made from."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

PACKAGE = Path(__file__).resolve().parents[1]


def _code() -> str:
    """A digest of the package's sources: what other code computed is no value of this one's."""
    sha = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        sha.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()[:16]


class Keep:
    """A directory of JSON files; a file that is not there or broken is made again."""

    def __init__(self, root: Path) -> None:
        self.root = root / f"code-{_code()}"
        self._used: set[str] = set()

    def made(self, key: str, make: Callable[[], Any]) -> Any:
        """The value kept under `key` (hex), or the value that `make` gives, which is then kept."""
        path = self.root / key[:2] / f"{key}.json"
        self._used.add(path.name)
        with contextlib.suppress(OSError, orjson.JSONDecodeError):
            return orjson.loads(path.read_bytes())
        value = make()
        data = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(data)
        part.replace(path)
        # Read back, so that a first build and a later one see the same types.
        return orjson.loads(data)

    def sweep(self) -> None:
        """Takes away what this build did not use, and what other code left."""
        for old in self.root.parent.glob("code-" + 16 * "[0-9a-f]"):
            if old != self.root:
                shutil.rmtree(old, ignore_errors=True)
        for path in self.root.glob("*/*.json"):
            if path.name not in self._used:
                path.unlink(missing_ok=True)
