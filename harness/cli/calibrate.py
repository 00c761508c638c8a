"""`bench calibrate`: a profile from runs; `bench calibrate attention`: measured attention calls."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import HERE, JSON, RUNS


class RunsOrCommand(click.Group):
    """A group whose `usual` command is meant where the first word is no command: a run's directory."""

    usual = "from-runs"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with the command that was left out."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.usual, *args]
        return super().parse_args(ctx, args)


@click.group(cls=RunsOrCommand, subcommand_metavar="RUN… | host RUN | attention …")
def calibrate() -> None:
    """What steps cost on this machine, measured.

    bench calibrate RUN… --out FILE.toml fits step costs to the step logs of runs (bench calibrate from-runs --help).
    """


@calibrate.command(name="from-runs")
@click.argument("dirs", nargs=-1, required=True, metavar="RUN…", type=RUNS)
@click.option("--out", required=True, type=HERE, help="The profile file to write, FILE.toml.")
@click.option("--kv-tokens", type=click.IntRange(16, 10**9), help="KV-cache capacity.  [default: the runs' own]")
@click.option("--label", help="What the profile calls the machine.  [default: its GPU's or its own]")
@JSON
def from_runs(dirs: tuple[Path, ...], out: Path, kv_tokens: int | None, label: str | None, as_json: bool) -> None:
    """Fit step costs to the step logs of runs (or folders of runs) and write a profile that --gpu takes."""
    import orjson

    from harness.calibrate.constants import calibrate as calibrate_runs
    from harness.calibrate.profile import document, report, write_profile
    from harness.runs.run import runs_of

    constants = calibrate_runs(runs_of(dirs), kv_tokens)
    write_profile(constants, out, label)
    if as_json:
        click.echo(orjson.dumps(document(constants)))
        return
    for line in report(constants):
        click.echo(line)
    click.echo(
        f"written: {out} (bench run --engine simulated --gpu {out if out.is_absolute() else f'./{out}'} "
        f"--model {constants.origin.model})"
    )


@calibrate.command()
@click.argument("run", metavar="RUN", type=RUNS)
@click.option("--cost-model", default="auto", metavar="MODEL", help="auto, roofline, kernels or kernels:PATH.")
def host(run: Path, cost_model: str) -> None:
    """Find the host's time in a step (t0, and h a decode) on one real run, as --host takes it.

    Several loads tell the two apart better than one: see bench validate --fit host for the errors that are left.
    """
    from harness.core.host import Host
    from harness.reproduce.measured_rows import read_measured_run
    from harness.reproduce.prediction import predict

    found = predict(read_measured_run(run), cost_model, Host(), "host")
    click.echo(f"--host t0={found.host.step_s * 1e3:g}ms,h={found.host.decode_s * 1e6:g}us")
    click.echo(f"fitted with {found.model} on {run}, which this cannot be checked on", err=True)


def _sizes(_: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """Two whole numbers or more, smallest first; a usage error otherwise."""
    if text is None:
        return None
    try:
        found = tuple(sorted({int(one) for one in text.split(",")}))
    except ValueError:
        found = ()
    least = 0 if option.name == "before" else 1
    if len(found) < 2 or found[0] < least or found[-1] > 1 << 20:
        raise click.BadParameter(f"{text!r}: give two sizes or more from {least} to {1 << 20:,}, such as 256,1024")
    return found


@calibrate.command()
@click.option("--model", required=True, help="Whose heads: a name of `bench gpus`, an id of the hub, or a config.json.")
@click.option("--out", required=True, type=HERE, help="The table to write or go on with, FILE.csv.")
@click.option("--gpu", help="cpu, or the GPU here whose tables the pure calls are compared with.")
@click.option("--tp", type=click.IntRange(1, 64), default=1, help="GPUs that share the model: heads of one of them.")
@click.option("--engine-python", help="A Python with vLLM.  [default: bench's own]")
@click.option("--chunks", callback=_sizes, metavar="N,N…", help="New tokens of the prompt in a call.")
@click.option("--before", callback=_sizes, metavar="N,N…", help="Tokens of that prompt before them.")
@click.option("--decodes", callback=_sizes, metavar="N,N…", help="Requests that decode in a call.")
@click.option("--contexts", callback=_sizes, metavar="N,N…", help="Tokens of context of each.")
def attention(
    model: str, out: Path, gpu: str | None, tp: int, engine_python: str | None, **axes: tuple[int, ...] | None
) -> None:
    """Measure attention calls of prompts and decodes with vLLM's own backend: a table for --cost-model kernels:FILE.

    A call that holds both decides exclusive batching against mixed, and no table that comes with bench has one.
    """
    from dataclasses import replace

    from harness.engines.serving.attention_calls import GRIDS, Heads, measure_calls
    from harness.engines.serving.environments import engine_python as python_of
    from harness.engines.serving.environments import examine
    from harness.profiles.attention_check import checked, heads_of

    query_heads, kv_heads, head_size = heads_of(model, tp)
    environment = examine(python_of(engine_python, gpu == "cpu"))
    sizes = replace(GRIDS[environment.kind], **{name: given for name, given in axes.items() if given})
    heads = Heads(query_heads, kv_heads, head_size)
    about = measure_calls(environment, heads, sizes, out, lambda line: click.echo(line, err=True))
    click.echo(f"written: {out}, and {out.with_suffix('.json').name}: {about['backend']} of vLLM {about['vllm']}")
    for line in checked(out, gpu, model, tp):
        click.echo(line)
    if environment.kind != "cpu":
        click.echo(f"bench run --engine simulated --gpu {gpu or 'GPU'} --model {model} --cost-model kernels:{out} …")
