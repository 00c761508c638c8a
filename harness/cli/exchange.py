"""`bench import` and `bench export`: results of other tools in, ours out."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import HERE, RUNS
from harness.core.errors import UserError

_IN = ("vllm", "aiperf", "genai-perf", "guidellm", "inference-perf", "llm-d")
_OUT = ("vllm", "llm-d")


@click.command(name="import")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=HERE)
@click.option("--format", "form", type=click.Choice(_IN), help="Which tool wrote it.  [default: by its content]")
@click.option("--gpu", default="unknown", help="A label for what it ran on.")
@click.option("--policy", default="external", help="A label for how it was scheduled.")
@click.option("--workload", default="not told", help="A label for what was asked.")
@click.option("--model", default="", help="The model, where the file does not tell it.")
@click.option("--out", type=HERE, default=Path("runs"), help="Where run directories go.")
def import_results(
    files: tuple[Path, ...], form: str | None, gpu: str, policy: str, workload: str, model: str, out: Path
) -> None:
    """Bring results of other benchmarks in as runs of kind `reported`, under their own definitions.

    Read are `vllm bench serve --save-result`, aiperf and genai-perf (their JSON), guidellm, inference-perf (a stage or
    all) and llm-d-benchmark's report. They are never ranked with runs of ours.
    """
    from harness.published.imports import Labels, import_runs

    labels = Labels(gpu, policy, workload, model)
    for path in files:
        for directory in import_runs(path, out, labels, form):
            click.echo(str(directory))


@click.command(name="export")
@click.argument("run", type=RUNS)
@click.option("--to", "form", required=True, type=click.Choice(_OUT), help="Whose schema.")
@click.option("--output", type=HERE, help="The file.  [default: standard output]")
def export_run(run: Path, form: str, output: Path | None) -> None:
    """Write a run of ours as a result of `vllm bench serve --save-detailed`, or as a report of llm-d-benchmark (JSON).

    Every figure is made again from the run's tables by that tool's own definitions.
    """
    from harness.published.exports import EXPORTS, as_text
    from harness.runs.run import load_run

    text = as_text(EXPORTS[form](load_run(run)))
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{output}: is there already, and never overwritten: give another --output") from None
    click.echo(str(output))
