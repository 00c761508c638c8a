"""Skipping ahead costs what stepping costs, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.profiles.cost import CostModel
from harness.profiles.linear import Linear
from harness.profiles.pair import load_pair
from harness.profiles.roofline import Roofline

seconds = st.floats(1e-9, 1.0, allow_subnormal=False)
rooflines = st.builds(
    Roofline,
    weight_read_s=seconds,
    beta_s=seconds,
    kappa_s=seconds,
    xi_s=seconds,
    q_s=seconds,
    host_s=seconds,
    decode_s=seconds,
)
linears = st.builds(
    Linear,
    alpha_p_s=seconds,
    beta_p_s=seconds,
    alpha_d_s=seconds,
    beta_d_s=seconds,
    alpha_mb_s=seconds,
    mixed_a_s=seconds,
    mixed_b_s=seconds,
    mixed_c_s=seconds,
    source=st.just("published"),
)


def check(cost: CostModel, decodes: int, context: int, longest: int, steps: int) -> None:
    ahead = cost.decode_seconds(decodes, context, longest, steps)
    one_by_one = np.array(
        [cost.seconds(0, 0.0, decodes, context + j * decodes, longest + j) for j in range(steps)], dtype=np.float64
    )
    assert ahead.dtype == np.float64
    assert ahead.tobytes() == one_by_one.tobytes()


@given(
    st.one_of(rooflines, linears),
    st.integers(1, 4096),
    st.integers(1, 2_000_000),
    st.integers(1, 40_960),
    st.integers(0, 300),
)
def test_decode_seconds_equals_seconds_bit_for_bit(
    cost: CostModel, decodes: int, context: int, longest: int, steps: int
) -> None:
    check(cost, decodes, context, longest, steps)


@pytest.mark.parametrize("gpu", ["l40s", "a100", "h100", "h200", "rtxpro6000", "b300"])
def test_the_profiles_that_ship_skip_ahead_bit_for_bit(gpu: str) -> None:
    pair = load_pair(gpu, "Qwen3-8B")
    for cost in (pair.cost(), pair.cost("roofline"), pair.cost("kernels")):
        for decodes in (1, 3, 255, 1024):
            check(cost, decodes, decodes * 231, 4000, 2000)


KERNELS = {gpu: load_pair(gpu, "Qwen3-8B").cost("kernels") for gpu in ("l40s", "h200", "b300")}


@given(
    st.sampled_from(sorted(KERNELS)),
    st.integers(1, 4096),
    st.floats(2, 200_000),
    st.integers(0, 300),
)
def test_kernels_skip_ahead_bit_for_bit(gpu: str, decodes: int, mean: float, steps: int) -> None:
    check(KERNELS[gpu], decodes, int(decodes * mean), 0, steps)


@given(rooflines, st.integers(0, 5000), st.integers(1, 1024), st.integers(1, 10**6))
def test_more_work_never_costs_less(cost: Roofline, prefill: int, decodes: int, context: int) -> None:
    base = cost.seconds(prefill, float(prefill), decodes, context, 0)
    assert cost.seconds(prefill + 1, float(prefill + 1), decodes, context, 0) >= base
    assert cost.seconds(prefill, float(prefill), decodes + 1, context, 0) >= base
    assert cost.seconds(prefill, float(prefill), decodes, context + 1, 0) >= base
