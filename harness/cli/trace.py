"""`bench trace`: workloads without a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import HERE, output_format, print_rows

if TYPE_CHECKING:
    from workloads.core.trace import Trace

MODEL = click.option("--model", default="Qwen/Qwen3-8B", help="The model whose tokenizer counts, and of --gpu.")
SEED = click.option("--seed", type=click.IntRange(0), default=0, help="Of what is drawn.")
ROWS = click.option("--requests", type=click.IntRange(1, 20_000_000), help="Rows taken.  [default: all]")


@click.group()
def trace() -> None:
    """Look at workloads, convert and draw them, without running them."""


@trace.command()
@click.argument("workload")
@MODEL
@ROWS
@SEED
@click.option("--gpu", help="Predict for this GPU whether exclusive batching can win.")
@click.option("--concurrency", type=click.IntRange(1, 10**9), default=2048, help="With --gpu: requests in flight.")
@click.option("--slots", type=click.IntRange(1, 10**9), default=1024, help="With --gpu: N.")
@click.option("--token-budget", type=click.IntRange(1, 10**9), default=14336, help="With --gpu: B.")
@click.option("--delta", type=float, default=0.0, help="With --gpu: δ of EB+, s/token.")
@output_format
def info(
    workload: str, requests: int | None, seed: int, model: str, gpu: str | None, form: str, **setting: Any
) -> None:
    """Rows, lengths, times, hazard and source of a workload, and what theory predicts for it on a GPU."""
    import orjson

    from harness.core.console import plain_console
    from harness.report.flat import leaf_rows
    from harness.trace.info import info_table, trace_info

    rows = _trace(workload, requests, seed, model)
    document = trace_info(rows)
    if gpu is not None:
        from harness.profiles.pair import load_pair
        from harness.trace.theory import Setting, predict

        delta = setting.pop("delta")
        document["prediction"] = predict(rows, load_pair(gpu, model), Setting(**setting, delta_s=delta))
    if form == "json":
        click.echo(orjson.dumps(document))
    elif form != "table":
        print_rows(leaf_rows(document), form)
    else:
        plain_console().print(info_table(document))


@trace.command(name="import")
@click.argument("workload")
@click.argument("out", type=HERE)
@MODEL
@ROWS
@SEED
@click.option("--overwrite", is_flag=True, help="Replace OUT where it is there already.")
def import_trace(workload: str, out: Path, requests: int | None, seed: int, model: str, overwrite: bool) -> None:
    """Write a workload as OUT.jsonl or OUT.parquet, with a header that keeps where its rows come from."""
    from workloads.traces.writing import write_trace

    rows = _trace(workload, requests, seed, model)
    write_trace(rows, out, overwrite=overwrite)
    click.echo(f"{out}: {len(rows):,} rows, digest {rows.digest}; replay it with --workload file:{out}")


@trace.command()
@click.argument("workload")
@click.option("--out", type=HERE, default=Path("trace.html"), help="The page.")
@MODEL
@ROWS
@SEED
def plot(workload: str, out: Path, requests: int | None, seed: int, model: str) -> None:
    """Draw lengths, hazard, rate and r over time, phases marked, as one HTML file that needs no network."""
    from harness.trace.plot import plot_trace

    plot_trace(_trace(workload, requests, seed, model), out)
    click.echo(str(out))


def _trace(workload: str, requests: int | None, seed: int, model: str) -> Trace:
    from workloads.catalog import load_workload
    from workloads.core.options import split

    name, given = split(workload)
    return load_workload(name, given, requests=requests, seed=seed, model=model)
