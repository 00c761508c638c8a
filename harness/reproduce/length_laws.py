"""The length laws that stand for the data of arXiv 2608.02244, which is not published: fitted, not identified.

Lengths are quantiles of a lognormal law, one in each of n equal strata and shuffled, so that a sample of a few
hundred has the law's sums.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np


def lognormal(n: int, median: float, sigma: float, longest: int, seed: int) -> list[int]:
    """n whole lengths of 1 to `longest` tokens: median·exp(σz), z a stratified standard normal, cut at the longest."""
    rng = np.random.default_rng(seed)
    shares = (rng.permutation(n) + rng.random(n)) / n
    quantile = NormalDist().inv_cdf
    z = np.array([quantile(min(max(share, 1e-12), 1 - 1e-12)) for share in shares.tolist()])
    lengths = np.rint(np.minimum(median * np.exp(sigma * z), longest))
    return [max(1, int(length)) for length in lengths.tolist()]


def of_table1(seed: int) -> list[int]:
    """400 lengths whose FCFS and LJF rows come near those of Tables 1 and 2 (mean 245, Q = 32.0 million)."""
    return lognormal(400, 86.3, 2.03, 933, seed)


def of_table3(seed: int) -> list[int]:
    """2,000 lengths with the median (90), the greatest (905) and about the mean (126) that the paper states."""
    return lognormal(2000, 90.0, 0.82, 905, seed)
