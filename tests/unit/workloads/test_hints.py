"""What a scheduler is told of output lengths: the grammar, the errors of the predictor, and what is said of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.drive.endpoint import Endpoint
from harness.engines.client import Client
from harness.engines.endpoint import EndpointEngine
from harness.engines.outlived import Outlived
from harness.report.comparison import compare
from harness.report.document import run_document
from harness.session.ask import Asked
from harness.session.grid import plan_runs
from harness.session.lengths import known_to, notes_on
from harness.session.one_run import prepare, run
from tests.support.runfactory import SPEC, toy_run, write_run
from workloads.catalog import load_workload
from workloads.core.arrivals import Closed
from workloads.core.errors import WorkloadError
from workloads.core.options import split
from workloads.core.stream import Stream
from workloads.core.trace import Trace
from workloads.lengths.hints import Hints, canonical_lengths, hints_of

OUTPUT = np.random.default_rng(5).geometric(1 / 200, 20_000)
TRACE = Trace("some", np.ones(len(OUTPUT), np.int64), OUTPUT.astype(np.int64))


def told(lengths: str, trace: Trace = TRACE, seed: int = 0) -> Hints:
    hints = hints_of(lengths, trace, seed)
    assert hints is not None
    return hints


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("none", "none"),
        ("oracle", "oracle"),
        ("trace", "trace"),
        ("noisy:sigma=.30", "noisy:sigma=0.3"),
        ("interval:sigma=0.3", "interval:high=0.95,low=0.05,sigma=0.3"),
        ("interval:sigma=0.3,low=0.5,high=0.5", "interval:high=0.5,low=0.5,sigma=0.3"),
    ],
)
def test_one_way_to_write_it(text: str, canonical: str) -> None:
    assert canonical_lengths(text) == canonical_lengths(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("orakle", r"did you mean oracle\?"),
        ("oracle:sigma=1", "has no option 'sigma'"),
        ("noisy", "needs sigma="),
        ("noisy:sigma=-1", "below 0"),
        ("noisy:sigma=nan", "not finite"),
        ("noisy:sigma=4", "predicts nothing"),
        ("interval:sigma=0.3,low=0", "quantiles, 0 < low <= high < 1"),
        ("interval:sigma=0.3,high=1", "quantiles, 0 < low <= high < 1"),
        ("interval:sigma=0.3,low=0.6,high=0.4", "quantiles, 0 < low <= high < 1"),
        ("noisy:0.3,x", "not an option"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, says: str) -> None:
    with pytest.raises(WorkloadError, match=says) as caught:
        canonical_lengths(text)
    assert "\n" not in str(caught.value)


def test_an_oracle_knows_and_none_does_not() -> None:
    assert hints_of("none", TRACE, 0) is None
    hints = told("oracle")
    assert (hints.low == OUTPUT).all()
    assert (hints.high == OUTPUT).all()


@pytest.mark.parametrize("sigma", [0.0, 0.3, 1.0])
def test_the_error_of_a_noisy_prediction_is_lognormal(sigma: float) -> None:
    hints = told(f"noisy:sigma={sigma}")
    assert (hints.low == hints.high).all()
    long = OUTPUT > 100  # rounding to whole tokens weighs little
    errors = np.log(hints.high[long] / OUTPUT[long])
    assert abs(float(errors.mean())) < 0.03 + 0.03 * sigma
    assert float(errors.std()) == pytest.approx(sigma, abs=0.02)


@pytest.mark.parametrize(("low", "high"), [(0.05, 0.95), (0.5, 0.5), (0.1, 0.6)])
def test_the_ends_of_an_interval_are_its_quantiles(low: float, high: float) -> None:
    hints = told(f"interval:sigma=0.5,low={low},high={high}")
    long = OUTPUT > 100
    assert (hints.low <= hints.high).all()
    assert float((hints.low > OUTPUT)[long].mean()) == pytest.approx(low, abs=0.015)
    assert float((hints.high < OUTPUT)[long].mean()) == pytest.approx(1 - high, abs=0.015)


def test_a_request_is_told_the_same_whatever_follows_it_and_other_things_by_another_seed() -> None:
    part = Trace("part", TRACE.prompt_tokens[:100], TRACE.output_tokens[:100])
    assert (told("noisy:sigma=1", part).high == told("noisy:sigma=1").high[:100]).all()
    assert (told("noisy:sigma=1", seed=1).high != told("noisy:sigma=1").high).mean() > 0.9


def test_a_trace_of_ones_is_never_told_less_than_a_token() -> None:
    ones = Trace("ones", np.ones(999, np.int64), np.ones(999, np.int64))
    assert told("interval:sigma=3", ones).low.min() == 1
    assert told("noisy:sigma=3", ones).high.min() == 1


def test_hints_of_the_trace_go_with_its_rows_and_count_as_part_of_it() -> None:
    low, high = np.array([1, 2, 3]), np.array([4, 5, 6])
    trace = Trace("hinted", np.array([7, 7, 7]), np.array([9, 9, 9]), hint_low=low, hint_high=high)
    taken = told("trace", trace.take(np.array([2, 0])))
    assert (taken.low.tolist(), taken.high.tolist()) == ([3, 1], [6, 4])
    assert trace.digest != dataclasses.replace(trace, hint_high=high + 1).digest
    with pytest.raises(WorkloadError, match="--lengths trace: some has no out_hint"):
        hints_of("trace", TRACE, 0)


def test_the_digest_of_a_trace_without_hints_is_as_it_was() -> None:
    assert Trace("x", np.array([1]), np.array([2])).digest.startswith("e982670b")


def test_a_policy_is_told_only_what_it_looks_at() -> None:
    assert known_to("v1", "oracle") == "none"
    assert known_to("ebplus:delta=1e-05", "noisy:sigma=0.3") == "none"
    assert known_to("ljf", "oracle") == known_to("isjl:alpha=9,plan=0.5", "oracle") == "oracle"
    assert known_to("isjl:alpha=9", "none") == "none"
    with pytest.raises(UserError, match="sjf goes by output lengths, and none are known: give --lengths oracle"):
        known_to("sjf", "none")
    with pytest.raises(UserError, match="plan does nothing without --lengths"):
        known_to("isjl:alpha=9,plan=0.5", "none")


def of_50(workload: str, requests: int | None) -> Trace:
    name, given = split(workload)
    return load_workload(name, given, requests=50, seed=0, model=SPEC.model)


def asked(policies: tuple[str, ...], lengths: str, engine: str = "simulated") -> list[RunSpec]:
    template = dataclasses.replace(SPEC, lengths=lengths, engine=engine)
    return plan_runs(Asked(("l40s",), policies, ("synthetic:mu_l=64,mu_o=16",), template, 50), of_50)


def test_runs_are_planned_with_what_each_policy_looks_at() -> None:
    assert {spec.policy: spec.lengths for spec in asked(("v1,sjf",), "oracle")} == {"v1": "none", "sjf": "oracle"}
    with pytest.raises(UserError, match="--lengths oracle: v1, eb would not look at it: leave it out"):
        asked(("v1,eb",), "oracle")
    (spec,) = asked(("what I say it is",), "oracle", "endpoint")
    assert (spec.lengths, spec.label) == ("oracle", "what I say it is [oracle lengths]")


def test_an_oracle_is_said_to_be_one_and_nothing_known_too() -> None:
    assert "could not be deployed" in notes_on("ljf", "oracle")[0]
    assert "plans nothing (plan 0)" in notes_on("isjl:alpha=5", "none")[0]
    assert notes_on("v1", "none") == notes_on("external", "none") == []


def test_who_outlives_the_most_that_was_expected_is_counted() -> None:
    outlived = Outlived(Hints(np.array([1, 1, 1]), np.array([4, 5, 6])))
    outlived.see(np.array([2, 0]), np.array([7, 4]))
    outlived.see(np.array([1]), np.array([6]))
    assert outlived.observed == {"lengths": {"outlived": 2, "ended": 3}}
    assert outlived.notes == ["2 of 3 requests outlived the most that was expected of them"]
    assert Outlived(None).observed == {}


def test_a_run_keeps_what_was_known_and_who_outlived_it(tmp_path: Path) -> None:
    spec = RunSpec(
        gpu="h200",
        model="Qwen/Qwen3-8B",
        policy="sjf",
        workload="synthetic:mu_l=64,mu_o=64",
        arrival="closed:concurrency=64",
        requests=300,
        slots=32,
        lengths="interval:high=0.5,low=0.1,sigma=0.5",
    )
    done = run(prepare(spec), tmp_path, [], lambda _: None, lambda: False)
    assert done.spec.label == "sjf [interval:high=0.5,low=0.1,sigma=0.5 lengths]"
    told = done.manifest["lengths"]
    assert told["ended"] == 300
    assert 100 < told["outlived"] < 200
    assert f"{told['outlived']} of 300 requests outlived the most that was expected of them" in done.manifest["notes"]
    assert run_document(done)["outlived"] == told["outlived"]
    assert run_document(done)["lengths"] == spec.lengths


def test_a_server_is_told_in_each_request() -> None:
    stream = Stream(Trace("some", np.array([3, 4]), np.array([5, 6])), Closed(1), None)
    spec = dataclasses.replace(SPEC, lengths="oracle")
    endpoint = Endpoint(url="http://127.0.0.1:1", chat=False)
    for lengths, hints in (("oracle", [5, 6]), ("none", [None, None]), ("interval:sigma=1", None)):
        engine = EndpointEngine(dataclasses.replace(spec, lengths=lengths), stream, endpoint, Client(vocabulary=1000))
        found = [json.loads(one.body).get("vllm_xargs", {}).get("out_hint") for one in engine.requests.planned()]
        assert found == hints or (hints is None and all(low < high for low, high in found))


def test_knowledge_may_differ_where_one_policy_would_not_look_at_it(tmp_path: Path) -> None:
    requests, steps = toy_run(60)

    def made(policy: str, lengths: str) -> Path:
        return write_run(tmp_path, requests, steps, spec=dataclasses.replace(SPEC, policy=policy, lengths=lengths))

    plain, oracle, blind = made("v1", "none"), made("ljf", "oracle"), made("isjl:alpha=5", "none")
    found = compare([plain], [oracle])
    assert found.differences["lengths"] == ("none", "oracle")
    assert found.notes[0] == "ljf [oracle lengths]: knew every output length beforehand, so it could not be deployed"
    with pytest.raises(UserError, match=r"lengths: none \| oracle"):
        compare([blind], [oracle])
    assert compare([blind], [oracle], frozenset({"lengths"})).refusal is None
