"""Outputs as a model stops by itself under a cap."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.catalog import canonical_workload, load_workload
from workloads.core.errors import WorkloadError
from workloads.lengths.filters import natural_stops


@pytest.mark.parametrize(("mean", "cap"), [(360, 500), (10, 4000), (499, 500), (1, 2)])
def test_the_mean_is_what_was_asked_for_with_cut_ones_in_it(mean: int, cap: int) -> None:
    drawn = natural_stops(200_000, mean, cap)
    assert drawn.min() >= 1
    assert drawn.max() <= cap
    assert drawn.mean() == pytest.approx(mean, rel=0.01)


def test_each_token_is_as_likely_the_last() -> None:
    drawn = natural_stops(200_000, 360, 500)
    ages = np.array([50, 200, 450])
    hazard = [float(np.mean(drawn[drawn >= age] == age)) for age in ages]
    # The chance that gives 360 under 500: (1 − (1 − p)^500)/p = 360.
    assert hazard == pytest.approx([0.00139] * 3, abs=4e-4)
    assert np.mean(drawn == 500) == pytest.approx(0.5, abs=0.01)


def test_outputs_belong_to_the_rows_and_not_to_the_seed() -> None:
    def rows(requests: int, seed: int) -> list[int]:
        found = load_workload("sharegpt", {"natural": "360"}, requests=requests, seed=seed, model="Qwen/Qwen3-8B")
        outputs: list[int] = found.output_tokens.tolist()
        return outputs

    assert rows(2000, 0)[1000:] == rows(1000, 1)
    assert canonical_workload("sharegpt", {"natural": "360"}) == "sharegpt:natural=360"
    assert canonical_workload("sharegpt", {"natural": "0"}) == "sharegpt"


@pytest.mark.parametrize(
    "given", [{"natural": "500"}, {"natural": "9", "forced": "5"}, {"natural": "9", "output_cap": "0"}]
)
def test_a_mean_that_the_cap_does_not_allow(given: dict[str, str]) -> None:
    with pytest.raises(WorkloadError, match=r"^sharegpt: natural=.* give 1 to less than the cap, without forced$"):
        load_workload("sharegpt", given, requests=10, seed=0, model="Qwen/Qwen3-8B")
