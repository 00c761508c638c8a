"""A model's sizes from its config.json: what a step launches, what weights and KV cache weigh, or why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UserError
from harness.core.text import shown
from harness.profiles.figures import Model
from harness.profiles.kernels.shape import Experts, Shape

# Models whose layers are those of `Shape`: grouped-query attention over the whole context, a gated feed-forward part.
# True where queries, keys and values have biases of their own.
ARCHITECTURES: dict[str, bool] = {
    "LlamaForCausalLM": False,
    "MistralForCausalLM": False,
    "MixtralForCausalLM": False,
    "Qwen2ForCausalLM": True,
    "Qwen2MoeForCausalLM": True,
    "Qwen3ForCausalLM": False,
    "Qwen3MoeForCausalLM": False,
    "GemmaForCausalLM": False,
    "GraniteForCausalLM": False,
    "Phi3ForCausalLM": False,
}
# The keys that decide anything: what a run keeps of a config.json.
KEYS = (
    "architectures",
    "attention_bias",
    "decoder_sparse_step",
    "dtype",
    "first_k_dense_replace",
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "kv_lora_rank",
    "layer_types",
    "max_position_embeddings",
    "mlp_only_layers",
    "model_type",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_attention_heads",
    "num_experts",
    "num_experts_per_tok",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_local_experts",
    "q_lora_rank",
    "quantization_config",
    "shared_expert_intermediate_size",
    "sliding_window",
    "tie_word_embeddings",
    "torch_dtype",
    "use_sliding_window",
    "vocab_size",
)
TYPES = ("bfloat16", "float16", "float32", None)
# No size of a model is larger; arithmetic stays exact.
LARGEST = 1 << 31
SUPPORTED = "dense models, grouped-query attention and mixtures of experts of " + ", ".join(
    name.removesuffix("ForCausalLM") for name in ARCHITECTURES
)


@dataclass(frozen=True, slots=True)
class Sized:
    """A model as everything but its name: figures, and the shape that decides its kernels."""

    model: Model
    shape: Shape


class _Config:
    """The keys of a config.json; complaints name the file, the key and the remedy."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values

    def refuse(self, why: str) -> UserError:
        return UserError(f"{self.where}: {why}")

    def size(self, key: str, default: int | None = None) -> int:
        value = self.values.get(key, default)
        if value is None:
            raise self.refuse(f"{key} is missing: take the config.json as the model's page has it")
        if type(value) is not int or not 1 <= value < LARGEST:
            raise self.refuse(f"{key} is {shown(value)}: it must be a whole number of at least 1")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(f"{key} is {shown(value)}: it must be true or false")
        return value


def read_config(name: str, values: Any, where: str) -> Sized:
    """The model of a config.json's values; UserError where it is none that the cost models know, with the reason."""
    if not isinstance(values, dict):
        raise UserError(f"{where}: not the config.json of a model: it holds no object")
    config = _Config(where, values)
    _refuse_other_attention(config)
    biased = _architecture(config)
    layers, hidden = config.size("num_hidden_layers"), config.size("hidden_size")
    query_heads = config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", query_heads)
    if query_heads % kv_heads:
        raise config.refuse(f"{query_heads} query heads do not divide over {kv_heads} KV heads")
    head_size = _head_size(config, hidden, query_heads)
    experts = _experts(config, layers)
    weights, cache = _types(config)
    shape = Shape(
        layers=layers,
        hidden=hidden,
        query_heads=query_heads,
        kv_heads=kv_heads,
        head_size=head_size,
        # A mixture whose layers all have experts has no dense feed-forward part.
        intermediate=config.size("intermediate_size", 1 if experts else None),
        vocabulary=config.size("vocab_size"),
        weights=weights,
        cache=cache,
        experts=experts,
    )
    return Sized(_model(name, config, shape, biased or config.flag("attention_bias", False)), shape)


def _architecture(config: _Config) -> bool:
    named = config.values.get("architectures")
    known = [one for one in named if one in ARCHITECTURES] if isinstance(named, list) else []
    if known:
        return ARCHITECTURES[known[0]]
    if not isinstance(named, list) or not named or not isinstance(named[0], str):
        raise config.refuse("no `architectures`, so no config.json of a causal language model")
    raise config.refuse(f"the architecture {shown(named[0])} is unknown: known are {SUPPORTED}")


def _refuse_other_attention(config: _Config) -> None:
    values = config.values
    if any(values.get(key) is not None for key in ("kv_lora_rank", "q_lora_rank")):
        raise config.refuse(
            "multi-head latent attention (kv_lora_rank): its kernels are others than those of grouped-query attention, "
            "and no cost model here knows them"
        )
    kinds = values.get("layer_types")
    window = values.get("sliding_window")
    longest = values.get("max_position_embeddings")
    # Some configs name a window as long as the context, which is none.
    cuts = window is not None and not (isinstance(window, int) and isinstance(longest, int) and window >= longest)
    sliding = isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds)
    if sliding or (kinds is None and cuts and config.flag("use_sliding_window", True)):
        raise config.refuse(
            f"sliding-window attention ({shown(window)} tokens): a step would be priced as if every token saw the "
            "whole context, so this model is refused"
        )


def _head_size(config: _Config, hidden: int, query_heads: int) -> int:
    if config.values.get("head_dim") is not None:
        return config.size("head_dim")
    if hidden % query_heads:
        raise config.refuse(f"hidden_size {hidden} does not divide over {query_heads} heads, and there is no head_dim")
    return hidden // query_heads


def _experts(config: _Config, layers: int) -> Experts | None:
    values = config.values
    number = next((key for key in ("num_experts", "num_local_experts", "n_routed_experts") if values.get(key)), None)
    if number is None or config.size(number) == 1:
        return None
    used = config.size("num_experts_per_tok")
    if used > config.size(number):
        raise config.refuse(f"num_experts_per_tok is {used} of {config.size(number)} experts")
    width = "moe_intermediate_size" if values.get("moe_intermediate_size") is not None else "intermediate_size"
    every = config.size("decoder_sparse_step", 1)
    plain = values.get("mlp_only_layers") or []
    dense_first = values.get("first_k_dense_replace") or 0
    if not isinstance(plain, list) or type(dense_first) is not int:
        raise config.refuse("mlp_only_layers or first_k_dense_replace has another form than the published configs")
    with_experts = sum(
        layer >= dense_first and layer not in plain and (layer + 1) % every == 0 for layer in range(layers)
    )
    shared = values.get("shared_expert_intermediate_size")
    return Experts(
        number=config.size(number),
        used=used,
        intermediate=config.size(width),
        layers=with_experts,
        shared=config.size("shared_expert_intermediate_size") if shared else 0,
    )


def _types(config: _Config) -> tuple[str, str]:
    """The types of linear layers and KV cache as the tables name them."""
    values = config.values
    stored = values.get("dtype", values.get("torch_dtype"))
    if stored not in TYPES:
        raise config.refuse(f"weights of type {shown(stored)}: bfloat16 and float16 are known")
    quantised = values.get("quantization_config")
    if quantised is None:
        return "bfloat16", "bfloat16"
    if not isinstance(quantised, dict):
        raise config.refuse("quantization_config is no object")
    method = quantised.get("quant_method", quantised.get("quant_algo"))
    if isinstance(method, str) and method.lower() == "fp8":
        return ("fp8_block" if quantised.get("weight_block_size") else "fp8"), "bfloat16"
    if quantised.get("quant_algo") == "FP8" or (method == "compressed-tensors" and _float8(quantised)):
        return "fp8", "bfloat16"
    raise config.refuse(f"weights quantised by {shown(method)}: bf16 and fp8 are known")


def _float8(quantised: Mapping[str, Any]) -> bool:
    groups = quantised.get("config_groups")
    weights = [group.get("weights") for group in groups.values()] if isinstance(groups, dict) else []
    return bool(weights) and all(
        isinstance(one, dict) and one.get("type") == "float" and one.get("num_bits") == 8 for one in weights
    )


def _model(name: str, config: _Config, shape: Shape, biased: bool) -> Model:
    hidden, experts = shape.hidden, shape.experts
    heads = shape.query_heads * shape.head_size
    attention = hidden * shape.qkv + heads * hidden + (shape.qkv if biased else 0)
    expert = 3 * hidden * experts.intermediate if experts else 0
    sparse = experts.layers if experts else 0
    router = sparse * hidden * experts.number if experts else 0
    always = (shape.layers - sparse) * 3 * hidden * shape.intermediate
    always += sparse * 3 * hidden * experts.shared if experts else 0
    matrices = shape.layers * attention + always + router
    norms = (2 * shape.layers + 1) * hidden
    if str(config.values.get("model_type")).startswith("qwen3"):
        norms += 2 * shape.layers * shape.head_size
    table = shape.vocabulary * hidden
    # Gemma's configs rest on their class's own default.
    tied = config.flag("tie_word_embeddings", "GemmaForCausalLM" in config.values["architectures"])
    embeddings = table if tied else 2 * table
    of_experts = sparse * expert * experts.number if experts else 0
    used = sparse * expert * experts.used if experts else 0
    linear = matrices + of_experts
    bytes_each = 2 if shape.weights == "bfloat16" else 1
    source = f"arithmetic on {config.where}"
    return Model(
        name=name,
        parameters=linear + norms + embeddings,
        parameters_per_token=float(matrices + used + norms),
        embedding_parameters=embeddings,
        vocab_size=shape.vocabulary,
        hidden_size=hidden,
        layers=shape.layers,
        query_heads=shape.query_heads,
        kv_heads=shape.kv_heads,
        head_size=shape.head_size,
        dtype_bytes=2,
        moe=experts is not None,
        max_model_len=config.size("max_position_embeddings"),
        weights_bytes=linear * bytes_each + 2 * (norms + embeddings),
        sources={"config": source},
        prices={},
    )
