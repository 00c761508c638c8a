"""Which arms are held against each other: one folder, two folders, single runs; A/A; the world of real engines."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.measure.looks import LOOKS, share_of_look
from harness.report.comparison import compare, compare_runs
from harness.report.matrix import by_load, matrix_of
from harness.report.sides import Sides, folders_of, sides_of
from harness.report.spread import against_itself, plans_of
from harness.report.words import BETTER, NOT_TESTED, WORSE, Rules
from harness.runs.run import Run, load_run, runs_of
from harness.session.options import RunOptions
from harness.session.repeats import repeat_plan
from tests.support.runfactory import SPEC, toy_run, write_run

REAL = {"engine": "vllm"}


def write(out: Path, policy: str, speed: float = 1.0, repeats: int = 3, **spec: Any) -> None:
    for repeat in range(repeats):
        requests, steps = toy_run(80, repeat, stream_seed=100 + repeat, speed=speed)
        one = dataclasses.replace(SPEC, policy=policy, seed=repeat, repeat=repeat, **spec)
        write_run(out, requests, steps, spec=one)


def sides(*paths: Path, baseline: str | None = None) -> Sides:
    found: list[list[Run]] = [[load_run(path) for path in runs_of([one])] for one in paths]
    return sides_of(folders_of(paths, found), baseline, alone=len(paths) == 1)[0]


def names(pairs: Sides) -> list[tuple[str, str]]:
    return [(a[0].spec.policy, b[0].spec.policy) for a, b in pairs]


def test_before_and_after_are_two_sides_and_never_one_pool(tmp_path: Path) -> None:
    for policy in ("v1", "eb"):
        write(tmp_path / "before", policy)
        write(tmp_path / "after", policy, 1 / 1.3)
    pairs = sides(tmp_path / "before", tmp_path / "after")
    assert sorted(names(pairs)) == [("eb", "eb"), ("v1", "v1")]
    for a, b in pairs:
        found = compare_runs(a, b)
        row = found.metrics[found.headline[0]]
        assert row.word == WORSE
        assert row.ratio == pytest.approx(1 / 1.3, rel=0.01)
    matrix = matrix_of([compare_runs(a, b) for a, b in pairs])
    assert matrix.policies == ["eb (after)", "v1 (after)"]
    assert matrix.tally("v1 (after)") == {
        "geometric_mean": pytest.approx(1 / 1.3, rel=0.01), "wins": 0, "ties": 0, "losses": 1,
    }  # fmt: skip


def test_one_policy_before_and_after_is_no_single_arm(tmp_path: Path) -> None:
    write(tmp_path / "before", "v1")
    write(tmp_path / "after", "v1", 1.3)
    assert names(sides(tmp_path / "before", tmp_path / "after")) == [("v1", "v1")]
    single = [next(iter(runs_of([tmp_path / side]))) for side in ("before", "after")]
    assert names(sides(*single)) == [("v1", "v1")]


def test_a_is_v1_or_the_first_named_and_not_the_first_of_the_alphabet(tmp_path: Path) -> None:
    for policy in ("eb", "v1", "v0"):
        write(tmp_path / policy, policy, repeats=1)
    assert names(sides(tmp_path)) == [("v1", "eb"), ("v1", "v0")]
    assert names(sides(tmp_path / "v0", tmp_path / "v1")) == [("v0", "v1")]
    assert names(sides(tmp_path, baseline="eb")) == [("eb", "v0"), ("eb", "v1")]
    with pytest.raises(UserError, match="no such arm"):
        sides(tmp_path, baseline="sjf")


def test_folders_that_share_nothing_are_refused(tmp_path: Path) -> None:
    for folder, policies in (("a", ("v1", "eb")), ("b", ("v0", "sjf"))):
        for policy in policies:
            write(tmp_path / folder, policy, repeats=1)
    with pytest.raises(UserError, match="share no policy"):
        sides(tmp_path / "a", tmp_path / "b")


def test_a_matrix_holds_each_load_by_itself(tmp_path: Path) -> None:
    for slots, speed in ((64, 1.2), (128, 0.8)):
        write(tmp_path, "v1", slots=slots)
        write(tmp_path, "eb", speed, slots=slots)
    found = [[load_run(path) for path in runs_of([tmp_path])]]
    pairs = [pair for part in by_load(found) for pair in sides_of(part)[0]]
    matrix = matrix_of([compare_runs(a, b) for a, b in pairs])
    told = matrix.tally("eb")
    assert (told["wins"], told["losses"]) == (1, 1)
    assert told["geometric_mean"] == pytest.approx((1.2 * 0.8) ** 0.5, rel=0.01)


def real_runs(tmp_path: Path, policy: str, speeds: list[float], **provenance: Any) -> list[Path]:
    paths: list[Path] = []
    for speed in speeds:
        requests, steps = toy_run(80, 0, stream_seed=1, speed=speed)
        for one in requests:
            one["token_gaps_s"] = [0.01] * (one["output_tokens"] - 1)
        spec = dataclasses.replace(SPEC, policy=policy, engine="vllm")
        at = tmp_path / f"{policy}-{len(paths)}-{speed}"
        paths.append(write_run(at, requests, steps, spec=spec, kind="measured", provenance=provenance))
    return paths


def test_runs_of_equals_give_one_repeat_its_spread(tmp_path: Path) -> None:
    b = real_runs(tmp_path, "eb", [1.1])
    alone = compare(real_runs(tmp_path / "one", "v1", [1.0]), b)
    assert {alone.metrics[name].word for name in alone.headline} == {NOT_TESTED}
    found = compare(real_runs(tmp_path, "v1", [1.0, 1.01, 0.99, 1.005, 0.995, 1.0]), b)
    row = found.metrics[found.headline[0]]
    assert (row.word, row.over) == (BETTER, "repeats")
    assert "5 more runs of equals" in found.method
    close = compare(
        real_runs(tmp_path / "close", "v1", [1.0, 1.05, 0.95, 1.06, 0.94]), real_runs(tmp_path, "sjf", [1.04])
    )
    assert {close.metrics[name].word for name in close.headline} == {"no difference shown"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("host", ({"cpu": "x", "cores": 2}, {"cpu": "x", "cores": 4})),
        ("gpus", ([{"name": "L40S"}], [{"name": "H200"}])),
        ("engine_packages", ({"torch": "1"}, {"torch": "2"})),
        ("engine_settings", ({"dtype": "a"}, {"dtype": "b"})),
        ("url", ("http://a", "http://b")),
    ],
)
def test_real_arms_need_the_same_world(tmp_path: Path, name: str, values: tuple[Any, Any]) -> None:
    a = real_runs(tmp_path / "a", "v1", [1.0], **{name: values[0]})
    b = real_runs(tmp_path / "b", "eb", [1.0], **{name: values[1]})
    with pytest.raises(UserError, match=f"{name}: .*--allow {name}"):
        compare(a, b)
    assert name in compare(a, b, frozenset({name})).differences


def test_arms_that_end_answers_by_themselves_need_the_same_work(tmp_path: Path) -> None:
    def arm(policy: str, output: float) -> Path:
        requests, steps = toy_run(80, 0, stream_seed=1, mean_output=output)
        for one in requests:
            one |= {
                "token_gaps_s": [0.01] * (one["output_tokens"] - 1),
                "prompt_tokens": 9,
                "expected_output_tokens": 9,
            }
        spec = dataclasses.replace(SPEC, policy=policy, engine="vllm", client={"ignore_eos": False})
        return write_run(tmp_path / f"{policy}{output}", requests, steps, spec=spec, kind="measured")

    apart = compare([arm("v1", 16.0)], [arm("eb", 12.0)])
    assert apart.refusal is not None
    assert "not the same work" in apart.refusal
    assert compare([arm("v0", 16.0)], [arm("sjf", 16.0)]).refusal is None


def test_a_policy_against_itself_and_the_repeats_that_a_difference_takes(tmp_path: Path) -> None:
    write(tmp_path, "v1", repeats=6)
    arm = [load_run(path) for path in runs_of([tmp_path])]
    found = against_itself(arm, Rules())
    assert (found.runs, found.pairs, found.splits) == (6, 3, 10)
    assert found.any_word <= 5
    plans = plans_of(arm, (0.01, 0.10), 0.95, Rules())
    by_metric = {plan.metric: plan.repeats for plan in plans if plan.difference == 0.10}
    finer = {plan.metric: plan.repeats for plan in plans if plan.difference == 0.01}
    for name, repeats in by_metric.items():
        assert repeats is not None
        assert finer[name] is None or finer[name] >= repeats  # type: ignore[operator]
    with pytest.raises(UserError, match="takes 4 or more"):
        against_itself(arm[:3], Rules())
    with pytest.raises(UserError, match="at least two of each"):
        plans_of(arm[:1], (0.1,), 0.95, Rules())


def test_looks_spend_no_more_than_one_chance_in_twenty() -> None:
    shares = [share_of_look(look) or 0 for look in LOOKS]
    assert share_of_look(2) is None
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) < 1
    assert share_of_look(LOOKS[0]) == pytest.approx(6 / 9.8696, rel=1e-4)


def test_what_is_named_of_repeats_is_read_and_held_together() -> None:
    plan = repeat_plan(RunOptions(until="ci=3%", headline="ttft_s.p99"))
    assert plan.named == {"headline": ["ttft_s.p99"], "until": 0.03}
    for options, match in (
        (RunOptions(until="3%"), "write ci=SHARE"),
        (RunOptions(until="ci=3%", aa=2), "give one"),
        (RunOptions(headline="speed"), "no such metric"),
    ):
        with pytest.raises(UserError, match=match):
            repeat_plan(options)
    equals = repeat_plan(RunOptions(aa=2))
    specs = [dataclasses.replace(SPEC, policy=policy, **REAL) for policy in ("v1", "eb")]  # type: ignore[arg-type]
    assert [spec.policy for spec in equals.with_equals(specs, "vllm", "v1")].count("v1") == 3
    with pytest.raises(UserError, match="repeats itself exactly"):
        equals.with_equals(specs, "simulated", "v1")


def bad_run(tmp_path: Path, policy: str, repeat: int, kind: str) -> Path:
    requests, steps = toy_run(1 if kind == "one request" else 60, repeat, stream_seed=repeat)
    for one in requests if kind == "all failed" else []:
        one |= {"finish": "error", "first_token_s": None, "last_token_s": None, "output_tokens": 0}
    for one in requests[:3] if kind == "a clock that jumps" else []:
        one["done_s"] = one["sent_s"] - 5
    spec = dataclasses.replace(SPEC, policy=policy, seed=repeat, repeat=repeat)
    return write_run(tmp_path / policy, requests, steps, spec=spec)


@pytest.mark.parametrize("kind", ["one request", "all failed", "a clock that jumps"])
def test_bad_runs_are_compared_without_a_word_and_without_a_fault(tmp_path: Path, kind: str) -> None:
    a, b = ([bad_run(tmp_path, policy, repeat, kind) for repeat in range(3)] for policy in ("v1", "eb"))
    found = compare(a, b)
    assert not {row.word for row in found.metrics.values()} & {BETTER, WORSE}
    assert (found.refusal is None) == (kind == "one request")


def test_a_load_that_changes_by_plan_has_no_interval_of_noise(tmp_path: Path) -> None:
    requests, steps = toy_run(80)
    spec = dataclasses.replace(SPEC, arrival="closed-phases:0=8/9=8")
    one = load_run(write_run(tmp_path, requests, steps, spec=spec))
    assert {values["low"] for values in one.summary["metrics"].values()} == {None}
    found = compare([one.path], [one.path])
    assert "by plan" in found.notes[0]
    assert not [name for name in found.metrics if "_steady" in name]
