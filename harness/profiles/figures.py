"""What is known of a GPU, a model and their pair: figures, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from policies.core import StepCosts


@dataclass(frozen=True, slots=True)
class Fit:
    """Measured step-time constants of one pair, with where they come from.

    `flags` repeat what is known to be odd about the fit; `degraded` says why a run on it is worth less;
    `runs` name the runs that it was fitted to, empty where others measured.
    """

    basis: Literal["calibrated", "published"]
    costs: StepCosts
    mixed_form: Literal["fitted", "additive"]
    sources: Mapping[str, str]
    flags: tuple[str, ...]
    degraded: tuple[str, ...]
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Price:
    """A price with the day it was that: an input of `bench profit`, never part of a run."""

    value: float
    currency: str
    date: str
    source: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model's sizes: parameters, layers, heads, tokens and bytes, as its TOML table names them."""

    name: str
    parameters: int
    parameters_per_token: float  # without embeddings
    embedding_parameters: int
    vocab_size: int
    hidden_size: int
    layers: int
    query_heads: int
    kv_heads: int
    head_size: int
    dtype_bytes: int
    moe: bool
    max_model_len: int
    weights_bytes: int
    sources: Mapping[str, str]
    prices: Mapping[str, Price]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one token holds in the KV cache: keys and values of every layer."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.dtype_bytes

    @property
    def weights_read_bytes(self) -> float:
        """W, the bytes of weights that a step of a dense model reads: all but the embedding's input table."""
        return (self.parameters_per_token + self.vocab_size * self.hidden_size) * self.dtype_bytes


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU's figures and the fits known on it.

    `flops` is the dense bf16 peak that the roofline uses, FLOP/s: the data sheet's (`dense_bf16_tflops`) or,
    where no source is sure, the one that a published β_p implies; None where there is neither. A machine
    without a data sheet (a CPU) has None for every figure, and pairs whose step times were measured. `link_gb_s` is
    what one GPU sends to another in one direction, GB/s; None where the profile does not say.
    """

    name: str
    label: str
    aliases: tuple[str, ...]
    memory_gb: float | None
    bandwidth_tb_s: float | None
    dense_bf16_tflops: float | None
    flops: float | None
    attention: str | None
    attention_efficiency: float | None
    link_gb_s: float | None
    sources: Mapping[str, str]
    fits: Mapping[str, Fit]
    kv_tokens: Mapping[str, int]
    prices: Mapping[str, Price]

    @property
    def has_sheet(self) -> bool:
        """Whether a data sheet's figures are known."""
        return self.memory_gb is not None
