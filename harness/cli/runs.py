"""What is done with run directories: shown, listed, finished, published."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.conditions import REQUIRE_VERDICT, check_verdicts
from harness.cli.options import ALPHA, HERE, RUNS, is_url, output_format, print_rows
from harness.core.errors import NotMet, UserError


@click.command()
@click.argument("dirs", nargs=-1, required=True, type=RUNS)
@REQUIRE_VERDICT
@ALPHA
@output_format
def show(dirs: tuple[Path, ...], require_verdict: str | None, alpha: float | None, form: str) -> None:
    """Show runs: what they were, how far to trust them, and every metric.

    With --alpha the share of violations and the excess are taken from the step log again; no file changes.
    """
    import orjson

    from harness.core.console import plain_console
    from harness.report.document import at_alpha, runs_document
    from harness.report.flat import metric_rows
    from harness.report.tables import show_table
    from harness.runs.run import load_run, runs_of

    runs = [load_run(path) for path in runs_of(dirs)]
    if alpha is not None:
        runs = [at_alpha(run, alpha) for run in runs]
    if form == "json":
        click.echo(orjson.dumps(runs_document(runs)))
    elif form != "table":
        print_rows(metric_rows(runs_document(runs)), form)
    else:
        console = plain_console()
        for run in runs:
            console.print(show_table(run))
            click.echo(str(run.path))
    check_verdicts(runs, require_verdict)


@click.command(name="list")
@click.argument("directory", type=RUNS, default=Path("runs"))
@output_format
def list_runs(directory: Path, form: str) -> None:
    """List the runs in a directory, and those that did not finish."""
    import orjson

    from harness.report.document import runs_document
    from harness.report.flat import listed_rows
    from harness.report.tables import list_lines
    from harness.runs.run import find_partials, find_runs, load_runs

    runs, problems = load_runs(find_runs(directory))
    if form == "json":
        click.echo(orjson.dumps(runs_document(runs)))
    elif form != "table":
        print_rows(listed_rows(runs_document(runs)), form)
    else:
        for line in list_lines(runs) or [f"{directory}: no runs yet"]:
            click.echo(line)
        for partial in find_partials(directory):
            click.echo(f"not finished: {partial} (`bench recover` makes it readable)", err=True)
    if problems:
        raise UserError("\nbench: ".join(problems))


@click.command()
@click.argument("dirs", nargs=-1, required=True, type=HERE)
def recover(dirs: tuple[Path, ...]) -> None:
    """Finish what an interrupted or killed run left behind: tables, summary and verdict from what it recorded."""
    from harness.runs.run import load_run
    from harness.runs.writer import recover as recover_run

    for given in dirs:
        path, changed = recover_run(given)
        run = load_run(path)
        what = "recovered" if changed else "nothing to recover, the tables are whole"
        click.echo(
            f"{path}: {run.status}, {run.manifest.get('counts', {}).get('requests', 0)} requests recorded; {what}"
        )


@click.command()
@click.argument("dirs", nargs=-1, required=True, metavar="RUN…", type=RUNS)
def verify(dirs: tuple[Path, ...]) -> None:
    """Make verdict, counts and summary again from the tables, and name the first field that differs; no file changes.

    RUN is a run or a folder of runs. Exit 1 where a run is not what its tables give.
    """
    from harness.published.verify import verify_run
    from harness.runs.run import no_run_error, runs_of

    found, differing = runs_of(dirs), 0
    for path in found:
        if not (path / "run.json").is_file():
            raise no_run_error(path)
        try:
            why = verify_run(path)
        except UserError as error:
            why = str(error).removeprefix(f"{path}/")
        differing += why is not None
        click.echo(f"{path}: {why or 'as its tables give it'}")
    if differing:
        raise NotMet(f"{differing} of {len(found)} runs differ from what their tables give")


@click.command()
@click.argument("dirs", nargs=-1, required=True, metavar="RUN…", type=HERE)
@click.option("--results", default="results", help="Where published runs lie: a directory or s3://…")
def publish(dirs: tuple[Path, ...], results: str) -> None:
    """Copy runs (or folders of runs) to the published ones, without this machine's own places in them."""
    from harness.published.publish import AlreadyPublished
    from harness.published.publish import publish as publish_run
    from harness.published.store import publish_to
    from harness.runs.run import runs_of

    for path in runs_of(dirs):
        try:
            if is_url(results):
                place, published = publish_to(path, results)
            else:
                published = publish_run(path, Path(results))
                place = str(published.path)
        except AlreadyPublished as error:
            if path in dirs:
                raise
            # A folder holds more from one time to the next.
            click.echo(str(error))
            continue
        left = f"; left out: {', '.join(published.left_out)}" if published.left_out else ""
        click.echo(f"{place}: places masked: {published.masked}{left}")
