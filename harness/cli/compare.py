"""`bench compare`: arms of runs against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.conditions import FAIL_ON, check_comparisons
from harness.cli.options import ALPHA, output_format, print_rows
from harness.core.errors import UserError

if TYPE_CHECKING:
    from harness.report.comparison import Comparison


@click.command()
@click.argument("dirs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--baseline", metavar="POLICY", help="The policy that is A.  [default: the first arm]")
@click.option("--allow", default="", metavar="NAME,…", help="What may differ besides the policy: model,gpu,trace,…")
@FAIL_ON
@click.option("--percentiles", is_flag=True, help="Show p50, p90, p95, KV footprints and time-weighted fairness too.")
@ALPHA
@output_format
def compare(
    dirs: tuple[Path, ...],
    baseline: str | None,
    allow: str,
    conditions: tuple[str, ...],
    percentiles: bool,
    alpha: float | None,
    form: str,
) -> None:
    """Compare run directories: the first arm is A, each other arm B.

    A directory may be one run or hold several; the repeats of one policy make an arm. Of one directory that
    holds them all, v1 is A where it is there. Two directories with measured runs of one policy are an A/A.
    """
    import orjson

    from harness.core.console import plain_console
    from harness.report.arms import arms_of, with_baseline, without_older_copies
    from harness.report.comparison import compare_runs
    from harness.report.fail_on import parse_fail_on
    from harness.report.flat import comparison_rows
    from harness.report.tables import compare_table
    from harness.runs.run import load_run, runs_of

    tests = [parse_fail_on(text) for text in conditions]
    runs, copies = without_older_copies([load_run(path) for path in dict.fromkeys(runs_of(dirs))])
    if copies:
        click.echo(f"{copies} virtual runs are exact copies of later ones: left out", err=True)
    arms = with_baseline(arms_of(runs), baseline, alone=len(dirs) == 1)
    if len(arms) == 1 and len(dirs) == 2 and arms[0][0].kind == "measured":
        # An A/A: the same runs, measured twice.
        arms = [arm for arm in ([run for run in runs if run.path.is_relative_to(one)] for one in dirs) if arm]
    first, *others = arms
    if not others:
        raise UserError(
            f"{', '.join(map(str, dirs))}: only one arm ({first[0].spec.policy}): name runs of two policies to compare"
        )
    allowed = frozenset(name.strip() for name in allow.split(",") if name.strip())
    comparisons = [compare_runs(first, other, allowed, alpha) for other in others]
    if form in ("csv", "markdown"):
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
