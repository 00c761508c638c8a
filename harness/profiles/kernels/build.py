"""Step costs of a model on a GPU from the tables: found or looked up, composed, and what was taken from where."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.profiles.kernels.attention import Attention, PureCalls
from harness.profiles.kernels.calls import digest_of, measured_calls
from harness.profiles.kernels.curves import DECIMALS, Floats
from harness.profiles.kernels.measured import Measured, embedded
from harness.profiles.kernels.mixed import Alone, MixedLaw, PackedTiles, PaddedTiles
from harness.profiles.kernels.model import Kernels
from harness.profiles.kernels.operations import (
    AllReduce,
    AttentionKernel,
    Operation,
    expert_layer,
    head_gemm,
    layer_gemms,
    operations_of,
)
from harness.profiles.kernels.package import EXTRA, PACKAGE, VERSION, NoSuchTimesError, from_package, installed
from harness.profiles.kernels.shape import Shape
from harness.profiles.kernels.systems import SYSTEMS, System

# Of the bandwidth, where values stream through element-wise kernels.
STREAM = 0.8
# Launches of the small kernels of one layer, s.
SMALL_S = 8e-6
BF16_BYTES = 2
# Bytes a token of the vocabulary that the sampler moves for each sequence.
SAMPLER_BYTES = 12
# vLLM pads a step of up to so many tokens to the sizes of its CUDA graphs.
CAPTURED = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
# The prompt whose attention gives the prefill kernel's rate, tokens.
RATE_TOKENS = 4096
# Lists of `Kernels` reach so far: the largest measured matrices have 32,768 tokens.
MOST_TOKENS, MOST_SEQUENCES = 65_536, 16_384


@dataclass(frozen=True, slots=True)
class Found:
    """The kernels of a model on a GPU, by name; `system` is the GPU in the tables."""

    system: System
    operations: dict[str, Measured]

    def __getitem__(self, operation: Operation) -> Measured:
        return self.operations[operation.name]


@functools.lru_cache(maxsize=64)
def find_kernels(gpu: str, shape: Shape, tp: int) -> Found:
    """The times of all kernels of a step: those that come with the project, else the package's.

    Raises NoSuchTimesError where the GPU has no tables, the tables lack a kernel, or the package is needed and is
    not there; UserError where the package is another version.
    """
    system = SYSTEMS.get(gpu)
    if system is None:
        raise NoSuchTimesError(f"no measured kernels of this GPU: there are some of {', '.join(SYSTEMS)}")
    own = embedded(gpu)
    found: dict[str, Measured] = {}
    data = None
    for operation in operations_of(shape, tp):
        if operation.name in own:
            found[operation.name] = own[operation.name]
            continue
        data = data or installed()
        if data is None:
            raise NoSuchTimesError(
                f"the kernel times that come with the project lack its {operation.name}: `{EXTRA}` has all that were "
                "measured"
            )
        found[operation.name] = from_package(data, system, operation)
    return Found(system, found)


@functools.lru_cache(maxsize=16)
def _built(gpu: str, shape: Shape, tp: int, bandwidth: float, generation: str, host: tuple[float, float]) -> Kernels:
    return build(gpu, shape, tp, bandwidth, generation, *host)


def build_once(
    gpu: str, shape: Shape, tp: int, bandwidth: float, generation: str, host_s: float, decode_s: float
) -> Kernels:
    """The same of the tables of the project or the package, which stay as they are: built once, counted anew."""
    return _built(gpu, shape, tp, bandwidth, generation, (host_s, decode_s)).counted_anew()


def build(
    gpu: str,
    shape: Shape,
    tp: int,
    bandwidth: float,
    generation: str,
    host_s: float,
    decode_s: float,
    calls: Path | None = None,
) -> Kernels:
    """The cost model of a model on `tp` GPUs of a kind.

    `bandwidth` B/s of one; `generation` that of its attention kernels, which decides the law of mixed calls; `host_s`
    and `decode_s` the host's time a step and a decode, s; `calls` a file of measured attention calls that stands in for
    tables and law. Raises as `find_kernels` does, and UserError where that file has holes.
    """
    found = find_kernels(gpu, shape, tp)
    part = shape.part(tp)
    heads = (part.query_heads, part.kv_heads, part.head_size, part.cache)
    prefill = found[AttentionKernel("prefill", *heads)].surface("prefill").times(shape.layers)
    decode = found[AttentionKernel("decode", *heads)].surface("decode").times(shape.layers)
    # A prompt's work is half its square, token².
    rate_s = float(prefill.refined(np.array([1.0]), np.array([float(RATE_TOKENS)]))[0, 0]) / (RATE_TOKENS**2 / 2)
    law = law_of(found.system, part, generation, rate_s)
    attention: Attention = PureCalls(prefill, decode, law)
    about: dict[str, Any] = {"mixed_call": law.status}
    if calls is not None:
        attention = measured = measured_calls(calls, shape.layers)
        about = {"mixed_call": "measured", "attention_calls": calls.name, "attention_sha256": digest_of(calls)}
        about["mixed_calls_used"] = measured.used
    return Kernels(
        body=np.round(_body(found, shape, tp, bandwidth), DECIMALS).tolist(),
        head=np.round(_head(found, shape, tp, bandwidth), DECIMALS).tolist(),
        attention=attention,
        host_s=host_s,
        decode_s=decode_s,
        about={
            "source": f"PyPI {PACKAGE} {VERSION} (Apache-2.0)",
            "vllm": found.system.version,
            "gpus": tp,
            **about,
            "kernels": {name: one.note for name, one in sorted(found.operations.items())},
        },
    )


def law_of(system: System, part: Shape, attention: str, prefill_s: float) -> MixedLaw:
    """What decodes beside prompts cost with the kernels of a generation; `prefill_s` s a token² over all layers."""
    group = part.query_heads / part.kv_heads
    status = law_status(system, attention)
    if attention == "fa2":
        head_bytes = 2 * BF16_BYTES * part.head_size
        return PaddedTiles(prefill_s, group, system.sms, head_bytes / system.l2_bytes, status)
    return PackedTiles(prefill_s, group, status) if attention == "fa3" else Alone()


def law_status(system: System, attention: str) -> str:
    """How the cost of decodes beside prompts is known on a GPU, with the kernels of a generation."""
    if attention not in ("fa2", "fa3"):
        return Alone.status
    return "law, checked" if system.checked else "law, unmeasured"


def captured(tokens: Floats) -> Floats:
    """The tokens that a step computes once vLLM has padded it to a captured size."""
    sizes = np.array(CAPTURED, dtype=np.float64)
    at = np.searchsorted(sizes, tokens)
    return np.where(at < len(sizes), sizes[np.minimum(at, len(sizes) - 1)], tokens)


def _body(found: Found, shape: Shape, tp: int, bandwidth: float) -> Floats:
    """Seconds of all layers by the tokens of a step, entry 0 being none, shape (MOST_TOKENS + 1,)."""
    part = shape.part(tp)
    tokens = captured(np.arange(1, MOST_TOKENS + 1, dtype=np.float64))
    seconds = np.zeros(len(tokens))
    for gemm, layers in layer_gemms(part).items():
        seconds += layers * found[gemm].curve().at(tokens)
    experts = expert_layer(shape, tp)
    if experts is not None and shape.experts is not None:
        seconds += shape.experts.layers * found[experts].curve().at(tokens)
    if tp > 1:
        # Twice a layer: behind attention and behind the feed-forward part.
        small = tokens <= CAPTURED[-1]
        for one, where in ((AllReduce(tp, True), small), (AllReduce(tp, False), ~small)):
            seconds += 2 * shape.layers * np.where(where, found[one].curve().at(tokens * shape.hidden), 0.0)
    width = shape.layers * (8 * part.hidden + 4 * part.qkv) + 3 * _widths(part)
    seconds += tokens * BF16_BYTES * width / (STREAM * bandwidth) + shape.layers * SMALL_S
    return np.concatenate(([0.0], seconds))


def _widths(part: Shape) -> int:
    """The widths of the feed-forward parts of all layers, summed; experts' own are within their kernel."""
    experts = part.experts
    if experts is None:
        return part.layers * part.intermediate
    return (part.layers - experts.layers) * part.intermediate + experts.layers * experts.shared


def _head(found: Found, shape: Shape, tp: int, bandwidth: float) -> Floats:
    """Seconds of output head and sampler by the sequences that they serve, shape (MOST_SEQUENCES + 1,).

    GPUs share the head's matrix; each samples from the logits of all.
    """
    sequences = np.arange(1, MOST_SEQUENCES + 1, dtype=np.float64)
    moved = sequences * SAMPLER_BYTES * shape.vocabulary
    seconds = found[head_gemm(shape.part(tp))].curve().at(sequences) + moved / (STREAM * bandwidth)
    return np.concatenate(([0.0], seconds))
