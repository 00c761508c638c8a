"""What was computed once and need not be again: JSON values by the digest of what they were made from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

# Raised whenever what is kept changes its form.
FORM = 2


class Keep:
    """A directory of JSON files; a file that is not there or broken is made again."""

    def __init__(self, root: Path) -> None:
        self.root = root / f"form-{FORM}"
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
        """Takes away what this build did not use."""
        for path in self.root.glob("*/*.json"):
            if path.name not in self._used:
                path.unlink(missing_ok=True)
