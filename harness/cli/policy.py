"""`bench policy`: a policy of one's own, begun and tried."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.cli.options import HERE, JSON
from harness.core.errors import NotMet, UserError

SLOW_US = 100.0


@click.group()
def policy() -> None:
    """Begin a policy of your own in one file, and try it before you run it."""


@policy.command(name="new")
@click.argument("path", type=HERE)
def new_policy(path: Path) -> None:
    """Write a policy that runs to PATH, with comments on all that it may say."""
    from harness.session.own_policies import CLASS, write_new

    write_new(path)
    click.echo(f"{path}: a policy that runs: `bench policy check ./{path}:{CLASS}`, then change it")


@policy.command(name="check")
@click.argument("named", metavar="FILE.py:CLASS[,key=value]")
@click.option("--traces", type=click.IntRange(1, 100_000), default=60, help="Random traces that it is tried on.")
@click.option("--vllm/--no-vllm", default=True, help="Hold it against vLLM's scheduler, where there is one.")
@click.option("--engine-python", envvar="BENCH_ENGINE_PYTHON", help="The Python that has vLLM.")
@JSON
def check_policy(named: str, traces: int, vllm: bool, engine_python: str | None, as_json: bool) -> None:
    """Try a policy: whether it goes on, decides alike each time and on vLLM's scheduler, and starves nobody.

    Exit code 1 where something is wrong with it, 2 where the file holds no policy.
    """
    import orjson

    from harness.session.own_policies import check_policy as check
    from harness.session.start import any_python

    def python() -> Path | None:
        if not vllm:
            return None
        try:
            return any_python(engine_python)
        except UserError:
            if engine_python:
                raise
            return None

    trial = check(named, traces, python)
    tried = trial.tried
    if as_json:
        found = {
            "policy": trial.name,
            "problems": list(trial.problems),
            "traces": tried.cases,
            "steps": tried.step_count,
            "preemptions": tried.preemptions,
            "overtakes": tried.overtakes,
            "plan_us": tried.plan_us and {"p50": tried.plan_us[0], "p99": tried.plan_us[1]},
            "vllm": trial.vllm or None,
        }
        click.echo(orjson.dumps(found))
    elif not trial.problems:
        click.echo(f"{trial.name}: in order")
        click.echo(
            f"virtual engine: {tried.cases} random traces, {tried.step_count:,} steps, {tried.preemptions:,} "
            "preemptions: every request ends, and it decides alike each time"
        )
        click.echo(
            f"vLLM {trial.vllm}'s own scheduler: the same steps"
            if trial.vllm
            else "not compared with vLLM's scheduler"
            + (": there is no environment (`bench engine install cpu`)" if vllm else "")
        )
        click.echo(f"at most {tried.overtakes} requests started before one that came earlier")
        if tried.plan_us is not None:
            median, high = tried.plan_us
            slow = ": slow for an engine that waits for it at each step" if median > SLOW_US else ""
            click.echo(f"a plan takes {median:.1f} µs (p99 {high:.1f}) at 1,024 slots{slow}")
    if trial.problems:
        sys.stdout.flush()
        raise NotMet("\n".join(trial.problems))
