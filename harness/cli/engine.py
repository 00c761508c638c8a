"""`bench engine`: what real vLLM needs on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import HERE


@click.group(name="engine")
def engines() -> None:
    """Make and list what real vLLM needs: Python environments, a small model to try it on."""


@engines.command()
@click.argument("kind", type=click.Choice(["cpu", "cuda"]))
@click.option("--dir", "directory", type=HERE, help="Where.  [default: in bench's cache]")
def install(kind: str, directory: Path | None) -> None:
    """Make a Python environment with a pinned vLLM in it, and check that it can be imported."""
    from harness.engines.serving.environments import install as install_engine

    install_engine(kind, directory, lambda line: click.echo(line, err=True))


@engines.command(name="tiny-model")
@click.argument("directory", type=HERE)
def tiny_model(directory: Path) -> None:
    """Make a small random model with a tokenizer, to try real vLLM on a CPU."""
    from harness.engines.serving.tiny_model import FLAGS, make_tiny_model

    made = make_tiny_model(directory)
    click.echo(f"{directory}: {'made' if made else 'already there'}; serve it with", err=True)
    click.echo(f"  bench run --engine vllm --gpu cpu --model {directory} --engine-args '{FLAGS}' …", err=True)


@engines.command(name="list")
@click.option("--python", "kind", type=click.Choice(["cpu", "cuda"]), help="Print this one's Python and nothing else.")
def list_engines(kind: str | None) -> None:
    """List the engine environments that are installed."""
    from harness.engines.serving.environments import engine_lines, engine_python

    if kind is not None:
        click.echo(engine_python(None, kind == "cpu"))
        return
    for line in engine_lines():
        click.echo(line)
