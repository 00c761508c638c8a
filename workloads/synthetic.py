"""Synthetic lengths around two means, drawn anew for every seed."""

from __future__ import annotations

import numpy as np

from workloads.errors import WorkloadError
from workloads.seeds import generator
from workloads.trace import Ints, Trace

LAWS = ("uniform", "geometric", "fixed")


def _uniform(rng: np.random.Generator, mean: int, jitter: float, n: int) -> Ints:
    spread = int(mean * jitter)
    return rng.integers(max(1, mean - spread), mean + spread, size=n, endpoint=True, dtype=np.int64)


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
    prompt = _uniform(rng, mu_l, jitter, requests)
    if law == "geometric":
        # By inversion: P(O > k) = (1 − p0)^k. Quantile of a uniform, so one number a row whatever the mean.
        u = rng.random(requests)
        tail = np.log1p(-1.0 / mu_o) if mu_o > 1 else -np.inf
        output = np.maximum(np.ceil(np.log1p(-u) / tail), 1.0).astype(np.int64)
    else:
        output = _uniform(rng, mu_o, jitter, requests)
    source = {"kind": "synthetic", "law": law, "mu_l": mu_l, "mu_o": mu_o, "jitter": jitter, "seed": seed}
    return Trace("synthetic", prompt, output, source)
