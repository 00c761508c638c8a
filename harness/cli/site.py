"""`bench site`: the leaderboard."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import HERE, RESULTS
from harness.core.errors import NotMet
from harness.core.terminal import stream_itself

if TYPE_CHECKING:
    from harness.published.corpus import Problem, PublishedRun


@click.group()
def site() -> None:
    """Build, look at and check the leaderboard."""


@site.command(name="build")
@RESULTS
@click.option("--out", type=HERE, default=Path("site/public"), help="Where the site goes.")
@click.option("--cache", type=HERE, help="What builds keep.  [default: OUT.cache]")
def build_site(results: Path, out: Path, cache: Path | None) -> None:
    """Build the static site from run directories; only what changed is written."""
    from harness.cli.tables import expanded
    from harness.pages.build import build

    built = build(results, out, cache, expanded)
    left = f", {built.problems} directories left out (problems.html says why)" if built.problems else ""
    click.echo(f"{out}/index.html: {built.runs} runs, {built.written} files written{left}")
    if built.cache_error:
        click.echo(f"the next build starts anew, since nothing could be kept: {built.cache_error}", err=True)


@site.command(name="check")
@RESULTS
@click.option("--replay", is_flag=True, help="Run the simulated ones again and compare the tables.")
@click.option(
    "--trust-policies", "trust", is_flag=True, help="With --replay: run the code of submitted policies, with limits."
)
@click.argument("paths", nargs=-1, type=HERE)
def check_site(results: Path, paths: tuple[Path, ...], replay: bool, trust: bool) -> None:
    """Check run directories as a pull request brings them: all under --results, or those under PATH."""
    from harness.cli.tables import expanded
    from harness.published.check import WHAT, check
    from harness.runs.run import find_runs

    if trust and not replay:
        raise click.UsageError("--trust-policies goes with --replay: nothing else runs a policy")
    expanded([path for place in paths or (results,) for path in find_runs(place)])
    checked = check(results, paths)
    problems, replays_made = checked.problems, ""
    for problem in problems:
        click.echo(f"{problem.where}: {problem.why}")
    if replay:
        differing, replays_made = _replay(checked.sound, trust)
        problems += differing
    if problems:
        places = len({problem.where for problem in problems})
        raise NotMet(f"problems: {len(problems)}, in {places} of {checked.runs} runs checked{replays_made}")
    click.echo(f"{checked.runs} runs checked{replays_made}, no problem: {WHAT}")


def _replay(runs: Sequence[PublishedRun], trust: bool) -> tuple[tuple[Problem, ...], str]:
    """The problems of the runs that were run again, each said, and what joins the last line."""
    from harness.published.corpus import Problem
    from harness.session.replay import replayable, replays

    virtual = replayable(runs)
    made_again = replays(virtual, trust=trust)
    with click.progressbar(made_again, len(virtual), "running again", file=stream_itself(sys.stderr)) as bar:
        replayed = list(bar)
    problems = tuple(Problem(replay.where, replay.why) for replay in replayed if replay.made and replay.why)
    for replay in replayed:
        if replay.why:
            click.echo(f"{replay.where}: {replay.why}")
    made = sum(replay.made for replay in replayed)
    return problems, f", {made} of {len(virtual)} simulated ones run again"


@site.command(name="serve")
@click.option("--dir", "directory", type=HERE, default=Path("site/public"), help="The site.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="0 takes any that is free.")
@click.option("--host", default="127.0.0.1", help="Who can see it: 127.0.0.1 only this machine.")
def serve_site(directory: Path, port: int, host: str) -> None:
    """Show the site that `bench site build` made in a browser, until Ctrl-C."""
    from harness.pages.serve import serve

    serve(directory, host, port, lambda url: click.echo(f"{url} (Ctrl-C ends it)"))
