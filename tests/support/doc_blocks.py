"""The shell blocks of the documents, and what a comment above each says of running it in a test.

<!-- test: skip, because … -->                          it is not run, and why
<!-- test: replace "A" with "B", "C" with "D" -->       run smaller, or with what a reader would fill in
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"(?:<!-- test: (?P<note>[^\n]*?) -->\n)?```(?P<kind>sh|python)\n(?P<text>.*?)\n```", re.S)
_REPLACE = re.compile(r'"([^"]+)" with "([^"]*)"')


@dataclass(frozen=True, slots=True)
class Block:
    """One block: where it begins, its language, its text as a test runs it, and why it is skipped, if it is."""

    document: Path
    line: int
    kind: str
    text: str
    skip: str | None

    @property
    def name(self) -> str:
        """What to call it in a test's name."""
        return f"{self.document.name}:{self.line}"


def blocks_of(document: Path) -> list[Block]:
    """The blocks of a document in order; ValueError where a comment is none of the two, or replaces nothing."""
    text = document.read_text(encoding="utf-8")
    return [_block(document, text, match) for match in _BLOCK.finditer(text)]


def _block(document: Path, text: str, match: re.Match[str]) -> Block:
    note, commands = match["note"], match["text"]
    line = text.count("\n", 0, match.start("kind")) + 1
    place = f"{document.name}:{line}"
    if note is None:
        return Block(document, line, match["kind"], commands, None)
    if note.startswith("skip, "):
        return Block(document, line, match["kind"], commands, note.removeprefix("skip, "))
    pairs = _REPLACE.findall(note)
    if not note.startswith("replace ") or not pairs:
        raise ValueError(f"{place}: {note!r} is neither skip nor replace")
    for old, new in pairs:
        if old not in commands:
            raise ValueError(f"{place}: the block has no {old!r} to replace")
        commands = commands.replace(old, new)
    return Block(document, line, match["kind"], commands, None)
