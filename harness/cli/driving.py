"""What helps to drive a server: what this machine can drive, and a server to try it on."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.options import HERE, JSON, FiniteRange
from harness.core.errors import UserError


@click.command()
@click.option("--rate", type=FiniteRange(0, min_open=True), help="Requests per second: say how many drivers it takes.")
@click.option("--output-tokens", type=FiniteRange(1), help="With --rate: the mean length of an answer.")
@JSON
def doctor(rate: float | None, output_tokens: float | None, as_json: bool) -> None:
    """Measure for ten seconds what this machine can drive as a client; `bench run --url` warns beyond it."""
    import orjson

    from harness.mock.doctor import examine, needed, remember, report

    if (rate is None) != (output_tokens is None):
        raise UserError("--rate and --output-tokens go together: a rate in tokens decides how many drivers it takes")
    machine = examine()
    remember(machine)
    if rate is not None and output_tokens is not None:
        machine["needed"] = needed(machine, rate, output_tokens)
    if as_json:
        click.echo(orjson.dumps(machine))
        return
    for line in report(machine):
        click.echo(line)


@click.command(name="mock-server")
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=int, default=8000, help="Port; 0 takes a free one and prints it.")
@click.option("--ttft", "ttft_ms", type=float, default=50.0, help="Milliseconds to the first event.")
@click.option("--itl", "itl_ms", type=float, default=20.0, help="Milliseconds between events.")
@click.option("--jitter", type=float, default=0.0, help="Each request's times scaled within 1 ± this.")
@click.option("--seed", type=int, default=0, help="Seed of the jitter.")
@click.option("--tokens-per-chunk", type=int, default=1, help="Tokens in one event.")
@click.option("--role-early", is_flag=True, help="Chat: the role event comes at once.")
@click.option("--fail-every", type=int, default=0, help="Every Nth request fails; 0: none.")
@click.option("--fail-kind", default="500", help="500, 429, cut, errevent or mix.")
@click.option("--text", default=" the", help="What each token says.")
@click.option("--log", type=HERE, help="CSV with the server's own times, a row a request.")
@click.option("--model", default="mock", help="The name it serves.")
@click.option("--tokenizer", default="", help="Counts text prompts; without one a token is four bytes.")
@click.option("--slots", type=int, default=0, help="Requests that run at once, the rest waits; 0: no limit.")
@click.option("--eos-after", type=int, default=0, help="Answers end here of themselves; 0: never.")
@click.option("--max-model-len", type=int, default=131_072, help="Longer requests are refused.")
@click.option("--kv-tokens", type=int, default=1_000_000, help="What the KV usage in /metrics is a share of.")
def mock_server(**options: Any) -> None:
    """Serve OpenAI-style answers at an exact pace, and log what was really done."""
    from harness.mock.options import MockOptions
    from harness.mock.serve import serve

    serve(MockOptions(**options))
