"""Files that a user names, opened or refused in one line; names and values as a line can hold them."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from workloads.core.errors import WorkloadError


def one_line(text: str) -> str:
    """A text without line breaks, control characters or stray bytes: their codes instead."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def spelled(name: object, longest: int = 300) -> str:
    """A name on one line, the end cut off where it is longer than `longest` characters."""
    text = one_line(str(name))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def shown(value: Any) -> str:
    """A value read from a file as an error can hold it: on one line, at most 60 characters."""
    try:
        return spelled(repr(value), 60)
    except (ValueError, RecursionError):
        return "a value too long to show"


def open_regular(path: Path) -> BufferedReader:
    """The file, open for its bytes; WorkloadError where it is not there, cannot be read, or is no regular file."""
    try:
        # A named pipe would be waited for, a device might never end.
        if stat.S_ISREG(os.stat(path).st_mode):
            return path.open("rb")
        why = "not a regular file: save what it gives in one first"
    except FileNotFoundError:
        raise WorkloadError(f"{spelled(path)}: no such file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    raise WorkloadError(f"{spelled(path)}: cannot be read: {why}")
