"""`bench run`: one command for every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.conditions import FAIL_ON, REQUIRE_VERDICT, check_arms, check_comparisons, check_verdicts
from harness.cli.options import ALPHA, HERE, JSON, WORDS, FiniteRange, rules_of, several
from harness.core.errors import Interrupted, UserError
from harness.core.text import shown
from harness.session.options import CHOICES, LIMITS, RunOptions

DEFAULTS = RunOptions()


def _whole(field: str) -> click.IntRange:
    low, high, _ = LIMITS[field]
    return click.IntRange(None if low is None else int(low), None if high is None else int(high))


def _number(field: str) -> FiniteRange:
    low, high, above = LIMITS[field]
    return FiniteRange(low, high, min_open=above)


def _no_address(_: click.Context, __: click.Parameter, host: str) -> str:
    """Elsewhere --host is where a server listens."""
    if host and "=" not in host:
        raise UserError(f"--host {shown(host)} is no time: here a server is named by --url http://HOST:PORT")
    return host


@click.command()
@click.option("--gpu", "gpus", multiple=True, metavar="G[,G…]", help="GPU profile; `bench gpus` lists them.")
@click.option("--policy", "policies", multiple=True, metavar="P[,P…]", help="`bench policies` lists them.")
@click.option("--workload", "workloads", multiple=True, metavar="W[,W…]", help="`bench workloads` lists them.")
@click.option(
    "--model",
    help="The model served: a name of `bench gpus`, a config.json, or an id on huggingface.co.  "
    "[default: Qwen/Qwen3-8B; the server's own with --url]",
)
@click.option(
    "--engine",
    default=DEFAULTS.engine,
    metavar="ENGINE",
    help="auto, simulated, emulated, tokenstep, vllm or endpoint.",
)
@click.option(
    "--concurrency",
    "concurrencies",
    callback=several(_whole("concurrencies")),
    metavar="N[,N…]",
    help="Closed loop: requests in flight; of several, a curve.  [default: 2048]",
)
@click.option(
    "--rate",
    "rates",
    callback=several(click.FLOAT),
    metavar="R[,R…]",
    help="Open loop: requests per second; of several, a curve.",
)
@click.option(
    "--arrival",
    metavar="A",
    help="poisson, constant, gamma:cv=2, trace:scale=1, ramp:…, phases:…, closed-phases:…, offline",
)
@click.option(
    "--requests",
    type=_whole("requests"),
    help="Requests a run.  [default: 4000, or ten waves]",
)
@click.option("--tp", type=_whole("tp"), default=DEFAULTS.tp, help="GPUs that share the model (tensor parallelism).")
@click.option(
    "--replicas",
    type=_whole("replicas"),
    default=DEFAULTS.replicas,
    help="Simulated: engines behind one router, each with slots and KV of its own.",
)
@click.option("--router", type=click.Choice(CHOICES["router"]), help="With --replicas.  [default: least-loaded]")
@click.option(
    "--slots",
    callback=several(_whole("slots")),
    default="1024",
    metavar="N[,N…]",
    help="N, the most requests that run at once; each of several is run.",
)
@click.option(
    "--token-budget", type=_whole("token_budget"), default=DEFAULTS.token_budget, help="B, the most tokens a step."
)
@click.option("--kv-tokens", type=_whole("kv_tokens"), help="KV-cache capacity.  [default: from the profile]")
@click.option("--block-size", type=_whole("block_size"), help="Tokens a KV block.  [default: 16; vllm on a CPU: 32]")
@click.option(
    "--max-model-len",
    type=_whole("max_model_len"),
    default=DEFAULTS.max_model_len,
    help="Longest prompt plus output, tokens.",
)
@click.option(
    "--watermark", type=_number("watermark"), default=DEFAULTS.watermark, help="Share of KV kept free at admission."
)
@click.option(
    "--prefix-caching",
    type=_number("prefix_caching"),
    is_flag=False,
    flag_value=0.0,
    metavar="[=SHARE]",
    help="Keep the prefix cache on; the share of prompt tokens that should hit it.",
)
@click.option(
    "--cost-model", default=DEFAULTS.cost_model, metavar="MODEL", help="auto, linear, roofline, kernels or tokenstep:…."
)
@click.option("--alone", is_flag=True, help="Do not hold simulated runs against the other cost models.")
@click.option(
    "--host",
    default=DEFAULTS.host,
    metavar="t0=S,h=S",
    callback=_no_address,
    help="The host's time a step and a decode: t0=1ms,h=5us.",
)
@click.option(
    "--policy-costs",
    default=DEFAULTS.policy_costs,
    metavar="MODEL",
    help="The cost model whose constants policies are told.  [default: the run's own]",
)
@click.option(
    "--repeat",
    type=_whole("repeat"),
    help="Repeats, each with the next seed.  [default: 5 where simulated policies are compared, else 1]",
)
@click.option("--aa", type=_whole("aa"), default=DEFAULTS.aa, help="Real engines: more runs of the first policy (A/A).")
@click.option("--until", metavar="ci=SHARE", help="Repeat until the headline intervals are within: ci=3%.")
@WORDS
@click.option("--seed", type=_whole("seed"), default=DEFAULTS.seed, help="Seed of the first repeat.")
@click.option("--slo", metavar="METRIC=S,…", help="Limits for goodput, such as ttft_s=1,tpot_s=0.05.")
@ALPHA
@click.option(
    "--max-duration", "max_duration_s", type=_number("max_duration_s"), help="Seconds after which nothing is sent."
)
@click.option(
    "--lengths",
    default=DEFAULTS.lengths,
    metavar="L",
    help="What policies know of outputs: none, oracle, noisy:sigma=0.3, interval:sigma=0.3, trace.",
)
@click.option(
    "--url",
    "urls",
    multiple=True,
    metavar="URL",
    help="Endpoint: an OpenAI-compatible server, such as http://127.0.0.1:8000; of two, A against B.",
)
@click.option("--arm", "arms", multiple=True, metavar="NAME=URL", help="Endpoint: a server and its name; give several.")
@click.option("--api", type=click.Choice(CHOICES["api"]), default=DEFAULTS.api, help="Endpoint: which API.")
@click.option(
    "--prompts",
    type=click.Choice(CHOICES["prompts"]),
    default=DEFAULTS.prompts,
    help="Endpoint: what prompts are.",
)
@click.option("--tokenizer", default=DEFAULTS.tokenizer, help="Endpoint: counts text prompts.  [default: the model's]")
@click.option("--vocabulary", type=_whole("vocabulary"), help="Endpoint: token ids below this.  [default: tokenizer's]")
@click.option("--key-env", metavar="VAR", help="Endpoint: the environment variable that holds the API key.")
@click.option(
    "--header-env",
    multiple=True,
    metavar="NAME=VAR",
    help="Endpoint: a header whose value an environment variable holds, such as x-api-key=KEY.",
)
@click.option("--path", metavar="PATH", help="Endpoint: where its API lies.  [default: /v1, or the URL's own version]")
@click.option("--field", "fields", multiple=True, metavar="NAME=VALUE", help="Endpoint: a field of every body.")
@click.option("--no-field", "no_fields", multiple=True, metavar="NAME", help="Endpoint: a field that is left out.")
@click.option(
    "--length-field",
    default=DEFAULTS.length_field,
    metavar="NAME",
    help="Endpoint: the field for the output length.",
)
@click.option(
    "--accept",
    multiple=True,
    type=click.Choice(CHOICES["accept"]),
    help="Endpoint: what an answer may lack.",
)
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="Endpoint: the TLS authority to trust.")
@click.option("--sessions", is_flag=True, help="A conversation's next turn waits for its last answer.")
@click.option(
    "--think-time",
    "think_s",
    type=_number("think_s"),
    default=DEFAULTS.think_s,
    help="With --sessions: seconds before the next turn.",
)
@click.option(
    "--no-ignore-eos",
    "ignore_eos",
    is_flag=True,
    flag_value=False,
    default=True,
    show_default=False,
    help="Endpoint: let the model end its answers.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=_number("timeout_s"),
    default=DEFAULTS.timeout_s,
    help="Endpoint: s a request.",
)
@click.option(
    "--first-token-timeout",
    "first_token_timeout_s",
    type=_number("first_token_timeout_s"),
    help="Endpoint: s to the first token.",
)
@click.option(
    "--retry-429",
    "retries_429",
    type=_whole("retries_429"),
    default=DEFAULTS.retries_429,
    help="Endpoint: times a 429 is tried again.",
)
@click.option(
    "--ready-timeout",
    "ready_timeout_s",
    type=_number("ready_timeout_s"),
    help="s to wait for a server.  [default: 60; vllm: 900]",
)
@click.option(
    "--warmup", type=_whole("warmup"), default=DEFAULTS.warmup, help="Endpoint: requests before the run, not counted."
)
@click.option(
    "--processes",
    type=_whole("processes"),
    default=DEFAULTS.processes,
    help="Endpoint: driving processes, of each driver.",
)
@click.option("--drivers", type=_whole("drivers"), help="Endpoint: nodes of a Ray cluster that drive together.")
@click.option("--address", metavar="A", help="With --drivers: auto, HOST:PORT or ray://HOST:10001.  [default: auto]")
@click.option("--engine-python", envvar="BENCH_ENGINE_PYTHON", help="vllm, emulated: the Python that has vLLM.")
@click.option(
    "--engine-args",
    default=DEFAULTS.engine_args,
    metavar="FLAGS",
    help="vllm: more of its own flags, the same in every arm.",
)
@click.option("--out", type=HERE, default=Path("runs"), help="Where run directories go.")
@click.option("--again", is_flag=True, help="Run again what is finished in --out.")
@REQUIRE_VERDICT
@FAIL_ON
@JSON
def run(
    as_json: bool,
    out: Path,
    again: bool,
    require_verdict: str | None,
    conditions: tuple[str, ...],
    equivalent: str | None,
    **options: Any,
) -> None:
    """Replay a workload under one or more policies, paired and interleaved, and say which is better.

    Real vLLM is started for each run where the named GPU and an engine environment are here (`bench engine`), the
    virtual-time engine replays it elsewhere; --engine emulated lets vLLM's own scheduler decide in virtual time,
    without a model or a GPU; with --url a server that already runs is driven, and --policy and
    --gpu are labels for it. What is finished in --out is read and not run again, so that the same command goes on after
    any stop; a server of yours, which may be another today, is measured again.
    """
    import orjson

    from harness.report.curve import curves_of
    from harness.report.document import runs_document
    from harness.report.fail_on import parse_fail_on
    from harness.session.choose import choose
    from harness.session.repeats import repeat_plan
    from harness.session.session import RunSession
    from harness.session.start import START

    asked = RunOptions(**options)
    tests = [parse_fail_on(text) for text in conditions]
    plan = repeat_plan(asked, rules_of(asked.headline, equivalent))
    chosen = choose(asked)
    session = RunSession(START[chosen.engine](asked), out, quiet=as_json, why=chosen.why, plan=plan, again=again)
    if plan.until is not None and len(session.policies) < 2:
        raise UserError("--until needs two policies to compare: the width is that of their difference")
    if any(test.needs_two for test in tests) and len(session.policies) < 2:
        raise UserError("--fail-on needs two policies to compare: name them, or compare two runs with bench compare")
    runs = session.go()
    comparisons = session.comparisons(runs)
    if as_json:
        compared: dict[str, Any] = {"comparisons": [comparison.to_dict() for comparison in comparisons]}
        if curves := curves_of(runs):
            compared["curves"] = [curve.to_dict() for curve in curves]
        click.echo(orjson.dumps(runs_document(runs) | compared))
    else:
        session.report(runs, comparisons)
    if session.interrupted:
        raise Interrupted
    if session.failure is not None:
        raise session.failure
    check_verdicts(runs, require_verdict)
    check_comparisons(tests, comparisons)
    if len(session.policies) < 2:
        check_arms(tests, runs)
