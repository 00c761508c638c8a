"""`bench grid`: many runs from one file, resumed where it ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import JSON, is_url
from harness.core.errors import Interrupted, NotMet, RunFailed, UserError

if TYPE_CHECKING:
    from harness.session.grid_plan import Plan
    from harness.session.grid_run import Executor, Resumed
    from harness.session.grid_store import GridStore


@click.command()
@click.argument("file", metavar="FILE.toml|status")
@click.option("--out", default="runs", help="Where run directories go; of s3://… they are made here and sent there.")
@click.option("--dry-run", is_flag=True, help="Say which cells would run, and about how long; run nothing.")
@click.option("--retry-failed", is_flag=True, help="Run the cells again that failed before.")
@click.option("--again", is_flag=True, help="Run what is finished in --out again, beside it.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Processes for virtual time.  [default: one a core]")
@click.option(
    "--devices",
    multiple=True,
    metavar="0[,1…]",
    help="A set of GPUs for one real engine at a time; given again, another one beside it.",
)
@click.option("--most", type=click.IntRange(1), default=1_000_000, help="Refuse a grid of more cells.")
@click.option("--address", metavar="auto|ray://…|local", help="Run on a Ray cluster.  [default: on this machine]")
@JSON
def grid(
    file: str,
    out: str,
    dry_run: bool,
    retry_failed: bool,
    again: bool,
    jobs: int | None,
    devices: tuple[str, ...],
    most: int,
    address: str | None,
    as_json: bool,
) -> None:
    """Run every cell of a grid once: each value of each list in FILE.toml with each of the others.

    What is finished in --out is never run again, so the same command goes on after any stop; a cell that fails stops no
    other. `bench grid status --out DIR` says how far it is, also while it runs.
    """
    store = _store(out)
    folder = store.folder if store else Path(out)
    if file == "status":
        _status(folder, as_json)
        return
    import orjson

    from harness.session.grid_file import points_of, read_grid
    from harness.session.grid_plan import plan_grid
    from harness.session.grid_run import GridSession, resume, told_tally

    asked = read_grid(Path(file))
    if store and asked.twice:
        raise UserError(
            f"aa = true and --out {store.name}: both runs of a spec would have one place there: take a directory"
        )
    plan = plan_grid(points_of(asked, most), asked.twice)
    if store:
        store.begin(running=not dry_run)
    if dry_run:
        _dry_run(plan, jobs, resume(plan, folder, retry_failed, again), as_json)
        return
    session = GridSession(plan, folder, quiet=as_json, sent=store.send if store else None)
    tally = session.go(lambda: _executor(folder, address, jobs, devices), retry_failed, again)
    unsent = store.end() if store else None
    if as_json:
        failures = [{"cell": label, "reason": why} for label, why in tally.failed.values()]
        click.echo(orjson.dumps(tally.to_dict() | {"failures": failures}))
    else:
        for line in told_tally(tally, store.name if store else folder):
            click.echo(line)
    if tally.interrupted:
        raise Interrupted(unsent or "")
    if unsent:
        raise RunFailed(unsent)
    if tally.failed or tally.refused:
        raise RunFailed(f"{len(tally.failed) + tally.refused:,} cells failed or cannot be had")


def _store(out: str) -> GridStore | None:
    if not is_url(out):
        return None
    from harness.session.grid_store import GridStore

    return GridStore(out)


def _executor(out: Path, address: str | None, jobs: int | None, devices: tuple[str, ...]) -> Executor:
    if address is None:
        from harness.session.grid_local import LocalExecutor

        return LocalExecutor(out, jobs, devices)
    if devices:
        raise UserError("--devices goes without --address: on a cluster Ray gives each cell its GPUs")
    from harness.session.grid_ray import RayExecutor

    return RayExecutor(out, address, jobs)


def _status(out: Path, as_json: bool) -> None:
    import orjson

    from harness.session.grid_status import status_of, told_status

    status = status_of(out)
    if as_json:
        click.echo(orjson.dumps(status))
    else:
        for line in told_status(status):
            click.echo(line)
    if status["left"]:
        raise NotMet(f"{status['left']:,} cells are left")
    if status["failed"]:
        raise RunFailed(f"{status['failed']:,} cells failed")


def _dry_run(plan: Plan, jobs: int | None, todo: Resumed, as_json: bool) -> None:
    import orjson

    from harness.core.machine import cores
    from harness.session.grid_estimate import estimate
    from harness.session.grid_run import seconds_in_words, told_refused

    running = [cell for unit in todo.units for cell in unit]
    jobs = jobs or cores()
    expected = estimate(running, jobs)
    if as_json:
        click.echo(
            orjson.dumps(
                {
                    "cells": [cell.spec.to_dict() | {"digest": cell.digest} for cell in plan.cells],
                    "to_run": len(running),
                    "seconds": expected.seconds,
                    "memory_bytes": expected.memory_bytes,
                    "unknown": expected.unknown,
                    "cannot_be_had": [{"what": one.label, "why": one.why, "cells": one.cells} for one in plan.refused],
                }
            )
        )
        return
    for cell in running:
        click.echo(cell.label)
    for line in told_refused(plan):
        click.echo(line, err=True)
    unknown = f", and {expected.unknown:,} cells whose duration nobody can tell before" if expected.unknown else ""
    click.echo(
        f"{len(plan.cells):,} cells, {len(running):,} to run: about {seconds_in_words(expected.seconds)} on {jobs} "
        f"processes{unknown}; about {expected.memory_bytes / 2**30:.1f} GiB",
        err=True,
    )
