"""Two arms compared: what is refused, what is said, and how often that is right."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.report.arms import arms_of
from harness.report.comparison import compare
from harness.report.sides import with_baseline
from harness.report.words import BETTER, NO_DIFFERENCE, NOT_TESTED, WORSE
from harness.runs.run import load_run
from tests.support.runfactory import SPEC, faster, request, toy_run, write_run, write_toy


def test_a_run_against_itself_shows_no_difference(tmp_path: Path) -> None:
    path = write_toy(tmp_path)
    found = compare([path], [path])
    assert found.differences == {}
    for row in found.metrics.values():
        assert (row.ratio, row.low, row.high, row.p, row.word) == (1.0, 1.0, 1.0, 1.0, NO_DIFFERENCE), row


def test_one_repeat_has_intervals_over_requests_and_no_word(tmp_path: Path) -> None:
    found = compare(*faster(tmp_path, 1))
    assert found.differences == {"policy": ("fcfs", "eb:k=4")}
    assert "one repeat: intervals over requests" in found.method
    for name in ("output_throughput", "request_throughput", "tpot_s", "itl_s", "e2el_s"):
        row = found.metrics[name]
        true = 1.1 if "throughput" in name else 1 / 1.1
        assert row.low is not None
        assert row.high is not None
        assert row.low < true < row.high
        assert (row.word, row.over, row.p) == (NOT_TESTED, "requests", None)
    backwards = compare([found.b[0].path], [found.a[0].path])
    forward = found.metrics["output_throughput"].ratio
    back = backwards.metrics["output_throughput"].ratio
    assert forward is not None
    assert back is not None
    assert forward * back == pytest.approx(1)


def test_repeats_give_a_t_interval(tmp_path: Path) -> None:
    a, b = faster(tmp_path, 3)
    found = compare(a, b)
    assert found.method == "Student's t over 3 paired repeats"
    assert found.notes == ()
    row = found.metrics["output_throughput"]
    assert row.word == BETTER
    assert compare(b, a).metrics["output_throughput"].word == WORSE
    assert row.low is not None
    assert row.high is not None
    assert row.low < 1.1 < row.high
    values = [load_run(path).summary["metrics"]["output_throughput"]["value"] for path in (*a, *b)]
    logs = np.log(np.array(values[3:]) / np.array(values[:3]))
    assert row.ratio == pytest.approx(np.exp(logs.mean()))
    # t with 2 degrees of freedom leaves 2.5 % above 4.3027.
    assert np.log(row.high) == pytest.approx(logs.mean() + 4.302652729911275 * logs.std(ddof=1) / np.sqrt(3))
    # The order in which they are named does not matter.
    assert compare(a[::-1], [b[1], b[0], b[2]]).to_dict()["metrics"] == found.to_dict()["metrics"]
    assert [[run.spec.policy for run in arm] for arm in arms_of([*found.a, *found.b])] == [["fcfs"] * 3, ["eb:k=4"] * 3]


def test_the_document_is_json(tmp_path: Path) -> None:
    document = json.loads(json.dumps(compare(*faster(tmp_path, 1)).to_dict(), allow_nan=False))
    assert {"a", "b", "ratio", "low", "high", "p", "word"} <= document["metrics"]["output_throughput"].keys()
    assert document["ranked"] is True
    assert document["kind"] == ["simulated"]


def refused(a: list[Path], b: list[Path], match: str, allow: frozenset[str] = frozenset()) -> None:
    with pytest.raises(UserError, match=match) as error:
        compare(a, b, allow)
    assert "\n" not in str(error.value)


def test_other_differences_are_refused_unless_allowed(tmp_path: Path) -> None:
    requests, steps = toy_run(100)
    a = write_run(tmp_path, requests, steps)
    b = write_run(tmp_path, requests, steps, spec=dataclasses.replace(SPEC, gpu="h200", slots=8))
    refused([a], [b], r"gpu: l40s \| h200; slots: 1024 \| 8 .*--allow gpu,slots")
    refused([a], [b], "slots", frozenset({"gpu"}))
    refused([a], [b], "--allow xyzzy: not known. It takes a field of the spec", frozenset({"xyzzy"}))
    found = compare([a], [b], frozenset({"gpu", "slots"}))
    assert found.differences == {"gpu": ("l40s", "h200"), "slots": (1024, 8)}
    assert found.metrics["output_throughput"].word == NO_DIFFERENCE, "identical"


@pytest.mark.parametrize("name", ["stream_digest", "cost_model", "engine_version", "async_scheduling"])
def test_provenance_must_agree(tmp_path: Path, name: str) -> None:
    requests, steps = toy_run(50)
    a = write_run(tmp_path / "a", requests, steps, provenance={name: "1"})
    b = write_run(tmp_path / "b", requests, steps, provenance={name: "2"})
    silent = write_run(tmp_path / "c", requests, steps)
    refused([a], [b], name)
    assert compare([a], [b], frozenset({name})).differences[name] == ("1", "2")
    assert compare([a], [silent]).differences == {}


def test_another_realised_trace_is_refused_or_unpaired(tmp_path: Path) -> None:
    a = write_toy(tmp_path / "a", stream_seed=1)
    b = write_toy(tmp_path / "b", stream_seed=2)
    refused([a], [b], "replay different requests")
    found = compare([a], [b], frozenset({"trace"}))
    assert "not paired" in found.notes[0]
    assert found.metrics["output_throughput"].low is not None


def test_an_invalid_run_is_shown_and_not_ranked(tmp_path: Path) -> None:
    requests, steps = toy_run(100)
    a = write_run(tmp_path, requests, steps)
    b = write_run(
        tmp_path, requests[:60], steps, spec=dataclasses.replace(SPEC, policy="b", requests=100), status="interrupted"
    )
    # What an interrupted run was asked for stays in its spec.
    manifest = json.loads((b / "run.json").read_text())
    manifest["spec"]["requests"] = 100
    manifest["digest"] = RunSpec.from_dict(manifest["spec"]).digest
    (b / "run.json").write_text(json.dumps(manifest))
    found = compare([a], [b])
    assert found.refusal is not None
    assert "interrupted" in found.refusal
    assert {row.word for row in found.metrics.values()} == {"not compared: INVALID"}
    assert found.metrics["itl_s"].a is not None


def test_simulated_against_measured_is_never_ranked(tmp_path: Path) -> None:
    requests, steps = toy_run(100)
    for one in requests:
        one["token_gaps_s"] = [0.01] * (one["output_tokens"] - 1)
    a = write_run(tmp_path, requests, steps)
    b = write_run(tmp_path, requests, steps, spec=dataclasses.replace(SPEC, engine="vllm"), kind="measured")
    refused([a], [b], "kind: simulated")
    found = compare([a], [b], frozenset({"engine"}))
    assert {row.word for row in found.metrics.values()} == {"not ranked"}
    assert found.refusal == "measured against simulated is never ranked"


def test_equal_seeds_are_no_repeats_of_a_virtual_run(tmp_path: Path) -> None:
    pair = [write_toy(tmp_path / str(n), repeat=n, seed=7) for n in range(2)]
    refused(pair, pair, "equal seeds are no repeats")


def test_equal_streams_are_no_repeats_of_a_virtual_run_either(tmp_path: Path) -> None:
    a = [write_toy(tmp_path / "a", repeat=n, seed=n, stream_seed=5) for n in range(2)]
    b = [write_toy(tmp_path / "b", policy="b", repeat=n, seed=n, stream_seed=5) for n in range(2)]
    found = compare(a, b)
    assert "repeats are not independent" in found.notes[0]
    assert found.method.startswith("one repeat")


def test_repeats_of_the_same_requests_in_another_order_say_so(tmp_path: Path) -> None:
    arms_: list[list[Path]] = [[], []]
    for arm, policy in zip(arms_, ("a", "b"), strict=True):
        for repeat in range(2):
            rows = [request(row, at=row * 0.1) for row in range(50)]
            for place, row in enumerate(rows):
                row["prompt_tokens"] = place if repeat == 0 else 49 - place
            spec = dataclasses.replace(SPEC, policy=policy, repeat=repeat, seed=repeat, engine="vllm")
            arm.append(write_run(tmp_path, rows, spec=spec, kind="measured"))
    found = compare(arms_[0], arms_[1])
    assert "in another order" in found.notes[0]
    assert "2 paired repeats" in found.method


def test_arms_that_do_not_match_are_refused(tmp_path: Path) -> None:
    a, b = faster(tmp_path, 2)
    refused(a, b[:1], "repeats do not match")
    refused([a[0], b[1]], b, "differs in policy")
    refused([], b, "two arms")


def test_reported_figures_are_shown_without_a_word(tmp_path: Path) -> None:
    paths = []
    for policy, value in (("v0", 100.0), ("v1", 110.0)):
        spec = dataclasses.replace(SPEC, policy=policy)
        path = tmp_path / policy
        path.mkdir()
        run = {"schema": 1, "spec": spec.to_dict(), "digest": spec.digest, "kind": "reported", "status": "complete"}
        (path / "run.json").write_text(json.dumps(run | {"verdict": {"level": "VALID", "reasons": []}}))
        metrics = {"output_throughput": {"value": value, "unit": "tok/s"}}
        (path / "summary.json").write_text(json.dumps({"schema": 1, "metrics": metrics}))
        paths.append(path)
    row = compare(paths[:1], paths[1:]).metrics["output_throughput"]
    assert row.ratio == pytest.approx(1.1)
    assert (row.low, row.p, row.word) == (None, None, "not ranked")


def test_zeros_have_no_ratio_and_are_compared_by_difference(tmp_path: Path) -> None:
    rows = [request(row, at=row * 0.1) for row in range(50)]
    a = write_run(tmp_path, rows, spec=dataclasses.replace(SPEC, engine="vllm"), kind="measured")
    late = [one | {"sent_s": one["due_s"] + 0.001} for one in rows]
    b = write_run(tmp_path, late, spec=dataclasses.replace(SPEC, engine="vllm", policy="b"), kind="measured")
    row = compare([a], [b]).metrics["send_lag_s"]
    assert (row.a, row.ratio, row.p) == (0.0, None, None)
    assert row.difference is not None
    assert row.difference.value == pytest.approx(0.001)
    assert row.word == NOT_TESTED


def test_every_refusal_is_one_readable_line(tmp_path: Path) -> None:
    requests, steps = toy_run(20)
    long = "w" * 70 + "\x1b"
    odd = {"workload": long, "gpu": "g" * 99, "model": "m" * 99, "cost_model": "c" * 99, "policy": "p" * 99}
    other = dataclasses.replace(SPEC, **odd, slots=7, token_budget=9, kv_tokens=99, seed=5, client={"a": "b" * 999})  # type: ignore[arg-type]
    paths = {
        "a": write_run(tmp_path, requests, steps),
        "b": write_run(tmp_path, requests, steps, spec=dataclasses.replace(other, workload="w" * 70)),
        "c": write_run(
            tmp_path, requests, steps, status="failed", reason="x\n" * 999, spec=dataclasses.replace(SPEC, policy="c")
        ),
    }
    runs = {name: load_run(path) for name, path in paths.items()}
    many_a = [write_toy(tmp_path, repeat=i, seed=i, n=10) for i in range(30)]
    many_b = [write_toy(tmp_path, policy="b", repeat=i, seed=i + 1, n=10) for i in range(30)]
    for a, b, allow in (
        ([paths["a"]], [paths["b"]], frozenset[str]()),
        ([paths["a"]], [paths["b"]], frozenset({"nonsense" * 20})),
        ([paths["a"], paths["b"]], [paths["a"]], frozenset[str]()),
        (many_a, many_b, frozenset[str]()),
    ):
        with pytest.raises(UserError) as caught:
            compare(a, b, allow)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 300
    with pytest.raises(UserError) as caught:
        with_baseline(arms_of(list(runs.values())), "z" * 999, alone=True)
    assert len(str(caught.value)) < 300
    found = compare([paths["a"]], [paths["c"]])
    assert found.refusal is not None
    assert found.refusal.isprintable()
    assert len(found.refusal) < 300
    for line in (found.method, *found.notes):
        assert len(line) < 300


def test_real_engines_must_be_of_one_kind(tmp_path: Path) -> None:
    def arm(policy: str, **provenance: Any) -> list[Path]:
        requests, steps = toy_run(200)
        spec = dataclasses.replace(SPEC, policy=policy)
        known = {"engine_version": "0.32.0", "async_scheduling": False, "kv_cache_tokens": 51200} | provenance
        return [write_run(tmp_path, requests, steps, spec=spec, provenance=known)]

    v1 = arm("v1")
    assert not any("KV caches" in note for note in compare(v1, arm("eb:k=2")).notes)
    for name, value in (("engine_version", "0.33.0"), ("async_scheduling", True)):
        with pytest.raises(UserError, match=name):
            compare(v1, arm(f"eb:k={len(name)}", **{name: value}))
    assert any("--kv-tokens" in note for note in compare(v1, arm("eb:k=3", kv_cache_tokens=51184)).notes)
