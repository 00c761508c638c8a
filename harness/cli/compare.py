"""`bench compare`: arms of runs against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.conditions import FAIL_ON, check_comparisons
from harness.cli.options import ALPHA, RUNS, WORDS, output_format, print_rows, rules_of
from harness.core.errors import UserError

if TYPE_CHECKING:
    from harness.report.comparison import Comparison


@click.command()
@click.argument("dirs", nargs=-1, required=True, type=RUNS)
@click.option("--baseline", metavar="POLICY", help="The policy that is A.  [default: the first named, else v1]")
@click.option("--allow", default="", metavar="NAME,…", help="What may differ besides the policy: model,gpu,trace,…")
@WORDS
@FAIL_ON
@click.option("--percentiles", is_flag=True, help="Show p50, p90, p95, KV footprints and time-weighted fairness too.")
@click.option("--matrix", "as_matrix", is_flag=True, help="Policies by loads: one headline change a cell, and means.")
@ALPHA
@output_format
def compare(
    dirs: tuple[Path, ...],
    baseline: str | None,
    allow: str,
    headline: str | None,
    equivalent: str | None,
    conditions: tuple[str, ...],
    percentiles: bool,
    as_matrix: bool,
    alpha: float | None,
    form: str,
) -> None:
    """Compare run directories: A is the first named or, in one directory that holds all, v1.

    A directory may be one run or hold several; the repeats of one policy make an arm. Two directories that hold
    several arms are two sides: each policy in the first against the same policy in the second.
    """
    import orjson

    from harness.core.console import plain_console
    from harness.report.comparison import compare_runs
    from harness.report.fail_on import parse_fail_on
    from harness.report.flat import comparison_rows
    from harness.report.matrix import by_load, matrix_of, matrix_table
    from harness.report.sides import folders_of, sides_of
    from harness.report.tables import compare_table
    from harness.runs.run import load_run, runs_of

    tests = [parse_fail_on(text) for text in conditions]
    rules = rules_of(headline, equivalent)
    found = [[load_run(path) for path in dict.fromkeys(runs_of([one]))] for one in dict.fromkeys(dirs)]
    folders = folders_of(list(dict.fromkeys(dirs)), found)
    copies, sides = 0, []
    for part in by_load(folders) if as_matrix else [folders]:
        own, left_out = sides_of(part, baseline, alone=len(dirs) == 1)
        sides += own
        copies += left_out
    if copies:
        click.echo(f"{copies} virtual runs are exact copies of later ones: left out", err=True)
    if not sides:
        only = f"only one arm ({found[0][0].spec.policy})"
        raise UserError(f"{', '.join(map(str, dirs))}: {only}: name runs of two policies to compare")
    allowed = frozenset(name.strip() for name in allow.split(",") if name.strip())
    comparisons = [compare_runs(a, b, allowed, alpha, rules=rules) for a, b in sides]
    if as_matrix:
        matrix = matrix_of(comparisons)
        if form == "json":
            click.echo(orjson.dumps(matrix.to_dict()))
        elif form == "table":
            plain_console().print(matrix_table(matrix))
        else:
            print_rows(matrix.rows(), form)
    elif form in ("csv", "markdown"):
        pairs = [(comparison.a[0].spec.label, comparison.b[0].spec.label, comparison) for comparison in comparisons]
        print_rows([row for a, b, comparison in pairs for row in comparison_rows(a, b, comparison.to_dict())], form)
        _say_refusals(comparisons)
    elif form == "json":
        documents = [comparison.to_dict() for comparison in comparisons]
        # Two arms are the usual case and make one document; more make a list of them.
        click.echo(orjson.dumps(documents[0] if len(documents) == 1 else {"comparisons": documents}))
    else:
        console = plain_console()
        for comparison in comparisons:
            console.print(compare_table(comparison, percentiles))
    check_comparisons(tests, comparisons)


def _say_refusals(comparisons: Sequence[Comparison]) -> None:
    """Says why rows have no word: CSV and Markdown have no place for it."""
    for comparison in comparisons:
        if comparison.refusal:
            click.echo(f"{comparison.b[0].spec.label}: not compared: {comparison.refusal}", err=True)
