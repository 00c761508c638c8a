"""v1-interval: prompts wait for the n-th step."""

from __future__ import annotations

import numpy as np

from harness.core.records import PHASES
from harness.simulate.rows import Rows
from tests.support.batch_models import Flat
from tests.unit.policies.test_adaptive import play
from workloads.core.arrivals import Closed, Constant
from workloads.core.stream import Stream
from workloads.core.trace import Trace

MS = 1_000_000


def steps_with_prompts(rows: Rows) -> list[int]:
    return np.flatnonzero(rows.step_column("prefill_tokens")).tolist()


def arriving(due_ms: list[float], prompt: int = 10, output: int = 30) -> Stream:
    n = len(due_ms)
    trace = Trace("drawn", np.full(n, prompt, np.int64), np.full(n, output, np.int64))
    return Stream(trace, Constant(1.0), (np.array(due_ms) * MS).astype(np.int64))


def test_who_comes_waits_for_the_nth_step_since_the_last_prompt() -> None:
    """Steps of 1 ms; the second comes in step 2, the third in step 9, long after the last prompt."""
    given = arriving([0.0, 1.5, 8.5])
    assert steps_with_prompts(play("v1", given, Flat())) == [0, 2, 9]
    assert steps_with_prompts(play("v1-interval:n=5", given, Flat())) == [0, 5, 10]


def test_an_interval_of_one_is_v1() -> None:
    given = arriving([float(i) for i in range(0, 200, 3)])
    assert (play("v1-interval:n=1", given, Flat()).steps == play("v1", given, Flat()).steps).all()


def test_a_prompt_of_several_steps_waits_between_them() -> None:
    given = arriving([0.0, 1.5], prompt=4000)
    v1, spaced = play("v1", given, Flat()), play("v1-interval:n=3", given, Flat())
    assert steps_with_prompts(v1) == [0, 1, 2, 3]
    # Of the first, alone, both halves at once; of the second one half every third step.
    assert steps_with_prompts(spaced) == [0, 1, 4, 7]
    assert PHASES[spaced.step_column("phase")[5]] == "decode"


def test_nobody_is_held_back_once_a_step_leaves_somebody_waiting() -> None:
    rng = np.random.default_rng(1)
    trace = Trace("drawn", rng.integers(20, 200, 300), rng.integers(1, 60, 300))
    given = Stream(trace, Closed(100), None)  # more than there are slots
    assert (play("v1-interval:n=7", given, Flat()).steps[:200] == play("v1", given, Flat()).steps[:200]).all()
