"""`bench run`: one command for every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.commands.conditions import FAIL_ON, REQUIRE_VERDICT, check_comparisons, check_verdicts
from harness.commands.options import ALPHA, JSON, FiniteRange
from harness.errors import Interrupted, UserError


@click.command()
@click.option("--gpu", "gpus", multiple=True, metavar="G[,G…]", help="GPU profile; `bench gpus` lists them.")
@click.option("--policy", "policies", multiple=True, metavar="P[,P…]", help="`bench policies` lists them.")
@click.option("--workload", "workloads", multiple=True, metavar="W", help="`bench workloads` lists them.")
@click.option("--model", help="The model served.  [default: Qwen/Qwen3-8B; the server's own with --url]")
@click.option(
    "--engine", default="auto", metavar="ENGINE", help="auto, simulated, emulated, tokenstep, vllm or endpoint."
)
@click.option("--concurrency", type=click.IntRange(1, 10**9), help="Closed loop: requests in flight.  [default: 2048]")
@click.option("--rate", type=float, help="Open loop: requests per second.")
@click.option(
    "--arrival",
    metavar="A",
    help="poisson, constant, gamma:cv=2, trace:scale=1, ramp:…, phases:…, closed-phases:…, offline",
)
@click.option(
    "--requests", type=click.IntRange(1, 20_000_000), help="Requests a run.  [default: 4000, or all of a shorter file]"
)
@click.option("--slots", type=click.IntRange(1, 10**9), default=1024, help="N, the most requests that run at once.")
@click.option("--token-budget", type=click.IntRange(1, 10**9), default=14336, help="B, the most tokens a step.")
@click.option("--kv-tokens", type=click.IntRange(1, 10**9), help="KV-cache capacity.  [default: from the profile]")
@click.option("--block-size", type=click.IntRange(1, 4096), help="Tokens a KV block.  [default: 16; vllm on a CPU: 32]")
@click.option("--max-model-len", type=click.IntRange(2), default=40960, help="Longest prompt plus output, tokens.")
@click.option("--watermark", type=FiniteRange(0, 0.5), default=0.0, help="Share of KV kept free at admission.")
@click.option(
    "--prefix-caching",
    type=FiniteRange(0, 1),
    is_flag=False,
    flag_value=0.0,
    metavar="[=SHARE]",
    help="Keep the prefix cache on; the share of prompt tokens that should hit it.",
)
@click.option("--cost-model", default="auto", metavar="MODEL", help="auto, linear, roofline or tokenstep:….")
@click.option("--repeat", type=click.IntRange(1, 1000), default=1, help="Repeats, each with the next seed.")
@click.option("--seed", type=click.IntRange(0, 2**53), default=0, help="Seed of the first repeat.")
@click.option("--slo", metavar="METRIC=S,…", help="Limits for goodput, such as ttft_s=1,tpot_s=0.05.")
@ALPHA
@click.option("--max-duration", type=FiniteRange(0, min_open=True), help="Seconds after which nothing is sent.")
@click.option(
    "--lengths",
    default="none",
    metavar="L",
    help="What policies know of outputs: none, oracle, noisy:sigma=0.3, interval:sigma=0.3, trace.",
)
@click.option("--url", help="Endpoint: an OpenAI-compatible server, such as http://127.0.0.1:8000.")
@click.option("--api", type=click.Choice(["completions", "chat"]), default="completions", help="Endpoint: which API.")
@click.option(
    "--prompts", type=click.Choice(["ids", "text", "dataset"]), default="ids", help="Endpoint: what prompts are."
)
@click.option("--tokenizer", default="", help="Endpoint: counts text prompts.  [default: the model's]")
@click.option("--vocabulary", type=click.IntRange(256), help="Endpoint: token ids below this.  [default: tokenizer's]")
@click.option("--key-env", metavar="VAR", help="Endpoint: the environment variable that holds the API key.")
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="Endpoint: the TLS authority to trust.")
@click.option("--sessions", is_flag=True, help="A conversation's next turn waits for its last answer.")
@click.option("--think-time", type=FiniteRange(0), default=0.0, help="With --sessions: seconds before the next turn.")
@click.option("--no-ignore-eos", is_flag=True, help="Endpoint: let the model end its answers.")
@click.option("--timeout", type=FiniteRange(0, min_open=True), default=3600.0, help="Endpoint: s a request.")
@click.option("--first-token-timeout", type=FiniteRange(0, min_open=True), help="Endpoint: s to the first token.")
@click.option("--retry-429", type=click.IntRange(0, 1000), default=0, help="Endpoint: times a 429 is tried again.")
@click.option("--ready-timeout", type=FiniteRange(0), help="s to wait for a server.  [default: 60; vllm: 900]")
@click.option("--warmup", type=click.IntRange(0), default=4, help="Endpoint: requests before the run, not counted.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, help="Endpoint: driving processes.")
@click.option("--engine-python", envvar="BENCH_ENGINE_PYTHON", help="vllm, emulated: the Python that has vLLM.")
@click.option("--engine-args", default="", metavar="FLAGS", help="vllm: more of its own flags, the same in every arm.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs"), help="Where run directories go.")
@REQUIRE_VERDICT
@FAIL_ON
@JSON
def run(as_json: bool, out: Path, require_verdict: str | None, conditions: tuple[str, ...], **options: Any) -> None:
    """Replay a workload under one or more policies, paired and interleaved, and say which is better.

    Real vLLM is started for each run where the named GPU and an engine environment are here (`bench engine`), the
    virtual-time engine replays it elsewhere; --engine emulated lets vLLM's own scheduler decide in virtual time,
    without a model or a GPU; with --url a server that already runs is driven, and --policy and
    --gpu are labels for it.
    """
    import orjson

    from harness.document import runs_document
    from harness.fail_on import parse_fail_on
    from harness.session import RunSession, asked_of, engine_of, real_engine

    engine = engine_of(options)
    if engine == "endpoint":
        from harness.against import against

        session = against(options, out, quiet=as_json)
    elif engine == "vllm":
        from harness.deploy import deploy

        session = deploy(options, out, quiet=as_json)
    elif engine == "emulated":
        from harness.emulate import emulate

        session = emulate(options, out, quiet=as_json)
    else:
        session = RunSession(asked_of(options | {"engine": engine}), out, quiet=as_json)
    if options["engine"] == "auto" and engine != "endpoint":
        session.why = real_engine(options)[1]
    tests = [parse_fail_on(text) for text in conditions]
    if tests and len(session.policies) < 2:
        raise UserError("--fail-on needs two policies to compare: name them, or compare two runs with bench compare")
    runs = session.go()
    comparisons = session.comparisons(runs)
    if as_json:
        compared = {"comparisons": [comparison.to_dict() for comparison in comparisons]}
        click.echo(orjson.dumps(runs_document(runs) | compared))
    else:
        session.report(runs, comparisons)
    if session.interrupted:
        raise Interrupted
    if session.failure is not None:
        raise session.failure
    check_verdicts(runs, require_verdict)
    check_comparisons(tests, comparisons)
