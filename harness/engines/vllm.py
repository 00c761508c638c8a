"""Stock vLLM, started cold for one run with our scheduler in it, driven over HTTP, and stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import __version__
from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.drive.endpoint import Endpoint
from harness.engines.base import Ended, Progress, Status, Stopped, policy_class, profile_file
from harness.engines.client import Client
from harness.engines.endpoint import EndpointEngine
from harness.engines.serving.command import SCHEDULER, Plugin, command, environment, shown
from harness.engines.serving.environments import Environment, untested
from harness.engines.serving.failures import last_lines, tail
from harness.engines.serving.gpu_state import GpuState
from harness.engines.serving.gpus import Card
from harness.engines.serving.other_load import OtherLoad
from harness.engines.serving.probe import Served
from harness.engines.serving.read_back import other_than_asked, read_back, server_settings
from harness.engines.serving.scraper import samples_of
from harness.engines.serving.server import Server, free_port, plugin_path
from harness.profiles.files import load_gpu
from harness.profiles.pair import load_pair
from harness.runs.step_log import ENGINE_LOG, STEP_LOG, unfinished
from harness.runs.writer import RunWriter
from harness.simulate.limits import notes_on_too_long
from policies.catalog import VLLM_OWN, read_policy
from policies.core import Policy, PolicyError, StepCosts
from policies.own.file import PolicyFile
from policies.own.load import make_any
from workloads.core.stream import Stream
from workloads.core.trace import Trace

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
    """One run of a real vLLM, ready to go; raises UserError for what the user can mend.

    `profile` is the file that the step costs of the GPU stand in, where they are no profile of the project's.
    """

    kind = "measured"

    def __init__(
        self,
        spec: RunSpec,
        stream: Stream,
        deployment: Deployment,
        client: Client,
        profile: str | None = None,
        policy_file: PolicyFile | None = None,
    ) -> None:
        self.spec = spec
        self.deployment = deployment
        self.profile = profile
        self.policy_file = policy_file
        self.costs, self._cost_note = costs_of(profile or spec.gpu, spec.model, stream.trace, spec.token_budget)
        self.own_scheduler = read_policy(spec.policy)[0] not in VLLM_OWN
        if self.own_scheduler:
            self._policy_class = policy_class(check_policy(spec, self.costs, policy_file))
        check_model(spec.model)
        env = deployment.environment
        self.driving = EndpointEngine(
            spec,
            stream,
            Endpoint(_NOWHERE),
            client,
            f"measured: vLLM {env.version} ({env.kind}), started for each run",
            served=Served(spec.model, owner="vllm"),
        )
        # What this version cannot do is known before anything starts.
        command(spec, env.python, spec.model, 1, self._plugin(Path(STEP_LOG)), env.flags)

    @property
    def notes(self) -> list[str]:
        """What is measured, and what the engine's version and policy mean for it."""
        notes = [*self.driving.notes, *notes_on_too_long(self.driving.stream.trace, self.spec.max_model_len)]
        warning = untested(self.deployment.environment)
        if warning is not None:
            notes.append(warning)
        if self.own_scheduler and needs_costs(self.spec, self.policy_file):
            notes.append(f"{self.spec.policy} is told the step costs of {self._cost_note}")
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
            **(self._policy_class if self.policy_file is not None else {}),
            "policy_constants": self.costs and dataclasses.asdict(self.costs),
            "gpus": [dataclasses.asdict(card) for card in self.deployment.cards],
            "driver": f"schedbench {__version__}",
            "processes": self.driving.client.processes,
            **profile_file(self.profile),
        }

    def replay(self, writer: RunWriter, progress: Progress, stopped: Stopped) -> Ended:
        """Starts a server, drives the stream, stops the server; its log, its settings and its steps stay with the run.

        UserError where it does not start for a reason that the user can mend.
        """
        port, step_log = free_port(), (writer.partial / STEP_LOG).absolute()
        words, env = self._command(port, step_log), environment(plugin_path(), os.environ)
        writer.learn({"engine_command": words, "engine_environment": shown(env)})
        with Server(words, env, writer.partial / ENGINE_LOG, port) as server:
            if not _wait(server, self.deployment.ready_timeout_s, progress, stopped):
                if stopped():
                    return Ended("interrupted", "interrupted by the user while the engine started")
                return _not_started(server, self.spec.policy, writer.path / ENGINE_LOG)
            settings = server_settings(server.endpoint, step_log if self.own_scheduler else None)
            writer.learn(read_back(settings))
            other = other_than_asked(settings, self.spec, self.deployment.environment.version, self.own_scheduler)
            if other is not None:
                return Ended("failed", other)
            return self._drive(server, step_log, writer, progress, stopped)

    def _command(self, port: int, step_log: Path) -> list[str]:
        env, cpu = self.deployment.environment, self.deployment.cpu
        return command(self.spec, env.python, _place(self.spec.model), port, self._plugin(step_log), env.flags, cpu)

    def _drive(self, server: Server, step_log: Path, writer: RunWriter, progress: Progress, stopped: Stopped) -> Ended:
        """Drives the stream over a server that is ready; `failed` where the engine fails under it."""
        self.driving.endpoint = Endpoint(server.endpoint.url, chat=self.driving.client.api == "chat")
        other_load = OtherLoad(server.pid)
        # Without a card there is nothing to ask, and nothing to say of it.
        state = GpuState(writer.partial) if self.deployment.cards else None
        try:
            with state or contextlib.nullcontext():
                ended = self.driving.replay(writer, progress, lambda: stopped() or server.broken)
        except UserError:
            # Its warm-up fails where the engine dies under it.
            fault = server.fault()
            if fault is None:
                raise
            return Ended("failed", f"the engine failed in the warm-up: {fault.line}")
        machine: dict[str, Any] = {"elsewhere": other_load.share()}
        if state is not None:
            machine["gpus"] = state.observed
            ended = dataclasses.replace(ended, notes=(*ended.notes, *state.notes))
        fault = None if stopped() else server.fault()
        if fault is not None:
            ended = dataclasses.replace(ended, status="failed", reason=f"the engine failed: {fault.line}")
        elif self.own_scheduler and not _log_ends(step_log):
            ended = dataclasses.replace(ended, notes=(*ended.notes, f"{STEP_LOG} may lack the last steps"))
        observed = ended.observed | self._prefix_cache(writer.partial) | {"machine": machine}
        return dataclasses.replace(ended, observed=observed)

    def _plugin(self, step_log: Path) -> Plugin | None:
        if not self.own_scheduler:
            return None
        spec = self.spec
        return Plugin(spec.policy, self.costs, step_log, spec.policy_sha256, spec.slo.get("ttft_s"))

    def _prefix_cache(self, directory: Path) -> dict[str, Any]:
        """Share of the prompts' tokens that the engine found in its prefix cache, beside the share declared."""
        try:
            start, end = (
                samples_of((directory / f"metrics-{when}.txt").read_text("utf-8", "replace"))
                for when in ("start", "end")
            )
        except OSError:
            return {}
        queries, hits = (_increase(start, end, f"vllm:prefix_cache_{what}_total") for what in ("queries", "hits"))
        if not 0 <= hits <= queries:
            return {}  # a counter that was set back tells nothing
        # What a workload's own content shares is found as far as it has not been evicted: no number is due then.
        stream = self.driving.stream
        shares = stream.think_ns is not None or stream.trace.blocks is not None
        declared = self.spec.prefix_caching or (None if shares and self.spec.prefix_caching is not None else 0.0)
        return {
            "prefix_cache": {
                "declared": declared,
                "observed": hits / queries if queries else 0.0,
                "queries_tokens": queries,
                "hits_tokens": hits,
            }
        }


def _increase(start: dict[str, float], end: dict[str, float], counter: str) -> float:
    """How much a counter of the server's metrics grew, over all its labels."""
    return sum(value - start.get(key, 0.0) for key, value in end.items() if key.startswith(counter))


def costs_of(gpu: str, model: str, trace: Trace, token_budget: int) -> tuple[StepCosts | None, str]:
    """The step costs that policies are given, of the GPU's profile for this model, and how they are known."""
    names = dict.fromkeys((model, os.path.basename(os.path.normpath(model))))
    for name in names:
        try:
            fit = load_gpu(gpu).fits.get(name)
            if fit is not None:
                return fit.costs, f"{gpu} / {name}: {fit.basis}"
            pair = load_pair(gpu, name)
            costs = pair.policy_constants(trace.mean_prompt_tokens, trace.mean_output_tokens, token_budget)
            return costs, pair.describe()
        except UserError:
            # Nobody has measured this pair and its data sheets are not known: policies that need no costs still run.
            continue
    return None, "unknown"


def needs_costs(spec: RunSpec, policy_file: PolicyFile | None = None) -> bool:
    """Whether a policy that is otherwise in order cannot be made without step costs."""
    try:
        make_any(*read_policy(spec.policy), spec.slots, None, policy_file)
    except PolicyError:
        return True
    return False


def check_policy(spec: RunSpec, costs: StepCosts | None, policy_file: PolicyFile | None = None) -> Policy:
    """The policy as the engine would make it; PolicyError or UserError where it would refuse it."""
    any_costs = costs or StepCosts(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0)
    policy = make_any(*read_policy(spec.policy), spec.slots, any_costs, policy_file)
    if costs is None and needs_costs(spec, policy_file):
        raise UserError(
            f"policy {spec.policy}: no step costs are known of {spec.model} on {spec.gpu}: run v1 or eb:k=… there, "
            "make a profile of that run with `bench calibrate`, and give it as --gpu FILE.toml"
        )
    return policy


def check_model(model: str) -> None:
    """UserError where a model given as a directory is none."""
    place = Path(_place(model))
    if place.is_dir():
        if not (place / "config.json").is_file():
            raise UserError(f"--model {model}: a directory without config.json: name the model's own")
    elif place.is_absolute() or model.startswith("."):
        raise UserError(f"--model {model}: no such directory: correct it, or give a Hugging Face id")


def _place(model: str) -> str:
    """A model as the engine is told it: a directory by its absolute path, since the engine runs elsewhere."""
    given = os.path.expanduser(model)
    return os.path.abspath(given) if os.path.isdir(given) else given


def _wait(server: Server, timeout_s: float, progress: Progress, stopped: Stopped) -> bool:
    """Waits until the server answers, and shows how long it has; whether it does."""
    return server.wait_until_ready(
        timeout_s, stopped, lambda seconds: progress(Status(0, 0.0, 0, doing=f"starting vLLM, {seconds:.0f} s"))
    )


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


def _not_started(server: Server, policy: str, log: Path) -> Ended:
    """UserError where the user can mend it; a failed run with the log's last lines else."""
    fault = server.fault()
    assert fault is not None
    line = f"vLLM did not start for {policy}: {fault.line}"
    if fault.mend:
        raise UserError(f"{line} (its log: {log})")
    return Ended("failed", line, tuple(f"{ENGINE_LOG}: {text}" for text in last_lines(tail(server.log))))
