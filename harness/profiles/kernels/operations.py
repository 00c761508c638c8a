"""The kernels of a step by name: what a table is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from harness.profiles.kernels.shape import Shape


@dataclass(frozen=True, slots=True)
class Gemm:
    """Tokens times a matrix of `inputs` rows and `outputs` columns, its weights of the type named."""

    weights: str
    outputs: int
    inputs: int

    @property
    def name(self) -> str:
        """How tables and manifests name it."""
        return f"gemm {self.weights} {self.outputs}x{self.inputs}"


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """Attention of one layer, `prefill` of whole prompts or `decode` of single tokens, over a KV cache of a type."""

    phase: str
    query_heads: int
    kv_heads: int
    head_size: int
    cache: str

    @property
    def name(self) -> str:
        """How tables and manifests name it."""
        return f"{self.phase} {self.cache} q{self.query_heads} kv{self.kv_heads} d{self.head_size}"


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The experts of one layer, `used` of `number` a token, their width shared by `gpus` GPUs."""

    weights: str
    hidden: int
    intermediate: int
    used: int
    number: int
    gpus: int

    @property
    def name(self) -> str:
        """How tables and manifests name it."""
        sizes = f"h{self.hidden} i{self.intermediate} {self.used}of{self.number}"
        return f"experts {self.weights} {sizes} tp{self.gpus}"


@dataclass(frozen=True, slots=True)
class AllReduce:
    """A sum over `gpus` GPUs of so many bf16 elements; `captured` where it runs inside a CUDA graph."""

    gpus: int
    captured: bool

    @property
    def name(self) -> str:
        """How tables and manifests name it."""
        return f"all_reduce {self.gpus} {'graph' if self.captured else 'eager'}"


Operation = Gemm | AttentionKernel | ExpertLayer | AllReduce


def layer_gemms(part: Shape) -> dict[Gemm, int]:
    """The matrices that every token meets in the layers of a model (or of one GPU's part), and how often each."""
    heads = part.query_heads * part.head_size
    found = {
        Gemm(part.weights, part.qkv, part.hidden): part.layers,
        Gemm(part.weights, part.hidden, heads): part.layers,
    }
    experts = part.experts
    dense = part.layers - (experts.layers if experts else 0)
    wide = [(part.intermediate, dense)] + ([(experts.shared, experts.layers)] if experts else [])
    for width, layers in wide:
        if width and layers:
            for gemm in (Gemm(part.weights, 2 * width, part.hidden), Gemm(part.weights, part.hidden, width)):
                found[gemm] = found.get(gemm, 0) + layers
    if experts:
        # A router is as narrow as there are experts, and is not quantised.
        found[Gemm("bfloat16", experts.number, part.hidden)] = experts.layers
    return found


def head_gemm(part: Shape) -> Gemm:
    """The output head, which no recipe that we know quantises."""
    return Gemm("bfloat16", part.vocabulary, part.hidden)


def expert_layer(shape: Shape, tp: int) -> ExpertLayer | None:
    """The experts of a layer over so many GPUs, None where the model is dense."""
    experts = shape.experts
    if experts is None:
        return None
    return ExpertLayer(shape.weights, shape.hidden, experts.intermediate, experts.used, experts.number, tp)


def operations_of(shape: Shape, tp: int) -> list[Operation]:
    """Everything that a step of this model on so many GPUs launches."""
    part = shape.part(tp)
    heads = (part.query_heads, part.kv_heads, part.head_size, part.cache)
    found: list[Operation] = [*layer_gemms(part), head_gemm(part)]
    found += [AttentionKernel("prefill", *heads), AttentionKernel("decode", *heads)]
    if (experts := expert_layer(shape, tp)) is not None:
        found.append(experts)
    if tp > 1:
        found += [AllReduce(tp, captured) for captured in (True, False)]
    return found
