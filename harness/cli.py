"""The command line: each command reads its options and calls one function."""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import __version__
from harness.errors import USER_ERRORS, Interrupted, RunFailed

if TYPE_CHECKING:
    from harness.compare import Comparison
    from harness.fail_on import FailOn
    from harness.runs import Run
    from workloads.trace import Trace

EXIT_NOT_MET, EXIT_USER, EXIT_FAILED, EXIT_INTERRUPTED = 1, 2, 3, 130
CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100}


class FiniteRange(click.FloatRange):
    """A range of numbers that are numbers: nan and inf pass click's own."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; fails where it is none or out of range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


LEVELS = click.Choice(["VALID", "DEGRADED"])
ALPHA = click.option("--alpha", type=FiniteRange(0), help="Gap in tokens that fairness is held against.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")


class NotMet(Exception):
    """A condition that the user set for success was not met; exit code 1."""


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="bench")
def bench() -> None:
    """Does scheduler policy A really beat policy B, on this GPU, for this traffic, and by how much?"""


@bench.command()
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
@click.option("--require-verdict", type=LEVELS, help="Exit with 1 where a run's verdict is worse.")
@click.option("--fail-on", "conditions", multiple=True, metavar="COND", help="Exit 1 on this: output_throughput<-5%.")
@JSON
def run(as_json: bool, out: Path, require_verdict: str | None, conditions: tuple[str, ...], **options: Any) -> None:
    """Replay a workload under one or more policies, paired and interleaved, and say which is better.

    Real vLLM is started for each run where the named GPU and an engine environment are here (`bench engine`), the
    virtual-time engine replays it elsewhere; --engine emulated lets vLLM's own scheduler decide in virtual time,
    without a model or a GPU; with --url a server that already runs is driven, and --policy and
    --gpu are labels for it.
    """
    from harness.errors import UserError
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
        _print_json(runs, comparisons)
    else:
        session.report(runs, comparisons)
    if session.interrupted:
        raise Interrupted
    if session.failure is not None:
        raise session.failure
    _require(runs, require_verdict)
    _fail_on(tests, comparisons)


@bench.command()
@JSON
def doctor(as_json: bool) -> None:
    """Measure for ten seconds what this machine can drive as a client; `bench run --url` warns beyond it."""
    import orjson

    from harness.doctor import examine, lines, remember

    found = examine()
    remember(found)
    if as_json:
        click.echo(orjson.dumps(found))
        return
    for line in lines(found):
        click.echo(line)


@bench.command(name="mock-server")
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
@click.option("--log", type=click.Path(path_type=Path), help="CSV with the server's own times, a row a request.")
@click.option("--model", default="mock", help="The name it serves.")
@click.option("--tokenizer", default="", help="Counts text prompts; without one a token is four bytes.")
@click.option("--slots", type=int, default=0, help="Requests that run at once, the rest waits; 0: no limit.")
@click.option("--eos-after", type=int, default=0, help="Answers end here of themselves; 0: never.")
@click.option("--max-model-len", type=int, default=131_072, help="Longer requests are refused.")
@click.option("--kv-tokens", type=int, default=1_000_000, help="What the KV usage in /metrics is a share of.")
def mock_server(**options: Any) -> None:
    """Serve OpenAI-style answers at an exact pace, and log what was really done."""
    from harness.mock_server import MockOptions, serve

    serve(MockOptions(**options))


@bench.command()
@click.argument("dirs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--baseline", metavar="POLICY", help="The policy that is A.  [default: the first arm]")
@click.option("--allow", default="", metavar="NAME,…", help="What may differ besides the policy: model,gpu,trace,…")
@click.option("--fail-on", "conditions", multiple=True, metavar="COND", help="Exit 1 on this: output_throughput<-5%.")
@click.option("--percentiles", is_flag=True, help="Show p50, p90, p95, KV footprints and time-weighted fairness too.")
@ALPHA
@JSON
def compare(
    dirs: tuple[Path, ...],
    baseline: str | None,
    allow: str,
    conditions: tuple[str, ...],
    percentiles: bool,
    alpha: float | None,
    as_json: bool,
) -> None:
    """Compare run directories: the first arm is A, each other arm B.

    A directory may be one run or hold several; the repeats of one policy make an arm. Of one directory that
    holds them all, v1 is A where it is there.
    """
    import orjson

    from harness.comparable import arms, with_baseline, without_copies
    from harness.compare import compare_runs
    from harness.console import plain_console
    from harness.document import compare_table
    from harness.errors import UserError
    from harness.fail_on import parse_fail_on
    from harness.runs import find_runs, load_run

    tests = [parse_fail_on(text) for text in conditions]
    paths = [path for given in dirs for path in (find_runs(given) if given.is_dir() else [given]) or [given]]
    runs, same = without_copies([load_run(path) for path in dict.fromkeys(paths)])
    if same:
        click.echo(f"{same} virtual runs are exact copies of later ones: left out", err=True)
    first, *others = with_baseline(arms(runs), baseline, alone=len(dirs) == 1)
    if not others:
        raise UserError(
            f"{', '.join(map(str, dirs))}: only one arm ({first[0].spec.policy}): name runs of two policies to compare"
        )
    allowed = frozenset(name.strip() for name in allow.split(",") if name.strip())
    comparisons = [compare_runs(first, other, allowed, alpha) for other in others]
    if as_json:
        documents = [comparison.to_dict() for comparison in comparisons]
        # Two arms are the usual case and make one document; more make a list of them.
        click.echo(orjson.dumps(documents[0] if len(documents) == 1 else {"comparisons": documents}))
    else:
        console = plain_console()
        for comparison in comparisons:
            console.print(compare_table(comparison, percentiles))
    _fail_on(tests, comparisons)


@bench.command()
@click.argument("dirs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--require-verdict", type=LEVELS, help="Exit with 1 where a run's verdict is worse.")
@ALPHA
@JSON
def show(dirs: tuple[Path, ...], require_verdict: str | None, alpha: float | None, as_json: bool) -> None:
    """Show runs: what they were, how far to trust them, and every metric.

    With --alpha the share of violations and the excess are taken from the step log again; no file changes.
    """
    from harness.console import plain_console
    from harness.document import at_alpha, show_table
    from harness.runs import find_runs, load_run

    paths = [path for given in dirs for path in (find_runs(given) if given.is_dir() else [given]) or [given]]
    runs = [load_run(path) for path in paths]
    if alpha is not None:
        runs = [at_alpha(one, alpha) for one in runs]
    if as_json:
        _print_json(runs)
    else:
        console = plain_console()
        for one in runs:
            console.print(show_table(one))
            click.echo(str(one.path))
    _require(runs, require_verdict)


@bench.command()
@click.argument("dirs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--price-in", metavar="P", help="Price per prompt token, or per million as 0.2/M.")
@click.option("--price-out", metavar="P", help="Price per output token, or per million as 0.6/M.")
@click.option("--gpu-hour", metavar="P", help="Price of an hour of all GPUs that serve the run.")
@click.option("--prices", type=click.Choice(["profile"]), help="Prices that are not given: from the profiles.")
@click.option("--currency", metavar="CUR", help="What the prices are in.  [default: the profile's, or USD]")
@click.option("--rho0", type=FiniteRange(0, 1e9), default=0.002, help="Token-step: ρ0, per token produced.")
@click.option("--tau", type=FiniteRange(0, 1e9), default=1e-6, help="Token-step: τ, per token held or charged a step.")
@click.option("--c", "c", type=FiniteRange(0, 1e9), default=5e-4, help="Token-step: c, per step with work.")
@click.option("--footprint", type=click.Choice(["decode", "kv"]), default="decode", help="Token-step: what r counts.")
@click.option("--baseline", metavar="POLICY", default="ljf", help="What break-even is held against.")
@ALPHA
@JSON
def profit(dirs: tuple[Path, ...], alpha: float | None, as_json: bool, **options: Any) -> None:
    """Profit of runs from their records, in token-steps and in money, with break-even and curves.

    Nothing runs again and no file changes. The defaults of --rho0, --tau and --c are behind the tables of
    arXiv 2608.02244.
    """
    import orjson

    from harness.comparable import without_copies
    from harness.console import plain_console
    from harness.measure.profit import TokenStep
    from harness.prices import given_prices, price_lines, prices_of_runs
    from harness.profit import profit as profit_of
    from harness.profit import profit_document, profit_table
    from harness.runs import find_runs, load_run

    given = given_prices(options)
    paths = [path for one in dirs for path in (find_runs(one) if one.is_dir() else [one]) or [one]]
    runs, _ = without_copies([load_run(path) for path in dict.fromkeys(paths)])
    prices, sources = prices_of_runs(given, [(one.spec.gpu, one.spec.model) for one in runs])
    constants = TokenStep(options["rho0"], options["tau"], options["c"])
    found = profit_of(runs, constants, prices, options["footprint"], alpha, options["baseline"])
    if as_json:
        click.echo(orjson.dumps(profit_document(found, sources)))
        return
    console = plain_console()
    console.print(profit_table(found))
    for line in price_lines(sources):
        console.print(line)


@bench.command(name="list")
@click.argument("directory", type=click.Path(path_type=Path), default=Path("runs"))
@JSON
def list_runs(directory: Path, as_json: bool) -> None:
    """List the runs in a directory, and those that did not finish."""
    from harness.document import list_lines
    from harness.errors import UserError
    from harness.runs import find_partials, find_runs, load_runs

    runs, problems = load_runs(find_runs(directory))
    if as_json:
        _print_json(runs)
    else:
        for line in list_lines(runs) or [f"{directory}: no runs yet"]:
            click.echo(line)
        for partial in find_partials(directory):
            click.echo(f"not finished: {partial} (`bench recover` makes it readable)", err=True)
    if problems:
        raise UserError("\nbench: ".join(problems))


@bench.command()
@click.argument("dirs", nargs=-1, required=True, type=click.Path(path_type=Path))
def recover(dirs: tuple[Path, ...]) -> None:
    """Finish what an interrupted or killed run left behind: tables, summary and verdict from what it recorded."""
    from harness.runs import load_run
    from harness.store import recover as recover_run

    for given in dirs:
        path, changed = recover_run(given)
        found = load_run(path)
        what = "recovered" if changed else "nothing to recover, the tables are whole"
        click.echo(
            f"{path}: {found.status}, {found.manifest.get('counts', {}).get('requests', 0)} requests recorded; {what}"
        )


@bench.command()
@click.argument("dirs", nargs=-1, required=True, metavar="RUN…", type=click.Path(path_type=Path))
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), help="Where published runs lie.")
def publish(dirs: tuple[Path, ...], results: Path) -> None:
    """Copy runs (or folders of runs) to the published ones, without this machine's own places in them."""
    from harness.publish import AlreadyPublished
    from harness.publish import publish as publish_run
    from harness.runs import find_runs

    paths = [path for given in dirs for path in (find_runs(given) if given.is_dir() else [given]) or [given]]
    for path in paths:
        try:
            one = publish_run(path, results)
        except AlreadyPublished as error:
            if path in dirs:
                raise
            # A folder holds more from one time to the next.
            click.echo(str(error))
            continue
        left = f"; left out: {', '.join(one.left_out)}" if one.left_out else ""
        click.echo(f"{one.path}: places masked: {one.masked}{left}")


@bench.command()
@click.argument("dirs", nargs=-1, required=True, metavar="RUN…", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The profile file to write, FILE.toml.")
@click.option("--kv-tokens", type=click.IntRange(16, 10**9), help="KV-cache capacity.  [default: the runs' own]")
@click.option("--label", help="What the profile calls the machine.  [default: its GPU's or its own]")
@JSON
def calibrate(dirs: tuple[Path, ...], out: Path, kv_tokens: int | None, label: str | None, as_json: bool) -> None:
    """Fit step costs to the step logs of runs (or folders of runs) and write a profile that --gpu takes."""
    import orjson

    from harness.calibrate import calibrate as calibrate_runs
    from harness.calibrate_profile import document, lines, write_profile
    from harness.runs import find_runs

    paths = [path for given in dirs for path in (find_runs(given) if given.is_dir() else [given]) or [given]]
    found = calibrate_runs(paths, kv_tokens)
    write_profile(found, out, label)
    if as_json:
        click.echo(orjson.dumps(document(found)))
        return
    for line in lines(found):
        click.echo(line)
    click.echo(
        f"written: {out} (bench run --engine simulated --gpu {out if out.is_absolute() else f'./{out}'} "
        f"--model {found.origin.model})"
    )


@bench.group()
def trace() -> None:
    """Look at workloads, convert and draw them, without running them."""


MODEL = click.option("--model", default="Qwen/Qwen3-8B", help="The model whose tokenizer counts, and of --gpu.")
SEED = click.option("--seed", type=click.IntRange(0), default=0, help="Of what is drawn.")
ROWS = click.option("--requests", type=click.IntRange(1, 20_000_000), help="Rows taken.  [default: all]")


def _trace(workload: str, requests: int | None, seed: int, model: str) -> Trace:
    from workloads.catalog import load_workload
    from workloads.options import split

    name, given = split(workload)
    return load_workload(name, given, requests=requests, seed=seed, model=model)


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
@JSON
def info(
    workload: str, requests: int | None, seed: int, model: str, gpu: str | None, as_json: bool, **setting: Any
) -> None:
    """Rows, lengths, times, hazard and source of a workload, and what theory predicts for it on a GPU."""
    import orjson

    from harness.console import plain_console
    from harness.trace_info import info_table, trace_info

    found = _trace(workload, requests, seed, model)
    document = trace_info(found)
    if gpu is not None:
        from harness.profiles import load_pair
        from harness.trace_theory import Setting, predict

        delta = setting.pop("delta")
        document["prediction"] = predict(found, load_pair(gpu, model), Setting(**setting, delta_s=delta))
    if as_json:
        click.echo(orjson.dumps(document))
    else:
        plain_console().print(info_table(document))


@trace.command(name="import")
@click.argument("workload")
@click.argument("out", type=click.Path(path_type=Path))
@MODEL
@ROWS
@SEED
@click.option("--overwrite", is_flag=True, help="Replace OUT where it is there already.")
def import_trace(workload: str, out: Path, requests: int | None, seed: int, model: str, overwrite: bool) -> None:
    """Write a workload as OUT.jsonl or OUT.parquet, with a header that keeps where its rows come from."""
    from workloads.writing import write_trace

    found = _trace(workload, requests, seed, model)
    write_trace(found, out, overwrite=overwrite)
    click.echo(f"{out}: {len(found):,} rows, digest {found.digest}; replay it with --workload file:{out}")


@trace.command()
@click.argument("workload")
@click.option("--out", type=click.Path(path_type=Path), default=Path("trace.html"), help="The page.")
@MODEL
@ROWS
@SEED
def plot(workload: str, out: Path, requests: int | None, seed: int, model: str) -> None:
    """Draw lengths, hazard, rate and r over time, phases marked, as one HTML file that needs no network."""
    from harness.trace_plot import plot_trace

    plot_trace(_trace(workload, requests, seed, model), out)
    click.echo(str(out))


@bench.group()
def reproduce() -> None:
    """Make published results again, beside what was published."""


@reproduce.command(name="isjl-tables")
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, help="Samples of lengths to average over.")
@click.option("--reference", type=click.Path(path_type=Path), help="The published tables.  [default: our own copy]")
@JSON
def isjl_tables(seeds: int, reference: Path | None, as_json: bool) -> None:
    """Tables 1 to 3 of arXiv 2608.02244 (LJF and ISJL) on the token-step model."""
    import orjson

    from harness.reproduce.isjl_published import published
    from harness.reproduce.isjl_tables import tables_again
    from harness.reproduce.isjl_text import tables_text

    printed = published(reference)
    again = tables_again(printed, seeds)
    if as_json:
        tables = {name: [row.to_dict() for row in rows] for name, rows in again.items()}
        click.echo(orjson.dumps({"source": printed.source, "seeds": seeds, "tables": tables}))
    else:
        click.echo(tables_text(again, printed.source, seeds))


@reproduce.command(name="competitive-ratio")
@click.option("--longest", type=int, default=8, help="o_1, tokens; α takes every value below it.")
@click.option("--requests", type=int, default=5, help="Most requests of an instance.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the worst cases as CSV.")
@JSON
def competitive(longest: int, requests: int, as_csv: bool, as_json: bool) -> None:
    """The competitive ratio that arXiv 2608.02244 states, beside the worst of all small instances."""
    import orjson

    from harness.reproduce.competitive import ratio_csv, ratio_document, ratio_text, worst_cases

    found = worst_cases(longest, requests)
    if as_json:
        click.echo(orjson.dumps(ratio_document(found)))
    else:
        click.echo(ratio_csv(found) if as_csv else ratio_text(found, longest, requests), nl=not as_csv)


@bench.command(name="policies")
@JSON
def list_policies(as_json: bool) -> None:
    """List the policies with their options and where they come from."""
    from harness.catalogs import policies_document
    from policies.catalog import POLICIES
    from policies.offline import OFFLINE

    _print_catalog(policies_document(POLICIES, OFFLINE), "policies", as_json)


@bench.command(name="workloads")
@JSON
def list_workloads(as_json: bool) -> None:
    """List the workloads with their options and where they come from."""
    from harness.catalogs import workloads_document
    from workloads.catalog import CATALOG

    _print_catalog(workloads_document(CATALOG), "workloads", as_json)


@bench.command(name="gpus")
@JSON
def list_gpus(as_json: bool) -> None:
    """List the GPU and model pairs, and how the cost of their steps is known."""
    from harness.catalogs import pairs_document

    _print_catalog(pairs_document(), "pairs", as_json)


@bench.group()
def site() -> None:
    """Build, look at and check the leaderboard."""


@site.command(name="build")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), help="Where published runs lie.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("site/public"), help="Where the site goes.")
@click.option("--cache", type=click.Path(path_type=Path), help="What builds keep.  [default: OUT.cache]")
def build_site(results: Path, out: Path, cache: Path | None) -> None:
    """Build the static site from run directories; only what changed is written."""
    from harness.pages.build import build

    built = build(results, out, cache)
    left = f", {built.problems} directories left out (problems.html says why)" if built.problems else ""
    click.echo(f"{out}/index.html: {built.runs} runs, {built.written} files written{left}")
    if built.not_kept:
        click.echo(f"the next build starts anew, since nothing could be kept: {built.not_kept}", err=True)


@site.command(name="check")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), help="Where published runs lie.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
def check_site(results: Path, paths: tuple[Path, ...]) -> None:
    """Check run directories as a pull request brings them: all under --results, or those under PATH."""
    from harness.pages.check import WHAT, check

    found = check(results, paths)
    for one in found.problems:
        click.echo(f"{one.where}: {one.why}")
    if found.problems:
        places = len({one.where for one in found.problems})
        raise NotMet(f"problems: {len(found.problems)}, in {places} of {found.runs} runs checked")
    click.echo(f"{found.runs} runs checked, no problem: {WHAT}")


@site.command(name="serve")
@click.option("--dir", "directory", type=click.Path(path_type=Path), default=Path("site/public"), help="The site.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="0 takes any that is free.")
@click.option("--host", default="127.0.0.1", help="Who can see it: 127.0.0.1 only this machine.")
def serve_site(directory: Path, port: int, host: str) -> None:
    """Show the site that `bench site build` made in a browser, until Ctrl-C."""
    from harness.pages.serve import serve

    serve(directory, host, port, lambda url: click.echo(f"{url} (Ctrl-C ends it)"))


@bench.group(name="engine")
def engines() -> None:
    """Make and list what real vLLM needs: Python environments, a small model to try it on."""


@engines.command()
@click.argument("kind", type=click.Choice(["cpu", "cuda"]))
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Where.  [default: in bench's cache]")
def install(kind: str, directory: Path | None) -> None:
    """Make a Python environment with a pinned vLLM in it, and check that it can be imported."""
    from harness.engines.environments import install as install_engine

    install_engine(kind, directory, lambda line: click.echo(line, err=True))


@engines.command(name="tiny-model")
@click.argument("directory", type=click.Path(path_type=Path))
def tiny_model(directory: Path) -> None:
    """Make a small random model with a tokenizer, to try real vLLM on a CPU."""
    from harness.engines.tiny_model import FLAGS, make_tiny_model

    made = make_tiny_model(directory)
    click.echo(f"{directory}: {'made' if made else 'already there'}; serve it with", err=True)
    click.echo(f"  bench run --engine vllm --gpu cpu --model {directory} --engine-args '{FLAGS}' …", err=True)


@engines.command(name="list")
@click.option("--python", "kind", type=click.Choice(["cpu", "cuda"]), help="Print this one's Python and nothing else.")
def list_engines(kind: str | None) -> None:
    """List the engine environments that are installed."""
    from harness.engines.environments import engine_lines, engine_python

    if kind is not None:
        click.echo(engine_python(None, kind == "cpu"))
        return
    for line in engine_lines():
        click.echo(line)


def _fail_on(tests: list[FailOn], comparisons: list[Comparison]) -> None:
    failures = [failure for test in tests for comparison in comparisons if (failure := test.failure(comparison))]
    if failures:
        raise NotMet("\n".join(failures))


def _print_json(runs: list[Run], comparisons: list[Comparison] | None = None) -> None:
    import orjson

    from harness.document import runs_document

    document = runs_document(runs)
    if comparisons is not None:
        document["comparisons"] = [comparison.to_dict() for comparison in comparisons]
    click.echo(orjson.dumps(document))


def _print_catalog(entries: list[dict[str, Any]], name: str, as_json: bool) -> None:
    import orjson

    from harness.catalogs import catalog_table
    from harness.console import plain_console

    if as_json:
        click.echo(orjson.dumps({name: entries}))
    else:
        plain_console().print(catalog_table(entries))


def _require(runs: list[Run], level: str | None) -> None:
    from harness.measure.verdict import LEVELS as ORDER

    if level is None:
        return
    worse = [one for one in runs if ORDER.index(one.level) > ORDER.index(level)]
    if worse:
        raise NotMet("\n".join(f"{one.path}: {one.level}, not {level}" for one in worse))


def main() -> None:
    """Runs the command line and exits with the contract's codes: 0, 1, 2, 3 or 130."""
    _usable_streams()
    sys.exit(_exit_code())


def _usable_streams() -> None:
    """Closed streams go nowhere; a character that the terminal cannot show is written as its code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - lives as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _exit_code() -> int:
    try:
        for argument in sys.argv:
            if not argument.isprintable():
                raise click.UsageError(f"{argument!a}: a name with control characters or not in UTF-8: rename it")
        bench(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        return _say(error.format_message(), EXIT_USER)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "bench"
        return _say(f"bench: {error.format_message()} (`{path} --help` lists the options)", EXIT_USER)
    except click.ClickException as error:
        return _say(f"bench: {error.format_message()}", EXIT_USER)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Interrupted as error:
        return _say(str(error), EXIT_INTERRUPTED) if str(error) else EXIT_INTERRUPTED
    except NotMet as error:
        return _say(str(error), EXIT_NOT_MET)
    except USER_ERRORS as error:
        return _say(f"bench: {error}", EXIT_USER)
    except RunFailed as error:
        return _say(f"bench: {error}", EXIT_FAILED)
    except (BrokenPipeError, SystemExit):
        # The reader (`head`, a pager) has had enough (rich turns that into SystemExit); the rest has nowhere to go.
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        return _say(f"bench: {error.filename or 'standard output'}: {error.strerror or error}", EXIT_USER)
    except Exception as error:
        if os.environ.get("BENCH_DEBUG"):
            raise
        kind = type(error).__name__
        return _say(
            f"bench: a fault of bench itself ({kind}: {error}); please report it with what BENCH_DEBUG=1 adds",
            EXIT_FAILED,
        )
    return 0


def _say(line: str, code: int) -> int:
    with contextlib.suppress(OSError):
        click.echo(line, err=True)
    return code


def _drop_output() -> None:
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
