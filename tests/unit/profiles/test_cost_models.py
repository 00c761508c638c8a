"""Both step-cost models against arithmetic to 50 digits, written out from docs/cost-models.md."""

from __future__ import annotations

import pytest
from mpmath import mp, mpf, sqrt

from harness.profiles.cost import CostModel
from harness.profiles.linear import Linear
from harness.profiles.pair import load_pair
from harness.profiles.roofline import Roofline, flops_of_beta

mp.dps = 50

# Qwen3-8B: bytes of weights a step reads, KV bytes a token, heads.
WEIGHTS = 2 * (mpf("6.95e9") + 151936 * 4096)
KV = 2 * 36 * 8 * 128 * 2
Q_HEADS, KV_HEADS, SIZE, LAYERS = 32, 8, 128, 36

# gpu: bandwidth B/s, F FLOP/s, f_a, generation
GPUS = {
    "l40s": (mpf("0.864e12"), mpf("362.05e12"), mpf("0.52"), "fa2"),
    "a100": (mpf("2.039e12"), mpf("312e12"), mpf("0.52"), "fa2"),
    "h100": (mpf("3.35e12"), mpf("989e12"), mpf("0.55"), "fa3"),
    "h200": (mpf("4.8e12"), mpf("989e12"), mpf("0.55"), "fa3"),
    "rtxpro6000": (
        mpf("1.792e12"),
        2 * mpf("6.95e9") / (mpf("0.568") * mpf("5.007938367705191e-05")),
        mpf("0.52"),
        "fa2",
    ),
    "b300": (mpf("8e12"), 2 * mpf("6.95e9") / (mpf("0.568") * mpf("1.28e-5")), mpf("0.5"), "b300"),
}
STEPS = [
    (256, 256 * 128.0, 0, 0, 0),
    (14336, 5e6, 0, 0, 0),
    (0, 0.0, 1, 1, 1),
    (0, 0.0, 1024, 363_520, 4000),
    (1, 0.5, 1, 100, 100),
    (13312, 1_530_880.0, 1024, 363_520, 1200),
]


def roofline(gpu: str, prefill: int, work: float, decodes: int, context: int) -> mpf:
    bandwidth, flops, f_a, generation = GPUS[gpu]
    kappa = KV / (mpf("0.84") * bandwidth)
    if generation == "fa2":
        xi = max(mpf(0), LAYERS * Q_HEADS * 4 * SIZE * 128 / (f_a * flops) - kappa)
    elif generation == "fa3":
        xi = mpf("0.15") * LAYERS * KV_HEADS * 4 * SIZE * 128 / (f_a * flops)
    else:
        xi = mpf(0)
    read = WEIGHTS / (mpf("0.85") * bandwidth)
    multiply = 2 * mpf("6.95e9") / (mpf("0.568") * flops) * (prefill + decodes)
    q = 4 * Q_HEADS * SIZE * LAYERS / (f_a * flops)
    mixed = prefill > 0 and decodes > 0
    return (
        sqrt(read**2 + multiply**2)
        + kappa * context
        + (xi * context if mixed else 0)
        + q * mpf(work)
        + mpf("0.0025")
        + mpf("5e-6") * decodes
    )


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("step", STEPS)
def test_roofline_follows_the_formula(gpu: str, step: tuple[int, float, int, int, int]) -> None:
    cost = load_pair(gpu, "Qwen3-8B").cost("roofline")
    prefill, work, decodes, context, _ = step
    assert cost.seconds(*step) == pytest.approx(float(roofline(gpu, prefill, work, decodes, context)), rel=1e-14)


def test_roofline_by_hand_on_the_l40s() -> None:
    cost = load_pair("l40s", "Qwen3-8B").cost("roofline")
    assert isinstance(cost, Roofline)
    assert cost.source == "derived"
    assert cost.beta_s == pytest.approx(2 * 6.95e9 / (0.568 * 362.05e12), rel=1e-15)
    assert cost.weight_read_s == pytest.approx(15_144_659_712 / (0.85 * 0.864e12), rel=1e-15)
    assert cost.kappa_s == pytest.approx(147_456 / (0.84 * 0.864e12), rel=1e-15)
    assert cost.q_s == pytest.approx(589_824 / (0.52 * 362.05e12), rel=1e-15)


def test_a_mixed_step_costs_xi_more_a_token_of_decode_context() -> None:
    cost = Roofline(weight_read_s=0.01, beta_s=1e-5, kappa_s=1e-7, xi_s=3e-7, q_s=1e-9, host_s=0.0, decode_s=0.0)
    without = cost.seconds(1000, 5e5, 100, 0, 0)
    assert cost.seconds(1000, 5e5, 100, 50_000, 900) - without == pytest.approx(50_000 * 4e-7, rel=1e-12)


def test_b300_has_no_surcharge_and_hopper_a_small_one() -> None:
    xi = {gpu: load_pair(gpu, "Qwen3-8B").cost("roofline").parameters()["xi_s"] for gpu in GPUS}
    assert xi["b300"] == 0
    assert 0 < xi["h200"] == xi["h100"] < xi["l40s"] < xi["a100"]


def test_flops_of_beta_inverts_beta() -> None:
    assert flops_of_beta(2 * 6.95e9 / (0.568 * 989e12), 6.95e9) == pytest.approx(989e12, rel=1e-15)


@pytest.mark.parametrize("step", STEPS)
def test_linear_follows_the_formula_on_the_h200(step: tuple[int, float, int, int, int]) -> None:
    cost = load_pair("h200", "Qwen3-8B").cost("linear")
    prefill, _, decodes, _, _ = step
    if not decodes:
        expected = mpf("0.0012785933415095027") + mpf("2.4852551825304505e-05") * prefill
    elif not prefill:
        expected = mpf("0.008921181622454422") + mpf("4.586467522217373e-05") * decodes
    else:
        tokens = prefill + decodes
        r = mpf(decodes) / tokens
        beta = mpf("2.493675e-05") + mpf("5.192856e-05") * r + mpf("1.477785e-05") * r**2
        expected = mpf("0.0012785933415095027") + beta * tokens
    assert isinstance(cost, Linear)
    assert cost.source == "published"
    assert cost.seconds(*step) == pytest.approx(float(expected), rel=1e-14)


def test_the_assumed_mixed_step_adds_up() -> None:
    cost = load_pair("h200", "Qwen3-30B-A3B").cost()
    expected = 0.024418378779002728 + 1.3469461722159253e-05 * 900 + 2.427040676401368e-05 * 300
    assert cost.seconds(900, 1e5, 300, 90_000, 500) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("kind", ["linear", "roofline"])
def test_a_model_answers_in_plain_floats(kind: str) -> None:
    cost: CostModel = load_pair("h200", "Qwen3-8B").cost(kind)
    assert cost.name == kind
    for step in STEPS:
        assert type(cost.seconds(*step)) is float
    for name, value in cost.parameters().items():
        assert type(value) is float
        assert name.endswith("_s")
    assert cost.decode_seconds(7, 700, 200, 0).shape == (0,)
