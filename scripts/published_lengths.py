"""The lengths that the published experiments' own generators drew, number for number. Used by published_cells.py.

The authors' logs hold the sums; they are equal (tests/unit/reproduce/test_fidelity.py).
"""

from __future__ import annotations

import math

import numpy as np

from workloads.core.trace import Ints

SPREAD = 0.5  # --random-range-ratio of the synthetic workloads
LONGEST = 8192  # and no less than 16 means: where the client cuts geometric outputs


def table4(requests: int) -> tuple[Ints, Ints]:
    """Prompts of 512 tokens and the chat template's 8; outputs within ±25 % of 256."""
    outputs = np.random.RandomState(42).randint(192, 321, requests).astype(np.int64)
    return np.full(requests, 520, dtype=np.int64), outputs


def client(law: str, prompt: int, output: int, requests: int) -> tuple[Ints, Ints]:
    """Of vLLM's benchmark client, seed 0: prompts within ±50 %, outputs `uniform` likewise or `geometric`."""
    rng = np.random.default_rng(0)
    prompts = rng.integers(*_bounds(prompt), size=requests)
    if law == "uniform":
        return prompts, rng.integers(*_bounds(output), size=requests)
    return prompts, rng.geometric(1 / output, size=requests).clip(1, max(16 * output, LONGEST)).astype(np.int64)


def _bounds(mean: int) -> tuple[int, int]:
    return math.floor(mean * (1 - SPREAD)), math.ceil(mean * (1 + SPREAD)) + 1
