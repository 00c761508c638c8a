"""The token-step model and its engine: step tables against plain stepping, the identity, what is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.core.errors import USER_ERRORS
from harness.core.runspec import RunSpec
from harness.engines import tokenstep
from harness.engines.tokenstep import TokenStep, read_cost
from harness.runs.run import Run
from harness.session.one_run import Prepared, run
from harness.simulate.token_steps import segments_of, totals_of
from policies.offline.baselines import fcfs, ljf, makespan
from policies.offline.catalog import canonical_offline, offline_options, plan_offline
from tests.support.token_oracle import steps_of
from workloads.core.arrivals import Offline
from workloads.core.stream import Stream, schedule
from workloads.core.trace import Trace

POLICIES = ("fcfs", "sjf", "ljf", "isjl:alpha=7", "isjl:alpha=7,beta=3", "isjl-best:alpha=7", "isjl-paper:alpha=7")


def parts(text: str) -> tuple[str, dict[str, str]]:
    name, _, rest = text.partition(":")
    return name, dict(part.split("=") for part in rest.split(",")) if rest else {}


def ints(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def replayed(tmp_path: Path, prompts: Sequence[int], lengths: Sequence[int], slots: int, policy: str) -> Run:
    spec = RunSpec(gpu="l40s", model="Qwen/Qwen3-8B", policy=policy, workload="file:t", engine="tokenstep",
                   arrival="offline", requests=len(lengths), slots=slots)  # fmt: skip
    stream = schedule(Offline(), Trace("t", ints(prompts), ints(lengths)), 0)
    return run(Prepared(spec, stream, TokenStep(spec, stream)), tmp_path, ["bench"], lambda _: None, lambda: False)


@pytest.mark.parametrize("policy", POLICIES)
def test_profit_by_the_steps_is_profit_by_the_identity(policy: str) -> None:
    rng = random.Random(policy)
    price, step_cost, token_cost = Fraction(2, 1000), Fraction(5, 10_000), Fraction(1, 10**6)
    for _ in range(30):
        lengths = [rng.randint(1, 30) for _ in range(rng.randint(1, 40))]
        slots = rng.randint(1, 9)
        starts = plan_offline(*parts(policy), lengths, slots)
        steps = steps_of(lengths, starts)
        by_steps = price * sum(lengths) - sum(step_cost + token_cost * step.n * step.most for step in steps)
        totals = totals_of(segments_of(ints(starts), ints(lengths), ints(lengths), slots), ints(lengths))
        identity = (
            price * totals.tokens - token_cost * (totals.resource + totals.externality) - step_cost * totals.steps
        )
        assert by_steps == identity
        assert totals.profit(float(price), float(step_cost), float(token_cost)) == pytest.approx(float(identity))
        assert totals.steps == makespan(lengths, starts) == len(steps)
        assert totals.gap_sum == sum(step.gap for step in steps)
        assert totals.gap_max == max(step.gap for step in steps)


@pytest.mark.parametrize("at_once", [1, 7, 1 << 17])
@pytest.mark.parametrize("policy", POLICIES)
def test_tables_are_what_stepping_gives(
    tmp_path: Path, policy: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenstep, "STEPS_AT_ONCE", at_once)
    rng = random.Random(1)
    lengths = [rng.randint(1, 25) for _ in range(40)]
    prompts = [rng.randint(1, 90) for _ in lengths]
    slots = 5
    done = replayed(tmp_path, prompts, lengths, slots, canonical_offline(*parts(policy)))
    assert done.status == "complete"
    assert done.level == "VALID"
    assert done.kind == "simulated"
    assert done.manifest["provenance"]["cost_model"]["name"] == "tokenstep"
    starts = plan_offline(*parts(policy), lengths, slots)
    table = pq.read_table(done.path / "steps.parquet").to_pylist()
    expected = steps_of(lengths, starts)
    assert len(table) == len(expected)
    ends, now = [], 0
    for t, (row, step) in enumerate(zip(table, expected, strict=True)):
        told = (row["producing"], row["generated_sum"], row["generated_min"], row["generated_max"])
        assert told == (step.n, step.total, step.least, step.most)
        assert row["running"] == row["decode_requests"] == step.n
        assert row["waiting"] == sum(start > t for start in starts)
        held = [p + t - s + 1 for p, s, o in zip(prompts, starts, lengths, strict=True) if s <= t < s + o]
        assert (row["footprint_sum"], row["footprint_min"], row["footprint_max"]) == (sum(held), min(held), max(held))
        duration = 500_000 + 1000 * step.n * step.most
        assert round(row["t_s"] * 1e9) == now
        assert round(row["duration_s"] * 1e9) == duration
        now += duration
        ends.append(now)
    requests = pq.read_table(done.path / "requests.parquet").to_pylist()
    assert sorted(one["row"] for one in requests) == list(range(len(lengths)))
    for one in requests:
        start, length = starts[one["row"]], lengths[one["row"]]
        assert one["output_tokens"] == one["expected_output_tokens"] == length
        assert round(one["first_token_s"] * 1e9) == ends[start]
        assert round(one["last_token_s"] * 1e9) == ends[start + length - 1] == round(one["done_s"] * 1e9)


def test_slots_that_overlap_are_our_own_bug() -> None:
    with pytest.raises(AssertionError):
        segments_of(ints([0, 1]), ints([3, 3]), ints([1, 1]), 1)
    with pytest.raises(AssertionError):
        segments_of(ints([0, 5]), ints([3, 3]), ints([1, 1]), 1)


def test_a_long_makespan_is_a_row_a_step(tmp_path: Path) -> None:
    done = replayed(tmp_path, [10, 10], [400_000, 3], 1, "ljf")
    assert done.manifest["counts"]["steps"] == 400_003
    assert done.manifest["counts"]["completed"] == 2


def test_stopping_leaves_an_interrupted_run(tmp_path: Path) -> None:
    spec = RunSpec(gpu="l40s", model="m", policy="v1", workload="w", engine="tokenstep", arrival="offline", requests=2)
    stream = Stream(Trace("t", ints([1, 1]), ints([5, 5])), Offline(), ints([0, 0]))
    done = run(Prepared(spec, stream, TokenStep(spec, stream)), tmp_path, [], lambda _: None, lambda: True)
    assert (done.status, done.level) == ("interrupted", "INVALID")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("isjl", "isjl needs alpha=…"),
        ("isjl:alpha=-1", "alpha=-1 must be a whole number of tokens of at least 0"),
        ("isjl:alpha=x", "alpha=x must be"),
        ("isjl:alpha=nan", "alpha=nan must be"),
        ("isjl-best", "isjl-best needs alpha"),
        ("isjl-paper:alpha=3,hold=perhaps", "hold=perhaps must be true or false"),
        ("isjl:alpha=3,beta=4", "beta=4 is above alpha=3"),
        ("isjl:alpha=3,gamma=4", "gamma"),
        ("ljf:alpha=3", "alpha"),
        ("ebplus", "plans nothing offline"),
        ("isjll", "did you mean isjl"),
    ],
)
def test_a_policy_that_means_nothing_offline_is_said(policy: str, said: str) -> None:
    with pytest.raises(USER_ERRORS, match=said) as caught:
        canonical_offline(*parts(policy))
    assert "\n" not in str(caught.value)


def test_canonical_names() -> None:
    assert canonical_offline("fcfs", {}) == "v1"
    assert canonical_offline("ISJL", {"alpha": "0100", "beta": "0"}) == "isjl:alpha=100"
    assert canonical_offline("isjl-paper", {"hold": "TRUE", "alpha": "5"}) == "isjl-paper:alpha=5,hold=true"
    for text in POLICIES:
        again = canonical_offline(*parts(text))
        assert canonical_offline(*parts(again)) == again
        assert offline_options(*parts(again)) == offline_options(*parts(text))
    assert plan_offline("v1", {}, [3, 2], 1) == fcfs([3, 2], 1)
    assert plan_offline("ljf", {}, [3, 2], 1) == ljf([3, 2], 1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arrival": "closed:concurrency=8"}, "--concurrency"),
        ({"kv_tokens": 5}, "--kv-tokens"),
        ({"watermark": 0.1}, "--watermark"),
        ({"max_duration_s": 1.0}, "--max-duration"),
        ({"cost_model": "linear"}, "--cost-model linear"),
        ({"cost_model": "tokenstep:c=-1"}, "c=-1"),
        ({"cost_model": "tokenstep:c=x"}, "c=x"),
        ({"cost_model": "tokenstep:rho=1"}, "rho"),
    ],
)
def test_what_has_no_meaning_is_refused(changed: dict[str, object], said: str) -> None:
    spec = RunSpec.from_dict(
        RunSpec(gpu="g", model="m", policy="v1", workload="w", engine="tokenstep", arrival="offline").to_dict()
        | changed
    )
    stream = Stream(Trace("t", ints([1]), ints([1])), Offline(), ints([0]))
    with pytest.raises(USER_ERRORS, match=said):
        TokenStep(spec, stream)


@pytest.mark.parametrize("cost", ["tokenstep:c=1e300", "tokenstep:c=1e7", "tokenstep:c=2e6", "tokenstep:tau=1e17"])
def test_a_run_longer_than_seconds_can_tell_is_said(tmp_path: Path, cost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenstep, "STEPS_AT_ONCE", 2)
    spec = RunSpec(gpu="l40s", model="m", policy="v1", workload="w", engine="tokenstep", arrival="offline", requests=1,
                   cost_model=cost)  # fmt: skip
    stream = Stream(Trace("t", ints([1]), ints([9])), Offline(), ints([0]))
    with pytest.raises(USER_ERRORS, match="lower c, tau and k"):
        run(Prepared(spec, stream, TokenStep(spec, stream)), tmp_path, [], lambda _: None, lambda: False)


def test_the_step_time_has_three_terms() -> None:
    n, most = ints([1, 50]), ints([1, 900])
    assert read_cost("auto").nanoseconds(n, most).tolist() == [501_000, 500_000 + 45_000_000]
    linear = read_cost("tokenstep:c=0.0315,tau=0,k=8.86e-5")
    assert linear.nanoseconds(n, most).tolist() == [31_588_600, 31_500_000 + 79_740_000]
    assert read_cost("tokenstep:c=0,tau=0").nanoseconds(n, most).tolist() == [1, 1]
