"""What the decodes of a step cost beside prompts in the same attention call: by a law for each kind of kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

# Rows of queries that the kernels compute at once, however few of them a decode has.
FA2_TILE, FA3_TILE = 64, 128
# Of x = K and V of one head over the level-2 cache: where its sharing begins to end, and over what it goes.
L2_FROM, L2_OVER = 0.5, 1.5


class MixedLaw(Protocol):
    """Seconds of the decode part of a mixed call, given its decodes, their contexts and what they cost alone."""

    @property
    def status(self) -> str:
        """How the law is known, for the manifest."""

    def seconds(self, decodes: int, decode_context: int, alone_s: float) -> float:
        """`decode_context` Σ of contexts, tokens; `alone_s` the decode kernel's time for them, s, over all layers."""


@dataclass(frozen=True, slots=True)
class PaddedTiles:
    """FlashAttention 2 over a paged cache: a tile of 64 rows for each decode and query head.

    The tiles run at the prefill kernel's rate, and the query heads of a KV head no longer share its reads once
    these leave the level-2 cache: `prefill_s` seconds a token² over all layers, `group` query heads a KV head, `sms`
    streaming multiprocessors, `head_bytes` of K and V of a token in one KV head over the cache, 4·d / L2.
    """

    prefill_s: float
    group: float
    sms: int
    head_over_l2: float
    status: str

    def seconds(self, decodes: int, decode_context: int, alone_s: float) -> float:
        """max(64·S at the prefill rate, F times the decode kernel)."""
        x = (self.head_over_l2 * decode_context - L2_FROM) / L2_OVER
        if x > 0:
            waves = self.sms / decodes
            apart = self.group / waves if waves > 1 else self.group
            if apart > 1:
                alone_s *= 1 + (apart - 1) * (x if x < 1 else 1.0)
        tiles = FA2_TILE * self.prefill_s * decode_context
        return tiles if tiles > alone_s else alone_s


@dataclass(frozen=True, slots=True)
class PackedTiles:
    """FlashAttention 3: the query heads of a KV head fill one tile of 128 rows together, at the prefill rate."""

    prefill_s: float
    group: float
    status: str

    def seconds(self, decodes: int, decode_context: int, alone_s: float) -> float:
        """max(the decode kernel, 128·S·kv/q at the prefill rate)."""
        tiles = FA3_TILE * self.prefill_s * decode_context / self.group
        return tiles if tiles > alone_s else alone_s


@dataclass(frozen=True, slots=True)
class Alone:
    """Decodes beside prompts cost what they cost alone: assumed where no law is known."""

    status: ClassVar[str] = "assumed"

    def seconds(self, decodes: int, decode_context: int, alone_s: float) -> float:
        """The decode kernel's time as it is."""
        return alone_s
