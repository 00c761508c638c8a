"""What each engine needs before the first run: looked for, asked, started; then the runs and what makes their engines.

A table, engine by engine: `bench run` starts one of them and knows no other. What only servers need is imported where
it is used, so that a run in virtual time does not wait for it.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.core.text import short, some
from harness.engines.base import Engine
from harness.engines.simulated import Simulated
from harness.engines.tokenstep import TokenStep
from harness.session.ask import Asked, asked_of, check_sharing
from harness.session.one_run import MakeEngine, stream_of
from harness.session.options import RunOptions
from harness.session.policy_files import file_of
from harness.session.profile_files import ProfileFile
from harness.session.servers import servers_of
from policies.own.file import PolicyFile
from workloads.core.stream import Stream

if TYPE_CHECKING:
    from harness.engines.client import Client

READY_TIMEOUT_S = {"endpoint": 60.0, "vllm": 900.0}
# vLLM's attention on a CPU takes multiples of this.
CPU_BLOCK = 32


def _nothing(_: RunSpec) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Started:
    """An engine that is ready: the runs it is asked for, what makes it for each run, and what to say of the first."""

    asked: Asked
    make: MakeEngine
    warn: Callable[[RunSpec], list[str]] = _nothing


def start_simulated(options: RunOptions) -> Started:
    """The virtual-time engine, which needs nothing."""
    asked = asked_of(options, "simulated")
    return Started(asked, simulated_on(asked.profiles, asked.policy_files))


def start_tokenstep(options: RunOptions) -> Started:
    """The token-step model, which needs nothing."""
    return Started(asked_of(options, "tokenstep"), TokenStep)


def simulated_on(profiles: Mapping[str, ProfileFile], policies: Mapping[str, PolicyFile]) -> MakeEngine:
    """What makes the virtual-time engine for each run, of the project's profiles and policies and of these files."""

    def make(spec: RunSpec, stream: Stream) -> Engine:
        return Simulated(spec, stream, path_of(spec, profiles), file_of(spec, policies))

    return make


def path_of(spec: RunSpec, profiles: Mapping[str, ProfileFile]) -> str | None:
    """The profile file that a run's GPU stands in; None where the project has its profile, or nobody."""
    return profiles[spec.gpu].path if spec.profile else None


def start_emulated(options: RunOptions) -> Started:
    """A process with vLLM's scheduler in it, which all runs share; UserError where no Python with vLLM is there."""
    if options.engine_args or options.prefix_caching is not None:
        flag = "--engine-args" if options.engine_args else "--prefix-caching"
        raise UserError(f"{flag} goes with --engine vllm: the emulated one has no model and no prefix cache")
    from harness.engines.emulated import Emulated
    from harness.engines.serving.environments import examine
    from harness.engines.serving.scheduler_process import SchedulerProcess

    environment = examine(any_python(options.engine_python))
    process = SchedulerProcess(environment.python)
    atexit.register(process.close)

    asked = asked_of(options, "emulated")

    def make(spec: RunSpec, stream: Stream) -> Engine:
        policy_file = file_of(spec, asked.policy_files)
        return Emulated(spec, stream, environment, process, path_of(spec, asked.profiles), policy_file)

    return Started(asked, make)


def start_vllm(options: RunOptions) -> Started:
    """Real vLLM, a server for each run; UserError where the GPU or the environment is not here."""
    if len(options.gpu_names) != 1:
        raise UserError("--engine vllm runs on this machine: give one --gpu, its own (`--gpu cpu` without one)")
    from harness.engines.serving.command import read_engine_args
    from harness.engines.serving.environments import engine_python, examine
    from harness.engines.serving.gpus import cards, is_cpu, is_here
    from harness.engines.vllm import Deployment, Vllm

    (gpu,) = options.gpu_names
    cpu, gpus = is_cpu(gpu), cards()
    if not cpu and not is_here(gpu, gpus):
        here = ", ".join(sorted({card.name for card in gpus})) or "no GPU that nvidia-smi knows (--gpu cpu)"
        raise UserError(
            f"--engine vllm --gpu {gpu}: this machine has {here}: name its own and a --model that it can serve, "
            "or leave out --engine"
        )
    environment = examine(engine_python(options.engine_python, cpu))
    if cpu != (environment.kind == "cpu"):
        raise UserError(
            f"--engine-python {environment.python}: its vLLM is built for {environment.kind}, not for --gpu {gpu}: "
            f"`bench engine install {'cpu' if cpu else 'cuda'}`"
        )
    client = client_of(options)
    ready_s = options.ready_timeout_s or READY_TIMEOUT_S["vllm"]
    deployment = Deployment(environment, cpu, () if cpu else gpus, ready_s)
    options = replace(
        options,
        block_size=options.block_size or (CPU_BLOCK if cpu else None),
        engine_args=read_engine_args(options.engine_args),
    )
    asked = asked_of(options, "vllm", client.decides())

    def make(spec: RunSpec, stream: Stream) -> Engine:
        policy_file = file_of(spec, asked.policy_files)
        return Vllm(spec, stream, deployment, client, path_of(spec, asked.profiles), policy_file)

    return Started(asked, make)


def start_endpoint(options: RunOptions) -> Started:
    """Servers that run already, once each is ready and its model known; policies and GPU are labels for them."""
    from harness.drive.endpoint import Endpoint, headers_from, key_from
    from harness.engines.endpoint import EndpointEngine
    from harness.engines.serving.probe import Served, find_served, models_of, wait_until_ready
    from harness.mock.doctor import warnings
    from harness.session.driving_hosts import driving_hosts

    servers = {
        name: Endpoint(
            url=url,
            chat=options.api == "chat",
            key=key_from(options.key_env) if options.key_env else None,
            ca_file=options.ca_file,
            headers=headers_from(options.header_env),
            base=options.path,
        )
        for name, url in servers_of(options).items()
    }
    client = client_of(options)
    check_sharing(options, "endpoint")
    ready_s = READY_TIMEOUT_S["endpoint"] if options.ready_timeout_s is None else options.ready_timeout_s
    served: dict[str, Served] = {}
    for name, endpoint in servers.items():
        wait_until_ready(endpoint, ready_s)
        models = models_of(endpoint) if options.model is None else [find_served(endpoint, options.model)]
        if len(models) > 1:
            told = some([one.name for one in models])
            raise UserError(f"--url {endpoint.url}: serves {told}: choose one with --model")
        (served[name],) = models
    names = {one.name for one in served.values()}
    if len(names) > 1:
        told = ", ".join(f"{servers[arm].url} serves {short(one.name)}" for arm, one in served.items())
        raise UserError(f"{told}: arms differ in the server alone: serve one model on all, under one name")

    hosts = driving_hosts(options)

    def make(spec: RunSpec, stream: Stream) -> Engine:
        return EndpointEngine(spec, stream, servers[spec.policy], client, served=served[spec.policy], hosts=hosts)

    def warn(spec: RunSpec) -> list[str]:
        return warnings(*planned_load(spec, client.processes if hosts is None else hosts.count))

    options = replace(
        options,
        model=names.pop(),
        gpus=options.gpus or ("unknown",),
        policies=tuple(servers),
    )
    return Started(asked_of(options, "endpoint", client.decides()), make, warn)


START: dict[str, Callable[[RunOptions], Started]] = {
    "simulated": start_simulated,
    "tokenstep": start_tokenstep,
    "emulated": start_emulated,
    "vllm": start_vllm,
    "endpoint": start_endpoint,
}


def client_of(options: RunOptions) -> Client:
    """How the options ask for a server to be driven."""
    from harness.engines.client import Client, read_form

    form = read_form(options.length_field, options.fields, options.no_fields)
    return Client(
        api=options.api,
        prompts="text" if options.api == "chat" and options.prompts == "ids" else options.prompts,
        ignore_eos=options.ignore_eos and "ignore_eos" not in form.left_out,
        timeout_s=options.timeout_s,
        first_token_timeout_s=options.first_token_timeout_s,
        retries_429=options.retries_429,
        processes=options.processes,
        warmup=options.warmup,
        vocabulary=options.vocabulary,
        tokenizer=options.tokenizer,
        form=form,
        accept=options.accept,
    )


def planned_load(spec: RunSpec, processes: int) -> tuple[int | None, float | None]:
    """What one driving process would carry: requests in flight of a closed loop, tokens/s of an open one."""
    stream = stream_of(spec)
    if stream.due_ns is None:
        return -(-min(stream.concurrency or 0, len(stream.trace)) // processes), None
    seconds = max(float(stream.due_ns[-1]) / 1e9, 1e-9)
    return None, float(stream.trace.output_tokens.sum()) / seconds / processes


def any_python(given: str | None) -> Path:
    """The Python given, else one that `bench engine install` made: without a model either kind will do."""
    from harness.engines.serving.environments import engine_python, installed

    if given or not (there := installed()):
        try:
            return engine_python(given, cpu=True)
        except UserError:
            raise UserError(
                "--engine emulated needs a Python with vLLM: make one with `bench engine install cpu`, or give "
                "--engine-python"
            ) from None
    return there.get("cpu") or next(iter(there.values()))
