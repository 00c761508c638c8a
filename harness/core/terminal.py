"""The one door to the terminal: what a stranger wrote is shown there and never obeyed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from harness.core.text import visible


class _Bytes:
    """The bytes of a stream: what is written is UTF-8, and shown as text is."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        """Writes them; a stray byte as its code."""
        self._stream.write(visible(bytes(data).decode(errors="surrogateescape")).encode(errors="backslashreplace"))
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Shown:
    """A stream to which no control character gets, whoever wrote it: a file, a server, a name of a directory.

    Ours may pass: rich finds the stream itself under `rich_proxied_file`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        self.buffer = _Bytes(stream.buffer)

    def write(self, text: str) -> int:
        """Writes a text with its control characters as codes."""
        self.rich_proxied_file.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes some texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def show_controls() -> None:
    """From now on no control character gets to the terminal, by whatever means it is printed."""
    sys.stdout, sys.stderr = (cast(TextIO, _Shown(stream)) for stream in (sys.stdout, sys.stderr))


def stream_itself(stream: TextIO) -> TextIO:
    """The stream behind that door, for progress bars, whose codes are ours."""
    return cast(TextIO, getattr(stream, "rich_proxied_file", stream))
