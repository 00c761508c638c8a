"""`bench validate`: a real run, predicted by a cost model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.options import JSON, RUNS


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN…", type=RUNS)
@click.option("--gpu", help="What it ran on: a GPU of `bench gpus` or a profile file.  [default: the run's own]")
@click.option("--model", help="The model served.  [default: the run's own]")
@click.option("--tp", type=click.IntRange(1, 64), help="GPUs that share the model.  [default: the run's own, or 1]")
@click.option("--policy", help="Its scheduler.  [default: the run's own, or v1]")
@click.option("--slots", type=click.IntRange(1, 10**9), help="max_num_seqs.  [default: the run's own, or 256]")
@click.option(
    "--token-budget", type=click.IntRange(1, 10**9), help="max_num_batched_tokens.  [default: the run's own, or 2048]"
)
@click.option(
    "--kv-tokens", type=click.IntRange(16, 10**9), help="KV capacity.  [default: the run's, or the profile's]"
)
@click.option("--max-model-len", type=click.IntRange(2), help="Longest request, tokens.  [default: the run's own]")
@click.option("--concurrency", type=click.IntRange(1, 10**9), help="It was a closed loop of so many in flight.")
@click.option(
    "--cost-model",
    "cost_models",
    multiple=True,
    metavar="MODEL[,MODEL…]",
    help="auto, linear, roofline, kernels, kernels:PATH.  [default: auto]",
)
@click.option("--host", default="", metavar="t0=S,h=S", help="The host's time a step and a decode.")
@click.option("--fit", type=click.Choice(["host", "t0"]), help="Fit t0 and h, or t0 alone, on the run, and say so.")
@JSON
def validate(
    runs: tuple[Path, ...],
    cost_models: tuple[str, ...],
    host: str,
    fit: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Replay a real run in virtual time and show measured, predicted and the error.

    RUN is a run directory of ours, or another tool's file with a row a request: arrival, prompt and output tokens,
    first and last token (JSON lines or CSV; times in seconds of one clock).
    """
    import orjson

    from harness.core.console import plain_console
    from harness.core.host import read_host
    from harness.reproduce.measured_rows import read_measured_run, told
    from harness.reproduce.prediction import predict
    from harness.reproduce.prediction_text import prediction_document, prediction_table
    from harness.runs.run import runs_of

    names = [name for text in cost_models or ("auto",) for name in text.split(",")]
    paths = [one for path in runs for one in (runs_of([path]) if path.is_dir() else [path])]
    measured = [told(read_measured_run(path), **given) for path in paths]
    predictions = [predict(run, name, read_host(host), fit or "") for run in measured for name in names]
    if as_json:
        click.echo(orjson.dumps({"predictions": prediction_document(predictions)}))
        return
    console = plain_console()
    for prediction in predictions:
        console.print(prediction_table(prediction))
