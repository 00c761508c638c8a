"""The terminal: text as it is, never markup or emoji codes in a name, and no line broken in a file."""

from __future__ import annotations

import os
import sys

from rich.console import Console

# Where nobody reads the lines as they come, they are as long as they need to be.
_WIDE = 200


def plain_console(stderr: bool = False) -> Console:
    """A console that prints names as they are; on a file or pipe it is 200 wide unless COLUMNS says otherwise."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _WIDE
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)
