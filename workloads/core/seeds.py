"""One seed a run, one independent stream of random numbers for each purpose."""

from __future__ import annotations

import numpy as np

from workloads.core.errors import WorkloadError

# Never renumber: a tag is part of what a seed means.
TAGS = {"lengths": 1, "arrivals": 2, "prompts": 3, "order": 4, "hints": 9, "pieces": 11, "natural": 12}


def generator(seed: int, purpose: str, *part: int) -> np.random.Generator:
    """A PCG64 generator for (seed, purpose, part): the same numbers in every process and on every platform."""
    if seed < 0:
        raise WorkloadError(f"seed {seed} is negative: give 0 or more")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, TAGS[purpose], *part])))
