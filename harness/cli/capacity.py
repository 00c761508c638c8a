"""`bench capacity`: the highest rate or concurrency at which percentiles stay within limits."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from harness.cli.options import FiniteRange
from harness.cli.run import run
from harness.core.errors import Interrupted, UserError
from harness.session.options import RunOptions

# What the search decides by itself, or has another meaning here.
_NOT_HERE = ("rates", "concurrencies", "slo", "repeat", "alone", "aa", "until", "headline")
_OF_A_RUN = {field.name for field in dataclasses.fields(RunOptions)} | {"as_json", "out"}
_SHARED = [param for param in run.params if param.name in _OF_A_RUN.difference(_NOT_HERE)]


@click.command(params=list(_SHARED))
@click.option("--slo", required=True, metavar="METRIC_PNN=S,…", help="Limits: ttft_p95=1,tpot_p95=50ms; also _mean.")
@click.option("--by", "axis", type=click.Choice(["rate", "concurrency"]), default="rate", help="What is searched.")
@click.option("--repeat", type=click.IntRange(1, 1000), default=3, help="Repeats a load, each with the next seed.")
@click.option("--precision", type=FiniteRange(0.001, 0.5), default=0.05, help="A step between two loads, as a share.")
@click.option("--start", type=FiniteRange(0, min_open=True), help="The load tried first.  [default: 1 req/s, or 8]")
@click.option("--most", type=FiniteRange(0, min_open=True), help="The highest load tried.")
@click.option("--most-points", type=click.IntRange(2, 1000), default=40, help="The most loads tried for a policy.")
def capacity(
    as_json: bool,
    out: Path,
    slo: str,
    axis: str,
    precision: float,
    start: float | None,
    most: float | None,
    most_points: int,
    **options: Any,
) -> None:
    """Find the highest rate (or concurrency) at which every limit of --slo holds, for each policy.

    Loads are searched by bisection, every policy on the same requests; runs that --out has already are not run again,
    so the same command goes on where it was stopped. Takes the options of `bench run`.
    """
    import orjson

    from harness.report.limits import parse_limits
    from harness.session.capacity import CapacitySearch, Wanted
    from harness.session.capacity_report import capacities_document, print_capacities
    from harness.session.choose import choose
    from harness.session.servers import servers_of
    from harness.session.start import START

    limits = parse_limits(slo)
    wanted = Wanted(limits, axis, precision, start, most, most_points)
    asked = RunOptions(**options)
    kind = asked.arrival or "poisson"
    if asked.arrival is not None and axis == "concurrency":
        raise UserError(f"--arrival {asked.arrival}: a closed loop has none: leave it out, or search --by rate")
    chosen = choose(asked)
    if chosen.engine == "tokenstep":
        raise UserError("--engine tokenstep plans all requests at once, so no load is too high for it: take another")
    # The arrival is made for each load; the engine starts without one.
    started = START[chosen.engine](dataclasses.replace(asked, arrival=None))
    servers = servers_of(asked) if chosen.engine == "endpoint" else {}
    search = CapacitySearch(started, out, wanted, kind, quiet=as_json, why=chosen.why, servers=servers)
    search.go()
    if as_json:
        click.echo(orjson.dumps(capacities_document(search)))
    else:
        print_capacities(search)
    if search.interrupted:
        raise Interrupted(f"what was run is kept in {out}: the same command goes on from there")
