"""What the engine may use, and who can never fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.core.trace import Ints, Trace


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """N slots, B tokens a step, KV blocks (the null block included), the longest request."""

    slots: int
    token_budget: int
    kv_blocks: int
    block_size: int = 16
    max_model_len: int = 40960
    watermark: float = 0.0

    @property
    def cache_tokens(self) -> int:
        """What requests can hold in the KV cache, tokens."""
        return (self.kv_blocks - 1) * self.block_size


def too_long(trace: Trace, limits: EngineLimits) -> frozenset[int]:
    """The rows of requests that fit neither an empty cache nor the model."""
    return frozenset(_longer(trace, min(limits.max_model_len, limits.cache_tokens)).tolist())


def notes_on_too_long(trace: Trace, max_model_len: int, cache_tokens: int | None = None) -> list[str]:
    """How many requests fit neither the model nor the cache, and what to do about it; empty where all fit."""
    cache = cache_tokens is not None and cache_tokens < max_model_len
    longest = cache_tokens if cache and cache_tokens is not None else max_model_len
    rows = _longer(trace, longest)
    if not len(rows):
        return []
    limit, option = ("the KV cache", "--kv-tokens") if cache else ("max_model_len", "--max-model-len")
    fitting = int(trace.prompt_tokens[rows].min()) - 1
    leave_out = f", or leave them out: max_prompt_tokens={fitting}" if fitting > 0 else ""
    return [
        f"{len(rows):,} of {len(trace):,} requests fail as too long, with more tokens of prompt and output than "
        f"{limit} of {longest:,}: give more {option}{leave_out}"
    ]


def _longer(trace: Trace, longest: int) -> Ints:
    return np.asarray(np.flatnonzero(trace.prompt_tokens + trace.output_tokens > longest), dtype=np.int64)
