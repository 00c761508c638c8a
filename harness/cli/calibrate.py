"""`bench calibrate`: a profile from runs."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import JSON


@click.command()
@click.argument("dirs", nargs=-1, required=True, metavar="RUN…", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The profile file to write, FILE.toml.")
@click.option("--kv-tokens", type=click.IntRange(16, 10**9), help="KV-cache capacity.  [default: the runs' own]")
@click.option("--label", help="What the profile calls the machine.  [default: its GPU's or its own]")
@JSON
def calibrate(dirs: tuple[Path, ...], out: Path, kv_tokens: int | None, label: str | None, as_json: bool) -> None:
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
