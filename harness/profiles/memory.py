"""What a model leaves of a GPU's memory: its KV cache, and how many GPUs hold one that is too large."""

from __future__ import annotations

from harness.profiles.figures import Gpu, Model
from harness.profiles.kernels.shape import Shape

BLOCK = 16  # tokens a KV block
MEMORY_USED = 0.9  # of a GPU's memory, vLLM's gpu_memory_utilization
OTHER_BYTES = 3.5e9  # activations, CUDA graphs and the rest
# That share a model: a node has no more.
MOST_GPUS = 8


def kv_bytes(model: Model, tp: int) -> int:
    """Bytes that a token holds in the KV cache of one of `tp` GPUs: a KV head is never split."""
    return model.kv_bytes_per_token * max(1, model.kv_heads // tp) // model.kv_heads


def kv_capacity(gpu: Gpu, model: Model, tp: int) -> int:
    """The KV cache that the memory of `tp` GPUs leaves, tokens in whole blocks; 0 where the model does not fit."""
    assert gpu.memory_gb is not None
    free = MEMORY_USED * gpu.memory_gb * 1e9 - model.weights_bytes / tp - OTHER_BYTES
    return max(0, int(free // kv_bytes(model, tp))) // BLOCK * BLOCK


def why_not_over(tp: int, model: Model | None, shape: Shape | None) -> str | None:
    """Why so many GPUs cannot share a model, None where they can."""
    if tp > MOST_GPUS:
        return f"{MOST_GPUS} GPUs are the most that a node has"
    if shape is not None:
        return shape.why_not_over(tp)
    return "no config.json of this model is known" if model is None or model.query_heads % tp else None


def how_many(gpu: Gpu, model: Model, shape: Shape | None, tp: int) -> str:
    """What to do about a model that does not fit."""
    for more in range(tp + 1, MOST_GPUS + 1):
        if why_not_over(more, model, shape) is None and kv_capacity(gpu, model, more):
            return f"{more} of these GPUs hold it (--tp {more}), or use a larger GPU or a smaller model"
    return "use a larger GPU or a smaller model"
