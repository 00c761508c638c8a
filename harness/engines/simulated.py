"""The virtual-time engine: the stream replayed by the batch loop against a cost model."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from harness import __version__
from harness.engines.base import Ended, Progress, Status, Stopped, cut_short
from harness.errors import UserError
from harness.lengths import Outlived
from harness.plan import read_policy
from harness.profiles import Pair, load_pair
from harness.runspec import RunSpec
from harness.simulate.batch import BatchLoop, Chunk, EngineLimits
from harness.simulate.cost import CostModel
from harness.simulate.rows import request_batch, step_batch
from harness.store import RunWriter
from policies.catalog import make_policy
from policies.core import Policy
from policies.threshold import StepCosts
from workloads.arrivals import Stream
from workloads.hints import Hints, hints_of


class Simulated:
    """One run of the virtual-time engine, ready to go; raises UserError for what the user can mend."""

    kind = "simulated"

    def __init__(self, spec: RunSpec, stream: Stream) -> None:
        self.spec = spec
        self.stream = stream
        self.pair = load_pair(spec.gpu, spec.model)
        self.limits = limits_of(spec, self.pair)
        self.cost = self.pair.cost(spec.cost_model)
        trace = stream.trace
        self.costs = self.pair.policy_constants(trace.mean_prompt_tokens, trace.mean_output_tokens, spec.token_budget)
        self.hints = hints_of(spec.lengths, trace, spec.seed)
        self.policy = make_policy(*read_policy(spec.policy), spec.slots, self.costs)

    @property
    def notes(self) -> list[str]:
        """How the cost of a step is known."""
        notes = [f"simulated: {self.pair.describe(self.spec.cost_model)}", *self.pair.policy_notes]
        if self.stream.trace.blocks is not None:
            notes.append("prompts share prefixes (hash_ids); this engine has no prefix cache and computes all of them")
        return notes

    @property
    def degraded(self) -> list[str]:
        """What the pair's profile holds against it."""
        return list(self.pair.degraded)

    def provenance(self) -> dict[str, Any]:
        """Engine, cost model with its parameters and basis, profile, policy constants."""
        # A roofline is a prediction also where the pair was measured.
        basis = "derived" if self.cost.name == "roofline" else self.pair.basis
        return {
            "engine": "virtual-time batch loop",
            "engine_version": f"schedbench {__version__}",
            "policy_class": type(self.policy).__name__,
            "cost_model": {"name": self.cost.name, "basis": basis, "parameters": self.cost.parameters()},
            "policy_constants": {name: getattr(self.costs, name) for name in StepCosts.__slots__},
            "profile": self.pair.to_manifest(),
            "kv_blocks": self.limits.kv_blocks,
        }

    def replay(self, writer: RunWriter, progress: Progress, stopped: Stopped) -> Ended:
        """Replays the stream in virtual time.

        After `max_duration_s` nothing more is sent and what is in flight ends. `stopped` is asked between
        chunks; True leaves the rest unsent and what is in flight without a row.
        """
        output_tokens = 0
        trace = self.stream.trace
        outlived = Outlived(self.hints)

        def sink(chunk: Chunk) -> bool:
            nonlocal output_tokens
            if len(chunk.requests):
                writer.add_requests(request_batch(chunk, trace, self.limits))
                output_tokens += int(chunk.requests[:, 6].sum())
                outlived.see(chunk.requests[:, 0], chunk.requests[:, 6])
            if len(chunk.steps):
                writer.add_steps(step_batch(chunk))
            progress(Status(chunk.finished, chunk.now_ns / 1e9, output_tokens))
            return not stopped()

        loop = replay(self.stream, self.policy, self.cost, self.limits, sink, self.spec.max_duration_s, self.hints)
        observed = outlived.observed
        if not loop.whole:
            return Ended("interrupted", "interrupted by the user", tuple(outlived.notes), observed)
        notes = (*cut_short(self.spec.max_duration_s, loop.sent, len(trace)), *outlived.notes)
        return Ended(notes=notes, observed=observed | {"planned": {"requests": loop.sent}})


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
    sink: Callable[[Chunk], bool],
    max_duration_s: float | None = None,
    hints: Hints | None = None,
) -> BatchLoop:
    """Runs the batch loop to its end, handing its rows to `sink`; returns the loop as it then is."""
    loop = BatchLoop(stream, policy, cost, limits, max_duration_s=max_duration_s, hints=hints)
    # The loop makes no cycles; the collector would walk its long lists again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        loop.run(sink)
    finally:
        if collecting:
            gc.enable()
    return loop
