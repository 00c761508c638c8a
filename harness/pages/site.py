"""What every page of the site is made from."""

from __future__ import annotations

from dataclasses import dataclass

from harness.pages.boards import Board
from harness.published.cache import JsonCache
from harness.published.corpus import Corpus


@dataclass(frozen=True, slots=True)
class Site:
    """The runs, what was left out, the boards made of them, and the cache with what was computed before."""

    corpus: Corpus
    boards: tuple[Board, ...]
    cache: JsonCache
