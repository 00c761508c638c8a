"""Options that several commands take, and what their values may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.core.errors import UserError
from harness.core.text import shown

if TYPE_CHECKING:
    from harness.report.words import Rules


class FiniteRange(click.FloatRange):
    """A range of numbers that are numbers: nan and inf pass click's own."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; fails where it is none or out of range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def several(one: Any) -> Callable[[click.Context, click.Parameter, str | None], tuple[Any, ...]]:
    """A callback that reads values of a click type, apart by commas; each once, in the order given, none of None."""

    def read(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[Any, ...]:
        if text is None:
            return ()
        return tuple(dict.fromkeys(one.convert(part, parameter, context) for part in text.split(",")))

    return read


ALPHA = click.option("--alpha", type=FiniteRange(0), help="The largest fair gap, in tokens: larger ones are counted.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
FORMATS = ("table", "json", "csv", "markdown")


def _one_format(context: click.Context, _: click.Parameter, given: str | None) -> str:
    if context.params.pop("as_json"):
        if given not in (None, "json"):
            raise click.UsageError(f"--json and --format {given} ask for two formats: give one")
        return "json"
    return given or "table"


def output_format(command: Callable[..., None]) -> Callable[..., None]:
    """`--format`, and `--json` as its short form: the command gets `form`, one of FORMATS."""
    json_flag = click.option("--json", "as_json", is_flag=True, is_eager=True, help="The same as --format json.")
    form = click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        callback=_one_format,
        help="How to print: a table, one JSON document, CSV or Markdown.  [default: table]",
    )
    return json_flag(form(command))


def print_rows(rows: list[dict[str, Any]], form: str) -> None:
    """Prints flat rows as CSV or Markdown."""
    from harness.report.flat import as_csv, as_markdown

    click.echo(as_csv(rows) if form == "csv" else as_markdown(rows), nl=False)


class PlaceHere(click.Path):
    """A place on this machine; a URL would become a directory of a strange name."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; UserError for a URL."""
        if is_url(value):
            raise UserError(
                f"{value}: a URL, and a place on this machine is meant: "
                "`bench publish RUN --results URL` sends runs to a store"
            )
        return super().convert(value, param, ctx)


class PlaceOfRuns(PlaceHere):
    """Where runs are read: a directory, or the URL of a store, whose runs are brought into bench's cache."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The directory; UserError where a store cannot be read."""
        if not is_url(value):
            return super().convert(value, param, ctx)
        from harness.published.store import fetch

        return fetch(value)


def is_url(value: Any) -> bool:
    """Whether a place is a store's, and no directory here."""
    return isinstance(value, str) and "://" in value


HERE, RUNS = PlaceHere(), PlaceOfRuns()
RESULTS = click.option(
    "--results", type=RUNS, default=Path("results"), help="Where published runs lie: a directory or s3://…"
)


def WORDS(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say how words come about: `--headline` and `--equivalent`."""
    headline = click.option(
        "--headline", metavar="METRIC,…", help="Up to three rows whose words count.  [default: a rate, TTFT, TPOT]"
    )
    equivalent = click.option("--equivalent", metavar="SHARE", help='Call arms equal within this: "2%".')
    return headline(equivalent(command))


def rules_of(headline: str | None, equivalent: str | None) -> Rules:
    """What the two options say; UserError where they name no metric or no share."""
    from harness.report.words import Rules, read_headline

    return Rules(read_headline(headline) if headline else (), share_of("--equivalent", equivalent))


def share_of(option: str, text: str | None) -> float | None:
    """`2%` or `0.02` as a share between 0 and 1; UserError where it is none."""
    if text is None:
        return None
    number, sign, _ = text.strip().partition("%")
    try:
        share = float(number) / (100 if sign else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise UserError(f"{option} {shown(text)}: give a share such as 2%")
    return share
