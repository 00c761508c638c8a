"""`bench profit`: what runs earn, at prices and step costs of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.options import ALPHA, RUNS, FiniteRange, output_format, print_rows


@click.command()
@click.argument("dirs", nargs=-1, required=True, type=RUNS)
@click.option("--price-in", metavar="P", help="Price per prompt token, or per million as 0.2/M.")
@click.option("--price-out", metavar="P", help="Price per output token, or per million as 0.6/M.")
@click.option("--gpu-hour", metavar="P", help="Price of an hour of all GPUs that serve the run.")
@click.option("--prices", type=click.Choice(["profile"]), help="Prices that are not given: from the profiles.")
@click.option("--currency", metavar="CUR", help="What the prices are in.  [default: the profile's, or USD]")
@click.option("--rho0", type=FiniteRange(0, 1e9), default=0.002, help="Token-step: ρ0, per token produced.")
@click.option("--tau", type=FiniteRange(0, 1e9), default=1e-6, help="Token-step: τ, per token held or charged a step.")
@click.option("--c", "c", type=FiniteRange(0, 1e9), default=5e-4, help="Token-step: c, per step with work.")
@click.option("--footprint", type=click.Choice(["decode", "kv"]), default="decode", help="Token-step: what r counts.")
@click.option("--baseline", metavar="POLICY", default="ljf", help="The policy that break-even is computed against.")
@ALPHA
@output_format
def profit(dirs: tuple[Path, ...], alpha: float | None, form: str, **options: Any) -> None:
    """Profit of runs from their records, in token-steps and in money, with break-even and curves.

    Nothing runs again and no file changes. The defaults of --rho0, --tau and --c are behind the tables of
    arXiv 2608.02244.
    """
    import orjson

    from harness.core.console import plain_console
    from harness.measure.profit import TokenStep
    from harness.report.arms import without_older_copies
    from harness.report.flat import profit_rows
    from harness.report.prices import given_prices, price_lines, prices_of_runs
    from harness.report.profit import profit_document, profit_report
    from harness.report.profit_tables import profit_table
    from harness.runs.run import load_run, runs_of

    given = given_prices(options)
    runs, _ = without_older_copies([load_run(path) for path in dict.fromkeys(runs_of(dirs))])
    prices, sources = prices_of_runs(given, [(run.profile, run.spec.model, run.spec.gpus) for run in runs])
    constants = TokenStep(options["rho0"], options["tau"], options["c"])
    report = profit_report(runs, constants, prices, options["footprint"], alpha, options["baseline"])
    document = profit_document(report, sources)
    if form == "json":
        click.echo(orjson.dumps(document))
        return
    if form != "table":
        print_rows(profit_rows(document), form)
        if document["curves"]:
            click.echo("the curves are left out: --format json has them", err=True)
        return
    console = plain_console()
    console.print(profit_table(report))
    for line in price_lines(sources):
        console.print(line)
