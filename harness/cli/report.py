"""`bench report`: runs or a comparison as one file for a colleague, or as Markdown for a pull request."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import HERE, RUNS
from harness.core.errors import UserError

HTML, MARKDOWN = "html", "markdown"


@click.command()
@click.argument("dirs", nargs=-1, required=True, type=RUNS)
@click.option("--out", type=HERE, help="The file.  [default: report.html; Markdown is printed]")
@click.option("--format", "form", type=click.Choice((HTML, MARKDOWN)), default=HTML, help="What to make.")
def report(dirs: tuple[Path, ...], out: Path | None, form: str) -> None:
    """Make one file of runs: answer, ranking, curves, profit and thresholds, as on the leaderboard.

    It needs no network and no other file. A directory may be one run or hold several; what may be ranked together
    stands together.
    """
    from harness.pages.report import html_report, markdown_report
    from harness.runs.run import runs_of

    paths = list(dict.fromkeys(runs_of(dirs)))
    if form == MARKDOWN:
        text = markdown_report(paths)
        if out is None:
            click.echo(text, nl=False)
            return
        _write(out, text.encode(), (".md", ".markdown", ".txt"))
    else:
        out = out or Path("report.html")
        _write(out, html_report(paths), (".html", ".htm"))
    click.echo(f"{out}: {len(paths)} runs")


def _write(out: Path, data: bytes, endings: tuple[str, ...]) -> None:
    """Writes the file whole; UserError for a name that might be something else's, or a place that cannot be written."""
    if out.suffix not in endings:
        raise UserError(f"--out {out}: give a name that ends in {' or '.join(endings[:2])}")
    part = out.with_name(f"{out.name}.part")
    try:
        part.write_bytes(data)
        part.replace(out)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written ({error.strerror}): give another") from None
