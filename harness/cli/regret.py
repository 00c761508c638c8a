"""`bench regret`: what each policy loses against the best in hindsight, over many cells."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import HERE, RUNS, output_format, print_rows
from harness.core.errors import Interrupted, UserError


@click.command()
@click.argument("paths", nargs=-1, required=True, type=RUNS)
@click.option("--hindsight", default="", metavar="POLICY,…", help="The policies that the best is taken of.  [all]")
@click.option("--reference", default="v1", metavar="POLICY", help="The policy that gains are over.")
@click.option(
    "--across", default="", metavar="NAME,…", help="Options of a run that belong to the policy: token_budget."
)
@click.option("--out", type=HERE, default=Path("runs"), help="Where the runs of a grid go.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Processes for a grid.  [default: one a core]")
@output_format
def regret(
    paths: tuple[Path, ...], hindsight: str, reference: str, across: str, out: Path, jobs: int | None, form: str
) -> None:
    """Regret of policies over the cells of run directories, or of a grid's file that is run first.

    A cell is everything that decides a run but its policy and seed. A grid's file (`bench grid`) goes on where it was
    stopped; its runs lie in --out.
    """
    import orjson

    from harness.core.console import plain_console
    from harness.report.arms import without_older_copies
    from harness.report.regret import cells_of, regrets
    from harness.report.regret_tables import regret_rows, regret_table
    from harness.runs.run import load_run, runs_of
    from harness.session.ask import split_policies
    from harness.session.grid import canonical_policies

    grids = [path for path in paths if path.suffix == ".toml"]
    dirs = [path for path in paths if path.suffix != ".toml"]
    for path in grids:
        _run_grid(path, out, jobs, quiet=form != "table")
    runs, copies = without_older_copies(
        [load_run(path) for path in dict.fromkeys(runs_of([*dirs, *([out] if grids else [])]))]
    )
    if copies:
        click.echo(f"{copies} virtual runs are exact copies of later ones: left out", err=True)
    unfinished = [run for run in runs if run.status != "complete"]
    if unfinished:
        click.echo(f"{len(unfinished)} runs are not complete ({unfinished[0].path} …): left out", err=True)
        runs = [run for run in runs if run.status == "complete"]
    if not runs:
        raise UserError(f"{', '.join(map(str, paths))}: no complete run there")
    named = canonical_policies(split_policies([hindsight])) if hindsight else []
    names = [name.strip() for name in across.split(",") if name.strip()]
    cells = cells_of(runs, names)
    # What an arm is called besides its policy counts for it: v1 stands for its budgets too.
    arms = {arm for told in cells.values() for arm in told}
    chosen = [arm for arm in sorted(arms) if arm.partition(" [")[0] in named]
    if named and not chosen:
        raise UserError(f"--hindsight {hindsight}: none of them ran; there are {', '.join(sorted(arms))}")
    rows = regrets(cells, chosen, reference)
    if form == "json":
        click.echo(orjson.dumps({"cells": len(cells), "hindsight": chosen, "policies": regret_rows(rows)}))
    elif form != "table":
        print_rows(regret_rows(rows), form)
    else:
        plain_console().print(regret_table(rows, len(cells), named, reference))


def _run_grid(path: Path, out: Path, jobs: int | None, quiet: bool) -> None:
    from harness.session.grid_file import points_of, read_grid
    from harness.session.grid_local import LocalExecutor
    from harness.session.grid_plan import plan_grid
    from harness.session.grid_run import GridSession, told_tally

    asked = read_grid(path)
    plan = plan_grid(points_of(asked), asked.twice)
    tally = GridSession(plan, out, quiet=quiet).go(lambda: LocalExecutor(out, jobs, ()), False)
    for line in told_tally(tally, out):
        click.echo(line, err=True)
    if tally.interrupted:
        raise Interrupted
