"""`bench aa` and `bench power`: how runs spread, and what that lets a comparison show."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import RUNS, output_format, print_rows, rules_of, share_of
from harness.core.errors import UserError


@click.command()
@click.argument("dirs", nargs=-1, required=True, metavar="RUN…", type=RUNS)
@click.option("--headline", metavar="METRIC,…", help="Up to three rows.  [default: a rate, TTFT, TPOT]")
@output_format
def aa(dirs: tuple[Path, ...], headline: str | None, form: str) -> None:
    """Hold a policy against itself: what a comparison would have said of its own runs.

    Takes four or more runs of one arm, such as of `bench run --policy v1 --repeat 8` (simulated) or `--aa 7` (a real
    engine). They are split into two sides in every way (200 at most).
    """
    import orjson

    from harness.core.console import plain_console
    from harness.report.arms import arms_of
    from harness.report.spread import against_itself, itself_table
    from harness.runs.run import load_run, runs_of

    runs = [load_run(path) for path in dict.fromkeys(runs_of(dirs))]
    found = [against_itself(arm, rules_of(headline, None)) for arm in arms_of(runs)]
    if form == "json":
        click.echo(orjson.dumps({"arms": [one.to_dict() for one in found]}))
    elif form == "table":
        for one in found:
            plain_console().print(itself_table(one))
    else:
        print_rows([row for one in found for row in one.rows()], form)


@click.command()
@click.argument("dirs", nargs=-1, required=True, metavar="RUN…", type=RUNS)
@click.option("--difference", metavar="SHARE", help='The difference to show: "3%".  [default: several]')
@click.option("--power", "wanted", default="95%", metavar="SHARE", help="How often it should be shown.")
@click.option("--headline", metavar="METRIC,…", help="Up to three rows.  [default: a rate, TTFT, TPOT]")
@output_format
def power(dirs: tuple[Path, ...], difference: str | None, wanted: str, headline: str | None, form: str) -> None:
    """Say how many repeats show a given difference, from how these runs spread.

    Of two arms the spread of their pairs counts; of one arm that of two of its runs.
    """
    import orjson

    from harness.core.console import plain_console
    from harness.report.spread import plan_table, plans_of
    from harness.runs.run import load_run, runs_of

    share = share_of("--difference", difference)
    differences = (share,) if share is not None else (0.01, 0.02, 0.03, 0.05, 0.10)
    often = share_of("--power", wanted)
    if often is None or often < 0.5:
        raise UserError(f"--power {wanted}: give a share of at least 50%")
    runs = [load_run(path) for path in dict.fromkeys(runs_of(dirs))]
    plans = plans_of(runs, differences, often, rules_of(headline, None))
    if form == "json":
        click.echo(orjson.dumps({"power": often, "rows": [plan.to_dict() for plan in plans]}))
    elif form == "table":
        plain_console().print(plan_table(plans, often))
    else:
        print_rows([plan.to_dict() for plan in plans], form)
