"""Model 2: a step costs what reading the weights and multiplying with them take, and what attention adds.

T = sqrt((W/(0.85·BW))² + (β·tokens)²) + κ·S_dec + [mixed]·ξ·S_dec + q·A_pre + t_host + h·decodes
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from typing import ClassVar

import numpy as np
import numpy.typing as npt

HOST_S = 2.5e-3  # t_host, s a step
DECODE_S = 5e-6  # h, s a decode
WEIGHT_READ = 0.85  # of the bandwidth, when weights stream
KV_READ = 0.84  # of the bandwidth, when the KV cache is read
GEMM = 0.568  # of the dense bf16 peak, in the linear layers
TILE = 128  # rows that an attention tile pads a decode's single query to in a mixed batch


@dataclass(frozen=True, slots=True)
class Roofline:
    """Step costs derived from a GPU's data sheet and a model's configuration: a prediction.

    `weight_read_s` W/(0.85·BW), s; `beta_s` β, s a token; `kappa_s` κ, s a token of decode context; `xi_s` ξ,
    the same again in a mixed step; `q_s` q, s a token² of prefill work; `host_s` t_host, s; `decode_s` h, s a
    decode. `source` is `derived`.
    """

    name: ClassVar[str] = "roofline"

    weight_read_s: float
    beta_s: float
    kappa_s: float
    xi_s: float
    q_s: float
    host_s: float = HOST_S
    decode_s: float = DECODE_S
    source: str = "derived"
    # What `seconds` would otherwise compute a hundred thousand times a second.
    _weight_squared: float = field(init=False, repr=False, compare=False)
    _mixed_s: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_weight_squared", self.weight_read_s * self.weight_read_s)
        object.__setattr__(self, "_mixed_s", self.kappa_s + self.xi_s)

    def seconds(
        self,
        prefill_tokens: int,
        prefill_work: float,
        decodes: int,
        decode_context: int,
        longest: int,  # not read: the step cost follows the sum of contexts, not the longest
    ) -> float:
        """The cost of one step, s."""
        gemm = self.beta_s * (prefill_tokens + decodes)
        base = sqrt(self._weight_squared + gemm * gemm) + self.host_s + self.decode_s * decodes
        if not prefill_tokens:
            return base + self.kappa_s * decode_context
        if not decodes:
            return base + self.q_s * prefill_work
        return base + self._mixed_s * decode_context + self.q_s * prefill_work

    def decode_seconds(
        self,
        decodes: int,
        decode_context: int,
        longest: int,
        steps: int,
    ) -> npt.NDArray[np.float64]:
        """The costs of `steps` decode-only steps in a row, s, shape (steps,).

        The operations and their order are those of `seconds`, so that both give the same bits.
        """
        gemm = self.beta_s * decodes
        base = sqrt(self._weight_squared + gemm * gemm) + self.host_s + self.decode_s * decodes
        # Whole numbers far below 2**53: as floats they are exact.
        contexts = decode_context + decodes * np.arange(steps, dtype=np.float64)
        return base + self.kappa_s * contexts

    def parameters(self) -> dict[str, float]:
        """The seven figures of the formula, s, s/token, s/token² and s/decode."""
        return {
            "weight_read_s": self.weight_read_s,
            "beta_s": self.beta_s,
            "kappa_s": self.kappa_s,
            "xi_s": self.xi_s,
            "q_s": self.q_s,
            "host_s": self.host_s,
            "decode_s": self.decode_s,
        }


def derive(
    *,
    bandwidth: float,
    flops: float,
    attention: str,
    attention_efficiency: float,
    parameters_per_token: float,
    weights_read_bytes: float,
    kv_bytes_per_token: float,
    layers: int,
    query_heads: int,
    kv_heads: int,
    head_size: int,
    host_s: float = HOST_S,
    decode_s: float = DECODE_S,
) -> Roofline:
    """The model of a GPU (`bandwidth` B/s, `flops` dense bf16 FLOP/s) and a dense model.

    `attention` is the kernels' generation, `fa2`, `fa3` or `b300`, `attention_efficiency` f_a, the part of
    the peak that they reach. ξ depends on the generation: FA2 pads each decode to a tile of 128 queries in a
    mixed batch, FA3 hides most of it, on B300 it is assumed to be 0.
    """
    attention_flops = attention_efficiency * flops
    kappa_s = kv_bytes_per_token / (KV_READ * bandwidth)
    xi_s = {
        "fa2": max(0.0, layers * query_heads * 4 * head_size * TILE / attention_flops - kappa_s),
        "fa3": 0.15 * layers * kv_heads * 4 * head_size * TILE / attention_flops,
        "b300": 0.0,
    }[attention]
    return Roofline(
        weight_read_s=weights_read_bytes / (WEIGHT_READ * bandwidth),
        beta_s=2 * parameters_per_token / (GEMM * flops),
        kappa_s=kappa_s,
        xi_s=xi_s,
        q_s=4 * query_heads * head_size * layers / attention_flops,
        host_s=host_s,
        decode_s=decode_s,
    )


def flops_of_beta(beta_p_s: float, parameters_per_token: float) -> float:
    """The dense bf16 peak, FLOP/s, that a published β_p (s/token) implies: β = 2·P/(0.568·F) solved for F."""
    return 2 * parameters_per_token / (GEMM * beta_p_s)
