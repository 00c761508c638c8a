"""The policies of others that lie in examples/policies: whom they start first."""

from __future__ import annotations

import numpy as np
import pytest

from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import Rows, joined
from policies.core import Policy
from policies.online.mixed import Mixed
from policies.own.file import read_file
from policies.own.load import make_own
from tests.support.batch_models import Flat
from tests.support.places import ROOT
from workloads.core.arrivals import Poisson
from workloads.core.stream import Stream
from workloads.core.trace import Trace

N = 300
rng = np.random.default_rng(5)
PROMPTS = rng.integers(1, 2000, N)
DUE = np.cumsum(rng.exponential(4e6, N)).astype(np.int64)


def play(policy: Policy) -> Rows:
    trace = Trace("drawn", PROMPTS.astype(np.int64), np.full(N, 20, np.int64))
    parts: list[Rows] = []
    loop = BatchLoop(Stream(trace, Poisson(1.0), DUE), policy, Flat(), EngineLimits(8, 512, 10_000))
    assert loop.run(lambda rows: not parts.append(rows))  # type: ignore[func-returns-value]
    return joined(parts)


def example(name: str, class_name: str, **given: str) -> Policy:
    return make_own(read_file(str(ROOT / "examples/policies" / name), class_name), given, 8, None)


def ttft_s(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """By the trace's rows."""
    waits = np.empty(N)
    waits[rows.request_column("row")] = (rows.request_column("first") - rows.request_column("due")) / 1e9
    return waits


def test_with_one_limit_for_all_the_earliest_deadline_is_the_first_come() -> None:
    ours, v1 = play(example("edf.py", "Edf")), play(Mixed())
    assert (ours.requests == v1.requests).all()


def test_the_first_class_waits_for_nobody_of_the_second() -> None:
    ours, v1 = play(example("priority.py", "Priority", short="400")), play(Mixed())
    first = PROMPTS <= 400
    assert ttft_s(ours)[first].mean() < 0.7 * ttft_s(v1)[first].mean()
    order = [row for row in ours.request_column("row")[np.argsort(ours.request_column("first"))] if first[row]]
    assert order == sorted(order), "first come, first served within a class"


@pytest.mark.parametrize(
    ("name", "class_name", "given"),
    [
        ("edf.py", "Edf", {"per_token": "0.001"}),
        ("ageing.py", "Ageing", {"rate": "1000"}),
        ("mlfq.py", "Mlfq", {"quantum": "64", "promote": "0.2"}),
    ],
)
def test_short_prompts_gain_and_long_ones_wait_but_not_for_ever(
    name: str, class_name: str, given: dict[str, str]
) -> None:
    ours, v1 = ttft_s(play(example(name, class_name, **given))), ttft_s(play(Mixed()))
    short = np.quantile(PROMPTS, 0.25) >= PROMPTS
    assert ours[short].mean() < 0.7 * v1[short].mean()
    assert ours[~short].mean() > v1[~short].mean()
    assert ours.max() < v1.max() + 2.5, "a second of waiting is worth what a long prompt costs"
