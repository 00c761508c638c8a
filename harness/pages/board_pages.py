"""What the pages about boards have in common: one that lists the boards, and one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.pages.boards import Board
from harness.pages.facets import facets_of, filters_of, pages_of
from harness.pages.render import Writer


def write_list(writer: Writer, name: str, boards: Sequence[Board], facts: Mapping[str, Any]) -> None:
    """NAME.html: the boards under their filters, each with what the page tells of it (by the board's id)."""
    writer.page(
        f"{name}.html",
        f"{name}.html.j2",
        boards=[(board, facets_of(board), facts[board.id]) for board in boards],
        filters=filters_of(boards),
    )


def write_board(writer: Writer, name: str, board: Board, **values: Any) -> None:
    """NAME/BOARD.html, with the way to the board's other pages."""
    writer.page(f"{name}/{board.id}.html", f"{name}_board.html.j2", board=board, pages=pages_of(board), **values)
