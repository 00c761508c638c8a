"""The batch loop at its limits: caches that hold one request, leaps of thousands of steps, a large batch."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from harness.profiles.cost import CostModel
from tests.support.batch_cases import tight
from tests.support.batch_models import MODELS
from tests.support.batch_played import check_conservation, check_equal, check_same, play
from tests.support.oracle_rows import LENGTH

NAMED: tuple[tuple[str, dict[str, str]], ...] = (
    ("v0", {}),
    ("v1", {}),
    ("eb", {"k": "1"}),
    ("eb", {"k": "N"}),
    ("eb", {"update_every": "1"}),
    ("ebplus", {"delta": "-1", "update_every": "1", "cooldown": "1"}),
    ("ebplus", {"delta": "1", "update_every": "1", "cooldown": "1"}),
)


@pytest.mark.parametrize(("policy", "options"), NAMED, ids=str)
@pytest.mark.parametrize("slots", [1, 2, 7])
def test_no_request_waits_for_ever(policy: str, options: dict[str, str], slots: int) -> None:
    options = {name: value.replace("N", str(slots)) for name, value in options.items()}
    rng = random.Random(slots)
    some, many = [rng.randint(1, 50) for _ in range(40)], [rng.randint(1, 60) for _ in range(40)]
    for case in (
        tight(policy, options, some, many, slots=slots),
        tight(policy, options, [1000 if i % 7 == 0 else 3 for i in range(40)], many, slots=slots),  # giant prompts
        tight(policy, options, some, [1] * 40, slots=slots),  # no decode at all
        tight(policy, options, [1] * 40, [1] * 40, slots=slots, block_size=1),  # a cache of two tokens
        tight(policy, options, some, many, slots=slots, token_budget=slots),  # a token a slot
        tight(policy, options, some, many, slots=slots, token_budget=4096, kv_blocks=4096),
        tight(policy, options, [5], [3], slots=slots),  # fewer requests than k
    ):
        for now in (case, dataclasses.replace(case, due_ns=None, concurrency=2 * slots)):
            oracle, played = now.oracle(), play(now)
            check_equal(now, oracle, played)
            check_conservation(now, played)
            assert (played.request_column("finish") == LENGTH).all()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.name}")
def test_leaps_of_thousands_of_steps_give_the_same_bits(model: CostModel) -> None:
    lengths = [(7, 9000), (300, 5003), (1, 4096), (20, 4097), (20, 8192)]
    case = dataclasses.replace(
        tight("v1", {}, [p for p, _ in lengths], [o for _, o in lengths], kv_blocks=1100),
        due_ns=(0, 0, 10**6, 10**9, 10**9),
        model=model,
    )
    leapt = play(case)
    check_same(leapt, play(case, leap=False))
    check_conservation(case, leapt)


@pytest.mark.parametrize(
    ("policy", "options"), [NAMED[1], ("eb", {"k": "16"}), ("ebplus", {"delta": "-1e-4"})], ids=str
)
def test_a_batch_of_sixty_four_equals_the_oracle(policy: str, options: dict[str, str]) -> None:
    rng = np.random.default_rng(7)
    prompts, outputs = rng.geometric(1 / 150, 400).tolist(), rng.geometric(1 / 80, 400).tolist()
    case = tight(policy, options, prompts, outputs, slots=64, token_budget=1024, kv_blocks=700)
    case = dataclasses.replace(case, due_ns=None, concurrency=100, model=MODELS[3], every=500)
    oracle, leapt = case.oracle(), play(case)
    check_equal(case, oracle, leapt)
    check_same(leapt, play(case, leap=False))
    check_conservation(case, leapt)
    assert leapt.column("running").max() > 40
    assert policy != "v1" or leapt.loop.preemptions
