"""`bench thin` and `bench expand`: the tables of simulated runs, taken away and made again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import HERE
from harness.core.errors import NotMet
from harness.core.terminal import stream_itself

if TYPE_CHECKING:
    from harness.session.thin import Changed

DIRS = click.argument("dirs", nargs=-1, required=True, metavar="RUN…", type=HERE)


@click.command()
@DIRS
def thin(dirs: tuple[Path, ...]) -> None:
    """Keep digests of simulated runs' tables in place of the tables, which bench expand makes again.

    Each run is made again first: one that comes out otherwise, and one that was measured, keeps its tables.
    """
    from harness.runs.run import runs_of
    from harness.runs.thin import is_thin
    from harness.session.thin import thin as take_away

    paths = [path for path in runs_of(dirs) if not is_thin(path)]
    kept = _shown(take_away(paths), len(paths), "making them again")
    click.echo(f"{len(paths) - len(kept)} of {len(paths)} runs keep digests in place of tables")


@click.command()
@DIRS
def expand(dirs: tuple[Path, ...]) -> None:
    """Make the tables of thin runs again, equal to the digests that they keep. Exit 1 where one is not."""
    from harness.runs.run import runs_of

    count, problems = expanded(runs_of(dirs))
    click.echo(f"{count} runs have their tables again")
    if problems:
        raise NotMet(f"{len(problems)} runs have not: see above")


def expanded(paths: list[Path]) -> tuple[int, list[Changed]]:
    """Makes the tables of the thin ones again: how many have them, and those that have not, each said."""
    from harness.runs.thin import is_thin
    from harness.session.thin import expand as make_again

    thin_ones = [path for path in paths if is_thin(path)]
    if not thin_ones:
        return 0, []
    problems = _shown(make_again(thin_ones), len(thin_ones), "making tables again")
    return len(thin_ones) - len(problems), problems


def _shown(changes: Iterator[Changed], count: int, doing: str) -> list[Changed]:
    """The runs of which it could not be done; a line for each."""
    with click.progressbar(changes, count, doing, file=stream_itself(sys.stderr)) as bar:
        failed = [change for change in bar if change.why]
    for change in failed:
        click.echo(f"{change.path}: {change.why}", err=True)
    return failed
