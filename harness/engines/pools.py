"""Prefill and decode apart, as a run asks for it: how many engines of each, and what a KV cache takes on its way."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.profiles.memory import kv_bytes
from harness.profiles.pair import Pair
from policies.catalog import POOLS, read_options, read_policy
from workloads.core.stream import Stream
from workloads.core.trace import Trace


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """`prefill` and `decode` engines; a token's KV cache has `bytes_per_token` on each GPU, which sends `link_gb_s`."""

    prefill: int
    decode: int
    bytes_per_token: int
    link_gb_s: float
    link_source: str

    def transfers_ns(self, trace: Trace) -> list[int]:
        """How long the KV cache of each prompt is on the link, ns: its bytes over the bandwidth, and nothing else."""
        seconds = trace.prompt_tokens * self.bytes_per_token / (self.link_gb_s * 1e9)
        return [int(ns) for ns in np.rint(seconds * 1e9)]

    def described(self, spec: RunSpec) -> str:
        """The pools in a sentence."""
        return (
            f"{self.prefill} engines prefill and {self.decode} decode, v1 on each, a router before each pool "
            f"({spec.router}); a KV cache of {self.bytes_per_token:,} bytes a token travels at {self.link_gb_s:g} GB/s "
            f"({self.link_source})"
        )

    def to_manifest(self) -> dict[str, Any]:
        """As run.json has it."""
        return dataclasses.asdict(self)


def pools_of(spec: RunSpec, pair: Pair) -> PoolSizes | None:
    """The pools of a run whose policy is `pd`, None of another; UserError where they cannot be had."""
    name, given = read_policy(spec.policy)
    if name != POOLS:
        return None
    values = read_options(name, given)
    prefill, decode = int(values["prefill"]), int(values["decode"])
    if prefill + decode != spec.replicas:
        raise UserError(
            f"policy {spec.policy} takes {prefill + decode} engines and --replicas is {spec.replicas}: give --replicas "
            f"{prefill + decode}, for all arms, so that they have equal GPUs"
        )
    if spec.prefix_caching is not None:
        raise UserError(f"policy {spec.policy} goes without --prefix-caching: what is sent is not looked up")
    if pair.model is None:
        raise UserError(f"policy {spec.policy}: nothing says how large a token's KV cache is of {spec.model}")
    link = pair.gpu.link_gb_s
    if link is None:
        raise UserError(
            f"policy {spec.policy}: the profile of {spec.gpu} does not say what one GPU sends to another: give it "
            "link_gb_s, in GB/s of one direction"
        )
    return PoolSizes(prefill, decode, kv_bytes(pair.model, spec.tp), link, pair.gpu.sources["link_gb_s"])


def prompts_alone(stream: Stream) -> Stream:
    """The requests as one who computes prompts meets them: over with the first token."""
    trace = stream.trace
    return dataclasses.replace(
        stream, trace=dataclasses.replace(trace, output_tokens=np.ones_like(trace.output_tokens))
    )
