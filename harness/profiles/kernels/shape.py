"""What of a model decides the kernels that a step launches: the sizes of its matrices and heads."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `number` of them, `used` by a token, each `intermediate` wide, in `layers` layers.

    `shared` is the width of the experts that every token uses beside them, 0 where there are none.
    """

    number: int
    used: int
    intermediate: int
    layers: int
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder: tokens go through `layers` layers of width `hidden`.

    `intermediate` is the width of the dense feed-forward layers; `weights` and `cache` are the data types of the
    linear layers and of the KV cache, as the tables name them (`bfloat16`, `fp8`, `fp8_block`).
    """

    layers: int
    hidden: int
    query_heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    weights: str = "bfloat16"
    cache: str = "bfloat16"
    experts: Experts | None = None

    def part(self, tp: int) -> Shape:
        """What one of `tp` GPUs computes: its share of heads, widths and vocabulary; KV heads are never split."""
        experts = self.experts and replace(
            self.experts, intermediate=self.experts.intermediate // tp, shared=self.experts.shared // tp
        )
        return replace(
            self,
            query_heads=self.query_heads // tp,
            kv_heads=max(1, self.kv_heads // tp),
            intermediate=self.intermediate // tp,
            vocabulary=-(-self.vocabulary // tp),
            experts=experts,
        )

    @property
    def qkv(self) -> int:
        """Columns of the matrix that makes queries, keys and values."""
        return (self.query_heads + 2 * self.kv_heads) * self.head_size

    def why_not_over(self, tp: int) -> str | None:
        """Why so many GPUs cannot share the model evenly, None where they can (vLLM's own rules)."""
        if self.query_heads % tp:
            return f"{self.query_heads} query heads do not divide by {tp}"
        if self.kv_heads % tp and tp % self.kv_heads:
            return f"{self.kv_heads} KV heads and {tp} GPUs: one must divide the other"
        widths = [self.intermediate] + ([self.experts.intermediate, self.experts.shared] if self.experts else [])
        for width in widths:
            if width % tp:
                return f"a feed-forward width of {width} does not divide by {tp}"
        return None
