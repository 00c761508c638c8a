"""Stock vLLM, started cold for one run with our scheduler in it, driven over HTTP, and stopped."""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import __version__
from harness.drive.endpoint import Endpoint
from harness.engine_log import ENGINE_LOG, STEP_LOG, unfinished
from harness.engines.base import Ended, Progress, Status, Stopped
from harness.engines.discover import samples_of
from harness.engines.endpoint import Client, EndpointEngine
from harness.engines.environments import Environment, untested
from harness.engines.gpus_here import Card
from harness.engines.vllm_causes import last_lines, tail
from harness.engines.vllm_command import SCHEDULER, Plugin, command, environment, shown
from harness.engines.vllm_server import Server, free_port, plugin_path, told_by
from harness.errors import UserError
from harness.plan import read_policy
from harness.profiles import load_gpu, load_pair
from harness.runspec import RunSpec
from harness.store import RunWriter
from policies.catalog import VLLM_OWN, make_policy
from policies.core import PolicyError
from policies.threshold import StepCosts
from workloads.arrivals import Stream
from workloads.trace import Trace

# Nothing listens there: the prompts are made before a server has a port.
_NOWHERE = "http://127.0.0.1:1"
# Longer than the scheduler takes to write its log out, by far.
_LOG_POLL_S = 0.2
_LOG_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where and how servers are started: the engine's environment, the machine, seconds to wait for readiness."""

    environment: Environment
    cpu: bool
    cards: tuple[Card, ...]
    ready_timeout_s: float


class Vllm:
    """One run of a real vLLM, ready to go; raises UserError for what the user can mend."""

    kind = "measured"

    def __init__(self, spec: RunSpec, stream: Stream, deployment: Deployment, client: Client) -> None:
        self.spec = spec
        self.deployment = deployment
        self.costs, self._cost_note = costs_of(spec.gpu, spec.model, stream.trace, spec.token_budget)
        self.own_scheduler = read_policy(spec.policy)[0] not in VLLM_OWN
        if self.own_scheduler:
            check_policy(spec, self.costs)
        check_model(spec.model)
        env = deployment.environment
        self.driving = EndpointEngine(
            spec, stream, Endpoint(_NOWHERE), client, f"measured: vLLM {env.version} ({env.kind}), started for each run"
        )
        # What this version cannot do is known before anything starts.
        command(spec, env.python, spec.model, 1, self._plugin(Path(STEP_LOG)), env.flags)

    @property
    def notes(self) -> list[str]:
        """What is measured, and what the engine's version and policy mean for it."""
        notes = list(self.driving.notes)
        if (line := untested(self.deployment.environment)) is not None:
            notes.append(line)
        if self.costs is not None and read_policy(spec_policy := self.spec.policy)[0] in ("eb", "ebplus"):
            notes.append(f"{spec_policy} is told the step costs of {self._cost_note}")
        if not self.own_scheduler:
            notes.append(f"{self.spec.policy}: vLLM's own scheduler, so there is no step log and no fairness")
        return notes

    @property
    def degraded(self) -> list[str]:
        """Nothing is known against it beforehand."""
        return []

    def provenance(self) -> dict[str, Any]:
        """The engine's environment and the machine; what the server says of itself joins when it has started."""
        env = self.deployment.environment
        return {
            "engine": "vllm",
            "engine_version": env.version,
            "engine_kind": env.kind,
            "engine_packages": env.packages,
            "scheduler_class": SCHEDULER if self.own_scheduler else "vLLM's own",
            "policy_constants": self.costs and dataclasses.asdict(self.costs),
            "gpus": [dataclasses.asdict(card) for card in self.deployment.cards],
            "driver": f"schedbench {__version__}",
            "processes": self.driving.client.processes,
        }

    def replay(self, writer: RunWriter, progress: Progress, stopped: Stopped) -> Ended:
        """Starts a server, drives the stream, stops the server; its log, its settings and its steps stay with the run.

        UserError where it does not start for a reason that the user can mend.
        """
        deployment, log = self.deployment, writer.partial / ENGINE_LOG
        port, step_log = free_port(), (writer.partial / STEP_LOG).absolute()
        words = command(
            self.spec,
            deployment.environment.python,
            _place(self.spec.model),
            port,
            self._plugin(step_log),
            deployment.environment.flags,
            deployment.cpu,
        )
        env = environment(plugin_path(), os.environ)
        writer.learn({"engine_command": words, "engine_environment": shown(env)})
        with Server(words, env, log, port) as server:

            def waits(seconds: float) -> None:
                progress(Status(0, 0.0, 0, doing=f"starting vLLM, {seconds:.0f} s"))

            if not server.wait_until_ready(deployment.ready_timeout_s, stopped, waits):
                if stopped():
                    return Ended("interrupted", "interrupted by the user while the engine started")
                return _not_started(server, self.spec.policy, writer.path / ENGINE_LOG)
            told = told_by(server.endpoint)
            if self.own_scheduler:
                told["steps"] = _header(step_log)
            writer.learn(read_back(told))
            if (fault_line := self._other_than_asked(told)) is not None:
                return Ended("failed", fault_line)
            self.driving.endpoint = Endpoint(server.endpoint.url, chat=self.driving.client.api == "chat")
            try:
                ended = self.driving.replay(writer, progress, lambda: stopped() or server.broken)
            except UserError:
                # Its warm-up fails where the engine dies under it.
                if (fault := server.fault()) is None:
                    raise
                return Ended("failed", f"the engine failed in the warm-up: {fault.line}")
            fault = None if stopped() else server.fault()
            if fault is None and self.own_scheduler and not _log_ends(step_log):
                ended = dataclasses.replace(ended, notes=(*ended.notes, f"{STEP_LOG} may lack the last steps"))
        if fault is not None:
            ended = dataclasses.replace(ended, status="failed", reason=f"the engine failed: {fault.line}")
        return dataclasses.replace(ended, observed=ended.observed | self._prefix_cache(writer.partial))

    def _plugin(self, step_log: Path) -> Plugin | None:
        return Plugin(self.spec.policy, self.costs, step_log) if self.own_scheduler else None

    def _other_than_asked(self, told: dict[str, Any]) -> str | None:
        """How the server differs from what was asked for; what it does not tell is not held against it."""
        spec, scheduler, cache, steps = (
            self.spec,
            told.get("scheduler", {}),
            told.get("cache", {}),
            told.get("steps", {}),
        )
        asked: list[tuple[str, Any, Any]] = [
            (
                "version",
                self.deployment.environment.version.partition("+")[0],
                told.get("version", "").partition("+")[0],
            ),
            ("max_num_seqs", spec.slots, scheduler.get("max_num_seqs")),
            ("max_num_batched_tokens", spec.token_budget, scheduler.get("max_num_batched_tokens")),
            ("scheduler_cls", SCHEDULER if self.own_scheduler else None, scheduler.get("scheduler_cls")),
            ("watermark", spec.watermark, scheduler.get("watermark")),
            ("enable_prefix_caching", spec.prefix_caching is not None, cache.get("enable_prefix_caching")),
            ("block_size", spec.block_size, cache.get("block_size")),
            ("max_model_len", spec.max_model_len, told.get("model", {}).get("max_model_len")),
        ]
        if spec.kv_tokens is not None:
            asked.append(("num_gpu_blocks", spec.kv_tokens // spec.block_size, cache.get("num_gpu_blocks")))
        if self.own_scheduler:
            # A server without our scheduler writes none: `unknown` is then what differs.
            asked.append(("policy", spec.policy, steps.get("policy", "unknown")))
            asked.append(("async scheduling in the step log", scheduler.get("async_scheduling"), steps.get("async")))
        for name, wanted, got in asked:
            if None not in (wanted, got) and got not in ("", wanted):
                return f"vLLM runs with {name} = {got} where {wanted} was asked for: see its {ENGINE_LOG}"
        return None

    def _prefix_cache(self, directory: Path) -> dict[str, Any]:
        """Share of the prompts' tokens that the engine found in its prefix cache, beside the share declared."""
        try:
            first, last = (
                samples_of((directory / f"metrics-{when}.txt").read_text("utf-8", "replace"))
                for when in ("start", "end")
            )
        except OSError:
            return {}
        queries, hits = (
            sum(last[key] - first.get(key, 0.0) for key in last if key.startswith(f"vllm:prefix_cache_{what}_total"))
            for what in ("queries", "hits")
        )
        declared = self.spec.prefix_caching or 0.0
        return {
            "prefix_cache": {
                "declared": declared,
                "observed": hits / queries if queries else 0.0,
                "queries_tokens": queries,
                "hits_tokens": hits,
            }
        }


def costs_of(gpu: str, model: str, trace: Trace, token_budget: int) -> tuple[StepCosts | None, str]:
    """The step costs that policies are given, of the GPU's profile for this model, and how they are known."""
    names = dict.fromkeys((model, os.path.basename(os.path.normpath(model))))
    for name in names:
        try:
            if (fit := load_gpu(gpu).fits.get(name)) is not None:
                return fit.costs, f"{gpu} / {name}: {fit.basis}"
            pair = load_pair(gpu, name)
            costs = pair.policy_constants(trace.mean_prompt_tokens, trace.mean_output_tokens, token_budget)
            return costs, pair.describe()
        except UserError:
            # Nobody has measured this pair and its data sheets are not known: policies that need no costs still run.
            continue
    return None, "unknown"


def check_policy(spec: RunSpec, costs: StepCosts | None) -> None:
    """PolicyError or UserError where the engine would refuse the policy."""
    try:
        make_policy(*read_policy(spec.policy), spec.slots, costs)
    except PolicyError as error:
        if costs is not None or "step costs" not in str(error):
            raise
        raise UserError(
            f"policy {spec.policy}: no step costs are known of {spec.model} on {spec.gpu}: run v1 or eb:k=… there, "
            "make a profile of that run with `bench calibrate`, and give it as --gpu FILE.toml"
        ) from None


def check_model(model: str) -> None:
    """UserError where a model given as a directory is none."""
    place = Path(_place(model))
    if place.is_dir():
        if not (place / "config.json").is_file():
            raise UserError(f"--model {model}: a directory without config.json: name the model's own")
    elif place.is_absolute() or model.startswith("."):
        raise UserError(f"--model {model}: no such directory: correct it, or give a Hugging Face id")


def read_back(told: dict[str, Any]) -> dict[str, Any]:
    """What a server says of itself as provenance: version, async mode, KV tokens, and the settings that matter."""
    scheduler, cache = told.get("scheduler", {}), told.get("cache", {})
    kept = {
        "async_scheduling": scheduler.get("async_scheduling"),
        "kv_cache_tokens": cache.get("kv_cache_size_tokens"),
        "engine_settings": {
            **{name: scheduler.get(name) for name in _SCHEDULER_SETTINGS},
            **{name: cache.get(name) for name in _CACHE_SETTINGS},
            "dtype": told.get("model", {}).get("dtype"),
        },
    }
    if "version" in told:
        kept["engine_version"] = told["version"]
    return kept


_SCHEDULER_SETTINGS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "scheduler_cls",
    "policy",
    "watermark",
    "prefill_schedule_interval",
    "scheduler_reserve_full_isl",
    "enable_chunked_prefill",
)
_CACHE_SETTINGS = ("block_size", "num_gpu_blocks", "enable_prefix_caching", "gpu_memory_utilization", "cache_dtype")


def _place(model: str) -> str:
    """A model as the engine is told it: a directory by its absolute path, since the engine runs elsewhere."""
    given = os.path.expanduser(model)
    return os.path.abspath(given) if os.path.isdir(given) else given


def _log_ends(step_log: Path) -> bool:
    """Waits until the step log tells of the end of every request; whether it does.

    It is written a moment after the client has its answer, and vLLM kills its engine right after asking it to end.
    """
    size, deadline = -1, time.monotonic() + _LOG_WAIT_S
    while time.monotonic() < deadline:
        before, size = size, step_log.stat().st_size
        if size == before and not unfinished(step_log):
            return True
        time.sleep(_LOG_POLL_S)
    return False


def _header(step_log: Path) -> dict[str, Any]:
    """What the scheduler's log says of itself; empty where there is none that can be read."""
    from harness.step_table import read_step_log

    try:
        return read_step_log(step_log, 0).header
    except UserError:
        return {}


def _not_started(server: Server, policy: str, log: Path) -> Ended:
    """UserError where the user can mend it; a failed run with the log's last lines else."""
    fault = server.fault()
    assert fault is not None
    line = f"vLLM did not start for {policy}: {fault.line}"
    if fault.mend:
        raise UserError(f"{line} (its log: {log})")
    return Ended("failed", line, tuple(f"{ENGINE_LOG}: {one}" for one in last_lines(tail(server.log))))
