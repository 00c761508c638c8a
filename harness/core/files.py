"""Files that are written through no link, and directories in which one process at a time works."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def open_anew(path: Path) -> BinaryIO:
    """A new empty file, open for its bytes, in the place of what lay there; a link is taken away and not followed."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def is_plain(path: Path) -> bool:
    """Whether a regular file lies there, and no link, pipe or device."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def open_plain(path: Path) -> BinaryIO:
    """A regular file, open for its bytes; OSError for a link, and for a pipe or device, which are not waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_whole(path: Path) -> bytes:
    """The bytes of a regular file; OSError as `open_plain`."""
    with open_plain(path) as file:
        return file.read()


def sync(directory: Path) -> None:
    """Waits until the disk has what was renamed in a directory."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def held(directory: Path, wait: bool = True) -> Iterator[None]:
    """A lock on a directory that one process at a time holds, and that goes with the process.

    Raises BlockingIOError where another holds it and this one is not to `wait`.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)
