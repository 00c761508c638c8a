"""Whether cost models agree about a simulated gain, and what is then said of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.engines.base import Status
from harness.report.comparison import Comparison, compare_runs
from harness.report.fail_on import parse_fail_on
from harness.report.sentences import sentences
from harness.report.support import DISAGREE, LIKELY, SUPPORTED, support_of
from harness.runs.run import Run, load_run
from harness.session.one_run import prepare, run

SPEC = RunSpec(
    gpu="h200",
    model="Qwen/Qwen3-8B",
    policy="v1",
    workload="synthetic:mu_l=300,mu_o=100",
    arrival="closed:concurrency=64",
    requests=256,
    slots=48,
    token_budget=2048,
    cost_model="kernels",
)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"kernels": 6, "roofline": 7, "linear": 30}, SUPPORTED),
        ({"kernels": -6, "roofline": -7, "linear": -30}, SUPPORTED),
        ({"kernels": 6, "roofline": 4.9, "linear": 30}, LIKELY),
        ({"kernels": 6, "roofline": 2.0, "linear": 30}, DISAGREE),
        ({"kernels": 6, "roofline": -7, "linear": 30}, DISAGREE),
        ({"kernels": 60, "roofline": 70}, LIKELY),
        ({"kernels": 60}, LIKELY),
        ({"kernels": 1}, DISAGREE),
        ({"kernels": 0, "roofline": 0, "linear": 0}, DISAGREE),
    ],
)
def test_three_models_that_agree_support_a_sign(changes: Mapping[str, float], word: str) -> None:
    assert support_of(changes).word == word


def test_the_band_is_the_mean_of_roofline_and_kernels() -> None:
    assert support_of({"kernels": 6, "roofline": 10, "linear": 30}).band == (-2, 18)
    assert support_of({"kernels": 6, "linear": 30}).band is None
    assert support_of({"kernels": 6, "roofline": 10}, of_throughput=False).band is None


def ran(spec: RunSpec, out: Path, alone: bool = False) -> Run:
    def progress(_: Status) -> None:
        pass

    return run(prepare(spec), out, (), progress, lambda: False, alone)


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    out = tmp_path_factory.mktemp("arms")
    return ran(SPEC, out), ran(replace(SPEC, policy="eb:k=24"), out)


def test_a_run_says_what_the_other_models_make_of_it(arms: tuple[Run, Run], tmp_path: Path) -> None:
    beside = arms[0].manifest["beside"]
    assert set(beside) == {"roofline", "linear"}
    for model, metrics in beside.items():
        own = ran(replace(SPEC, cost_model=model), tmp_path, alone=True)
        summary = own.summary["metrics"]
        assert metrics["output_throughput"] == summary["output_throughput"]["value"]
        assert metrics["ttft_s"] == summary["ttft_s"]["mean"]
        assert metrics["tpot_s"] == summary["tpot_s"]["mean"]
        assert "beside" not in own.manifest


def test_a_comparison_tells_the_gain_under_each_model(arms: tuple[Run, Run]) -> None:
    found = compare_runs([arms[0]], [arms[1]])
    support = found.metrics["output_throughput"].support
    assert support is not None
    assert set(support.changes) == {"kernels", "roofline", "linear"}
    own = found.metrics["output_throughput"]
    assert own.ratio is not None
    assert support.changes["kernels"] == pytest.approx(100 * (own.ratio - 1), abs=1e-9)
    told = found.to_dict()["metrics"]["output_throughput"]["support"]
    assert json.loads(json.dumps(told))["word"] == support.word
    lines = "\n".join(sentences(found))
    assert "by cost model: kernels " in lines
    assert "; the real gain was " in lines
    # What was run alone is not held against anything.
    assert "p99" not in found.metrics["output_throughput"].to_dict()
    assert found.metrics["ttft_s.p99"].support is None


def edited(run: Run, values: dict[str, dict[str, float]]) -> Run:
    """The run as if other models had given these values."""
    path = run.path / "run.json"
    manifest = json.loads(path.read_text()) | {"beside": values}
    path.write_text(json.dumps(manifest))
    return load_run(run.path)


def disagreeing(tmp_path: Path) -> Comparison:
    runs = [
        [ran(replace(SPEC, policy=policy, repeat=i, seed=i), tmp_path) for i in range(3)] for policy in ("v0", "v1")
    ]
    rate = runs[0][0].summary["metrics"]["output_throughput"]["value"]
    arms = [
        [edited(run, {"roofline": {"output_throughput": rate * (1.2 if place else 1.3)}}) for run in arm]
        for place, arm in enumerate(runs)
    ]
    return compare_runs(arms[1], arms[0])


def test_where_models_disagree_nothing_is_better_or_worse(tmp_path: Path) -> None:
    found = disagreeing(tmp_path)
    compared = found.metrics["output_throughput"]
    assert compared.support is not None
    assert compared.p is not None
    # The sampling interval and the models are two things: the first alone would have said worse.
    assert compared.p < 0.05
    assert compared.support.word == DISAGREE
    assert compared.word == DISAGREE
    failing = parse_fail_on("output_throughput>50% supported").failure(found)
    assert failing is not None
    assert DISAGREE in failing


def test_a_condition_can_require_that_models_agree(arms: tuple[Run, Run], tmp_path: Path) -> None:
    found = compare_runs([arms[0]], [arms[1]])
    support = found.metrics["output_throughput"].support
    assert support is not None
    for word in ("supported", "likely"):
        failing = parse_fail_on(f"output_throughput>900% {word}").failure(found)
        enough = (SUPPORTED,) if word == "supported" else (SUPPORTED, LIKELY)
        assert (failing is None) == (support.word in enough)
    alone = [ran(replace(SPEC, policy=policy), tmp_path, alone=True) for policy in ("v1", "v0")]
    failing = parse_fail_on("output_throughput>900% likely").failure(compare_runs(alone[:1], alone[1:]))
    assert failing is not None
    assert "was not compared with other cost models" in failing
    with pytest.raises(UserError, match="not understood"):
        parse_fail_on("output_throughput>9% certain")
