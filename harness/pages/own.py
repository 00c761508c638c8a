"""What a board has to itself: its page, what leads there from before, and the pages and files of its runs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from harness.pages import runs
from harness.pages.board import board_values, other_loads
from harness.pages.boards import Board
from harness.pages.redirects import OF_BOARDS, moved
from harness.pages.render import Writer
from harness.pages.reported import ReportedChange, reported_changes
from harness.pages.site import Site
from harness.published.corpus import PublishedRun

# The arguments of `Writer.page_of`.
_Page = tuple[str, str, Any, Callable[[], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Own:
    """A board with what its pages tell of others, and all its runs, also those that stand in no table.

    `others` has the id, the settings and the kind of boards of the same GPU, model and workload. `board` is None of
    runs without one.
    """

    board: Board | None
    runs: tuple[PublishedRun, ...]
    others: tuple[tuple[str, str, str], ...]
    published: dict[str, ReportedChange]


def owns_of(site: Site) -> list[Own]:
    """One for every board, and one for the runs that stand on none."""
    published = reported_changes(site.boards)
    found = []
    placed = set()
    for board in site.boards:
        own_runs = tuple(one for arm in board.arms for one in arm.runs)
        placed |= {one.id for one in own_runs}
        found.append(Own(board, own_runs, other_loads(board, site.boards), published.get(board.id, {})))
    rest = tuple(one for one in site.corpus.runs if one.id not in placed)
    return [*found, Own(None, rest, (), {})]


def is_current(own: Own, writer: Writer) -> bool:
    """Whether all its pages are there as they would be made."""
    return all(writer.is_current(name, template, made_of) for name, template, made_of, _ in _pages(own))


def write(own: Own, writer: Writer) -> None:
    """boards/BOARD.html and what leads there, runs/ID/index.html of every run, with its raw files."""
    for page in _pages(own):
        writer.page_of(*page)
    for published in own.runs:
        runs.copy_files(published, writer)


def _pages(own: Own) -> Iterator[_Page]:
    board = own.board
    if board is not None:
        values = functools.cache(lambda: board_values(board, own.published))
        made_of = [
            [[one.where, one.digest] for one in own.runs],
            own.others,
            {policy: dataclasses.asdict(change) for policy, change in own.published.items()},
        ]
        page = f"boards/{board.id}.html"
        yield page, "board.html.j2", made_of, lambda: {"board": board, "others": own.others, **values()}
        for old, section in OF_BOARDS.items():
            name = f"{old}/{board.id}.html"
            yield name, "moved.html.j2", made_of, functools.partial(_moved, name, page, section, values)
    for published in own.runs:
        yield runs.page_of(published, board)


def _moved(name: str, page: str, section: str, values: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return moved(name, page, section if values()["charts"][section] else "")
