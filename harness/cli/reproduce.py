"""`bench reproduce`: what papers published, computed again."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import HERE, JSON


@click.group()
def reproduce() -> None:
    """Make published results again, beside what was published."""


@reproduce.command(name="isjl-tables")
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, help="Samples of lengths to average over.")
@click.option("--reference", type=HERE, help="The published tables.  [default: our own copy]")
@JSON
def isjl_tables(seeds: int, reference: Path | None, as_json: bool) -> None:
    """Tables 1 to 3 of arXiv 2608.02244 (LJF and ISJL) on the token-step model."""
    import orjson

    from harness.reproduce.isjl_published import published
    from harness.reproduce.isjl_tables import tables_again
    from harness.reproduce.isjl_text import tables_text

    printed = published(reference)
    again = tables_again(printed, seeds)
    if as_json:
        tables = {name: [row.to_dict() for row in rows] for name, rows in again.items()}
        click.echo(orjson.dumps({"source": printed.source, "seeds": seeds, "tables": tables}))
    else:
        click.echo(tables_text(again, printed.source, seeds))


@reproduce.command(name="competitive-ratio")
@click.option("--longest", type=int, default=8, help="o_1, tokens; α takes every value below it.")
@click.option("--requests", type=int, default=5, help="Most requests of an instance.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the worst cases as CSV.")
@JSON
def competitive(longest: int, requests: int, as_csv: bool, as_json: bool) -> None:
    """The competitive ratio that arXiv 2608.02244 states, beside the worst of all small instances."""
    import orjson

    from harness.reproduce.competitive import ratio_csv, ratio_document, ratio_text, worst_cases

    cases = worst_cases(longest, requests)
    if as_json:
        click.echo(orjson.dumps(ratio_document(cases)))
    else:
        click.echo(ratio_csv(cases) if as_csv else ratio_text(cases, longest, requests), nl=not as_csv)
