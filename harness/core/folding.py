"""Tables on terminals of any width: what does not fit stands below, and no figure is ever cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Column, Table
from rich.text import Text

# Of the first column, which names the rows and may be broken over lines.
_LEAST_NAME = 12
_GAP = 2


@dataclass(frozen=True, slots=True)
class Folding:
    """A table of which each column is whole: where they do not fit side by side, the rest follows as tables below.

    Each of these begins with the first column again. Where not even one column fits beside it, every cell is a line.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The table, or its parts."""
        columns = self.table.columns
        widths = [_GAP + max(map(_width, (column.header, *column.cells))) for column in columns]
        if sum(widths) - _GAP <= options.max_width:
            yield self.table
            return
        name = min(widths[0], _LEAST_NAME)
        if self.table.title:
            yield _text(self.table.title)
        if name + max(widths[1:], default=0) > options.max_width:
            yield from _lines(columns)
            return
        group: list[Column] = []
        room = options.max_width - name
        for column, width in zip(columns[1:], widths[1:], strict=True):
            if group and width > room:
                yield _part(self.table, columns[0], group)
                group, room = [], options.max_width - name
            group.append(column)
            room -= width
        yield _part(self.table, columns[0], group)


def _part(table: Table, first: Column, others: list[Column]) -> Table:
    """The first column of a table and some of the others as a table of their own."""
    part = Table(box=None, pad_edge=False, header_style=table.header_style)
    part.add_column(first.header, overflow="fold")
    for column in others:
        part.add_column(column.header, justify=column.justify, no_wrap=True)
    for cells in zip(first.cells, *(column.cells for column in others), strict=True):
        part.add_row(*cells)
    return part


def _lines(columns: list[Column]) -> Iterator[Text]:
    """Every cell as a line `name, column: cell`, which a terminal may break but does not cut."""
    headers = [_text(column.header).plain for column in columns]
    for name, *cells in zip(*(column.cells for column in columns), strict=True):
        for header, cell in zip(headers[1:], cells, strict=True):
            yield Text.assemble(_text(name).plain.strip(), f", {header}: ", _text(cell), overflow="fold")


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def _width(cell: RenderableType) -> int:
    return max(map(cell_len, _text(cell).plain.split("\n")))
