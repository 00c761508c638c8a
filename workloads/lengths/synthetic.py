"""Synthetic lengths around two means, drawn anew for every seed."""

from __future__ import annotations

import numpy as np

from workloads.core.errors import WorkloadError
from workloads.core.seeds import generator
from workloads.core.trace import Ints, Trace

LAWS = ("uniform", "geometric", "fixed")


def uniform(rng: np.random.Generator, mean: int, jitter: float, n: int) -> Ints:
    """Whole numbers evenly within ±`jitter` of a mean, at least 1."""
    spread = int(mean * jitter)
    return rng.integers(max(1, mean - spread), mean + spread, size=n, endpoint=True, dtype=np.int64)


def draw_outputs(rng: np.random.Generator, law: str, mean: int, jitter: float, n: int) -> Ints:
    """Output lengths of a mean: `uniform` within ±jitter, `geometric` with p0 = 1/mean, or `fixed`."""
    if law != "geometric":
        return uniform(rng, mean, 0.0 if law == "fixed" else jitter, n)
    # By inversion: P(O > k) = (1 − p0)^k. Quantile of a uniform, so one number a row whatever the mean.
    u = rng.random(n)
    tail = np.log1p(-1.0 / mean) if mean > 1 else -np.inf
    return np.maximum(np.ceil(np.log1p(-u) / tail), 1.0).astype(np.int64)


def synthesize(*, mu_l: int, mu_o: int, jitter: float, law: str, requests: int, seed: int) -> Trace:
    """Prompts of mean μ_L and outputs of mean μ_O, in tokens.

    Law `uniform`: whole numbers evenly within ±jitter of each mean; `geometric`: prompts as uniform, outputs
    geometric with p0 = 1/μ_O (decode is memoryless, as the paper's model assumes); `fixed`: the means.
    """
    if jitter > 1:
        raise WorkloadError(f"synthetic: jitter={jitter} is above 1: lengths would be negative")
    if requests < 1:
        raise WorkloadError(f"synthetic: {requests} requests asked for: give 1 or more")
    rng = generator(seed, "lengths")
    if law == "fixed":
        jitter = 0.0
    prompt = uniform(rng, mu_l, jitter, requests)
    output = draw_outputs(rng, law, mu_o, jitter, requests)
    source = {"kind": "synthetic", "law": law, "mu_l": mu_l, "mu_o": mu_o, "jitter": jitter, "seed": seed}
    return Trace("synthetic", prompt, output, source)
