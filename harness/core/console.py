"""The terminal: text as it is, never markup, emoji or terminal codes in a name, and no line broken in a file."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from harness.core.text import visible

# Where nobody reads the lines as they come, they are as long as they need to be.
_WIDE = 200


class _PlainConsole(Console):
    """A console whose colours are codes of ours, and whose texts hold none."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of what is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def plain_console(stderr: bool = False) -> Console:
    """A console that prints names as they are; on a file or pipe it is 200 wide unless COLUMNS says otherwise."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _WIDE
    return _PlainConsole(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def leave_terminal() -> None:
    """What would be written to a terminal that has closed goes nowhere: writing to it fails."""
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream)
                os.close(nowhere)
