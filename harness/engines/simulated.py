"""The virtual-time engine: the stream replayed by the batch loop against a cost model."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from harness import __version__
from harness.core.errors import UserError
from harness.core.host import Host, read_host
from harness.core.runspec import RunSpec
from harness.engines.base import Ended, Progress, Records, Status, Stopped, cut_short, policy_class, profile_file
from harness.engines.off_grid import OffGrid
from harness.engines.outlived import Outlived
from harness.engines.pools import pools_of, prompts_alone
from harness.engines.served import Served
from harness.profiles.cost import CostModel
from harness.profiles.kernels.model import Kernels
from harness.profiles.pair import Pair, load_pair
from harness.simulate.arrivals import NEVER, Arrivals
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits, notes_on_too_long, too_long
from harness.simulate.pools import Pools
from harness.simulate.prefix_cache import PrefixCache
from harness.simulate.replicas import Replicas
from harness.simulate.router import Desk, Router
from harness.simulate.rows import Rows, request_batch, step_batch
from policies.batching import V0_ENGINE
from policies.catalog import read_policy
from policies.core import Policy, PolicyFault, PolicyState, StepCosts
from policies.own.file import PolicyFile
from policies.own.load import make_any, stdout_aside
from workloads.core.stream import Stream
from workloads.lengths.hints import Hints, hints_of
from workloads.prompts.content import Content

# vLLM's first engine was bound by its host: 3.4 ms a step at 32 sequences (RFC 6913), about 130 µs a sequence (PR
# 8050), the GPU idle for 5 to 13 ms a step (RFC 6854). Good to ±20 points.
V0_HOST = Host(5e-3, 100e-6)


class Simulated:
    """One run of the virtual-time engine, ready to go; raises UserError for what the user can mend.

    `profile` is the file that the GPU's figures stand in, where they are no profile of the project's; `policy_file`
    is the user's file that the policy is in, where it is none of the catalog's.
    """

    kind = "simulated"

    def __init__(
        self, spec: RunSpec, stream: Stream, profile: str | None = None, policy_file: PolicyFile | None = None
    ) -> None:
        self.spec = spec
        self.stream = stream
        self.profile = profile
        self.policy_file = policy_file
        self.pair = load_pair(profile or spec.gpu, spec.model, spec.tp, spec.config)
        self.limits = limits_of(spec, self.pair)
        host = read_host(spec.host)
        # Arms compare by the costs that all of them are told: a policy that is another engine has its own host.
        self.told_cost = self.cost = self.pair.cost(spec.cost_model, host)
        if read_policy(spec.policy)[0] == V0_ENGINE:
            if self.cost.name == "linear":
                raise UserError(f"policy {V0_ENGINE}: linear step costs have a host's time within: use another model")
            self.cost = self.pair.cost(spec.cost_model, V0_HOST)
        trace = stream.trace
        means = (trace.mean_prompt_tokens, trace.mean_output_tokens)
        self.costs = self.pair.policy_constants(*means, spec.token_budget, spec.policy_costs or spec.cost_model, host)
        self.hints = hints_of(spec.lengths, trace, spec.seed)
        self.content: Content | None = None
        if spec.prefix_caching is not None:
            self.content = Content(trace, spec.block_size, spec.sessions)
        self.pools = pools_of(spec, self.pair)
        self.policy = self._make_policy()

    @property
    def notes(self) -> list[str]:
        """How the cost of a step is known."""
        notes = [
            f"simulated: {self.pair.describe(self.spec.cost_model)}",
            *self.pair.policy_notes(self.spec.cost_model),
        ]
        if self.pools is not None:
            notes.append(self.pools.described(self.spec))
        elif self.spec.replicas > 1:
            notes.append(
                f"{self.spec.replicas} replicas behind a router ({self.spec.router}): slots, token budget and KV cache "
                "are of each"
            )
        if self.cost is not self.told_cost:
            notes.append(
                f"{V0_ENGINE}: its host takes {V0_HOST.step_s * 1e3:g} ms a step and {V0_HOST.decode_s * 1e6:g} µs a "
                "decode, as vLLM's first engine did: good to ±20 points"
            )
        trace = self.stream.trace
        notes += notes_on_too_long(trace, self.limits.max_model_len, self.limits.cache_tokens)
        if self.content is not None:
            share = 100 * self.content.recurring_tokens() / int(trace.prompt_tokens.sum())
            notes.append(f"prefix cache on: {share:.1f} % of prompt tokens recur in whole blocks, the most it can find")
        elif trace.blocks is not None:
            notes.append("prompts share prefixes (hash_ids); without --prefix-caching this engine computes all of them")
        return notes

    @property
    def degraded(self) -> list[str]:
        """What the pair's profile holds against it."""
        return list(self.pair.degraded(self.spec.cost_model))

    def provenance(self) -> dict[str, Any]:
        """Engine, cost model with its parameters and basis, profile, policy constants."""
        # A roofline is a prediction also where the pair was measured.
        cost = self.told_cost
        basis = {"roofline": "derived", "kernels": "measured kernels"}.get(cost.name, self.pair.basis)
        tables = cost.about if isinstance(cost, Kernels) else {}
        return {
            "engine": "virtual-time batch loop",
            "engine_version": f"schedbench {__version__}",
            **policy_class(self.policy),
            "cost_model": {"name": cost.name, "basis": basis, "parameters": cost.parameters(), **tables},
            "policy_constants": {name: getattr(self.costs, name) for name in StepCosts.__slots__},
            "profile": self.pair.to_manifest(),
            "kv_blocks": self.limits.kv_blocks,
            **({} if self.cost is cost else {"policy_host": V0_HOST.canonical}),
            **({} if self.pools is None else {"pools": self.pools.to_manifest()}),
            **profile_file(self.profile),
        }

    def replay(self, writer: Records, progress: Progress, stopped: Stopped) -> Ended:
        """Replays the stream in virtual time.

        After `max_duration_s` nothing more is sent and what is in flight ends. `stopped` is asked as rows are handed
        over; True leaves the rest unsent and what is in flight without a row.
        """
        output_tokens = 0
        trace = self.stream.trace
        outlived, off_grid = Outlived(self.hints), OffGrid(self.cost)
        caches: list[PrefixCache] = []
        served = Served(self.spec.replicas)

        def sink(rows: Rows) -> bool:
            nonlocal output_tokens
            if len(rows.requests):
                writer.add_requests(request_batch(rows, trace, self.limits))
                served.see_requests(rows, trace)
                output_tokens += int(rows.request_column("output_tokens").sum())
                outlived.see(rows.request_column("row"), rows.request_column("output_tokens"))
            if len(rows.steps):
                writer.add_steps(step_batch(rows))
                off_grid.see(rows.steps)
                served.see_steps(rows)
            progress(Status(rows.finished, rows.now_ns / 1e9, output_tokens))
            return not stopped()

        limit = self.spec.max_duration_s
        loop = self._loop(caches)
        fault = None
        try:
            with contextlib.nullcontext() if self.policy_file is None else stdout_aside():
                without_collecting(loop, sink)
        except PolicyFault as error:
            fault = self._told(error)
            # What ran until then is kept.
            sink(loop.drain())
        observed = outlived.observed | off_grid.observed | served.observed
        notes = [*outlived.notes, *off_grid.notes]
        if caches:
            hits = self._hits(caches)
            observed = observed | {"prefix_cache": hits}
            notes.append(
                f"prefix cache: {100 * hits['observed']:.1f} % of prompt tokens found, "
                f"{hits['evicted_blocks']:,} blocks evicted"
            )
        if fault is not None:
            return Ended("failed", fault, tuple(notes), observed)
        if not loop.whole:
            return Ended("interrupted", "interrupted by the user", tuple(notes), observed)
        notes = [*cut_short(limit, loop.sent, len(trace)), *notes]
        return Ended(notes=tuple(notes), observed=observed | {"planned": {"requests": loop.sent}})

    def _loop(self, caches: list[PrefixCache]) -> BatchLoop | Replicas:
        """What replays the stream: one engine, or several behind a router; its prefix caches join `caches`."""
        spec, limit = self.spec, self.spec.max_duration_s

        states: list[PolicyState] = []

        def one(desk: Desk | None, policy: Policy, stream: Stream = self.stream, computed: bool = False) -> BatchLoop:
            cache = None
            if self.content is not None:
                cache = PrefixCache(self.content, self.limits.kv_blocks - 1, self.limits.block_size)
                caches.append(cache)
            loop = BatchLoop(
                stream,
                policy,
                self.cost,
                self.limits,
                max_duration_s=limit,
                hints=self.hints,
                cache=cache,
                ttft_s=spec.slo.get("ttft_s"),
                desk=desk,
                states=None if desk is None else states,
            )
            loop.state.prompts_come_computed = computed
            return loop

        if spec.replicas == 1:
            return one(None, self.policy)
        policies = [self.policy, *(self._make_policy() for _ in range(spec.replicas - 1))]
        refused = too_long(self.stream.trace, self.limits)
        arrivals = Arrivals(self.stream, NEVER if limit is None else round(limit * 1e9), refused)
        if self.pools is None:
            reacts = self.stream.due_ns is None or self.stream.think_ns is not None
            makers = [partial(one, policy=policy) for policy in policies]
            return Replicas(arrivals, refused, Router(spec.router, spec.replicas), makers, reacts)
        prefill, prompts = self.pools.prefill, prompts_alone(self.stream)
        makers = [partial(one, policy=policy, stream=prompts) for policy in policies[:prefill]]
        makers += [partial(one, policy=policy, computed=True) for policy in policies[prefill:]]
        transfers_ns = self.pools.transfers_ns(self.stream.trace)
        return Pools(arrivals, refused, spec.router, prefill, makers, transfers_ns)

    def _make_policy(self) -> Policy:
        name, given = read_policy(self.spec.policy) if self.pools is None else ("v1", {})
        return make_any(name, given, self.spec.slots, self.costs, self.policy_file)

    def _told(self, fault: PolicyFault) -> str:
        """The line on a policy's fault, which names the policy."""
        return str(fault).replace("the policy", f"policy {self.spec.policy}", 1) or f"policy {self.spec.policy} failed"

    def _hits(self, caches: list[PrefixCache]) -> dict[str, Any]:
        """What the caches found when requests were first admitted, beside the share declared."""
        cached_tokens = {row: tokens for cache in caches for row, tokens in cache.cached_tokens.items()}
        rows = np.fromiter(cached_tokens, np.int64)
        queries, hits = int(self.stream.trace.prompt_tokens[rows].sum()), sum(cached_tokens.values())
        return {
            # Hits are what the workload's content makes them: without a number there is nothing to hold them against.
            "declared": self.spec.prefix_caching or None,
            "observed": hits / queries if queries else 0.0,
            "queries_tokens": queries,
            "hits_tokens": hits,
            "evicted_blocks": sum(cache.evictions for cache in caches),
        }


def limits_of(spec: RunSpec, pair: Pair) -> EngineLimits:
    """What the engine may use: as the spec says, and where it is silent as the profile does."""
    kv_tokens = pair.kv_tokens if spec.kv_tokens is None else spec.kv_tokens
    if kv_tokens < 2 * spec.block_size:
        raise UserError(f"--kv-tokens {kv_tokens} holds no request: give at least {2 * spec.block_size}")
    return EngineLimits(
        slots=spec.slots,
        token_budget=spec.token_budget,
        kv_blocks=kv_tokens // spec.block_size,
        block_size=spec.block_size,
        max_model_len=spec.max_model_len,
        watermark=spec.watermark,
    )


def replay(
    stream: Stream,
    policy: Policy,
    cost: CostModel,
    limits: EngineLimits,
    sink: Callable[[Rows], bool],
    max_duration_s: float | None = None,
    hints: Hints | None = None,
    cache: PrefixCache | None = None,
) -> BatchLoop:
    """Runs the batch loop to its end, handing its rows to `sink`; returns the loop as it then is."""
    loop = BatchLoop(stream, policy, cost, limits, max_duration_s=max_duration_s, hints=hints, cache=cache)
    without_collecting(loop, sink)
    return loop


def without_collecting(loop: BatchLoop | Replicas, sink: Callable[[Rows], bool]) -> None:
    """Runs the batch loop to its end, handing its rows to `sink`."""
    # The loop makes no cycles; the collector would walk its long lists again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        loop.run(sink)
    finally:
        if collecting:
            gc.enable()
