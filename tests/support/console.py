"""What a terminal shows of a table."""

import io

from rich.console import Console, RenderableType


def rendered(table: RenderableType, width: int = 80) -> str:
    """The text of a table on a terminal of this width, in characters, without colours."""
    console = Console(width=width, no_color=True, file=io.StringIO())
    with console.capture() as captured:
        console.print(table)
    return captured.get()
