"""What the engine may use, and who can never fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.core.trace import Trace


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
    longest = min(limits.max_model_len, limits.cache_tokens)
    return frozenset(np.flatnonzero(trace.prompt_tokens + trace.output_tokens > longest).tolist())
