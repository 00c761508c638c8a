"""What every page of the site is made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.pages.boards import Board
from harness.published.cache import Keep
from harness.published.corpus import Corpus


@dataclass(frozen=True, slots=True)
class Site:
    """The runs, what was left out, and the boards made of them.

    `results` is where the raw files lie, `keep` what was computed before.
    """

    results: Path
    corpus: Corpus
    boards: tuple[Board, ...]
    keep: Keep
