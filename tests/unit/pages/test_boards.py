"""The leaderboard's tables: who stands on one, in what order, against whom; the answers and fronts made of them."""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from harness.pages.answers import GAIN, KEEP, NOTHING, answer_of, ranks_of, twins_of
from harness.pages.boards import Board, board_key
from harness.pages.facets import settings_words
from harness.pages.front import superseded
from harness.pages.numbers import load_words
from harness.pages.pareto import ParetoPoint, pareto_chart, with_front
from harness.pages.reported import ReportedChange, reported_changes
from harness.pages.site import Site
from harness.pages.tradeoff import tradeoff_charts
from harness.pages.traffic import BUSY, LIGHT, SATURATED, load_of
from harness.pages.values import MetricMean
from harness.runs.run import gpu_name
from harness.runs.schema import KINDS
from tests.support.runfactory import SPEC, toy_run, write_run
from tests.support.sitefactory import only_board, site_of

LATER, LATEST = (datetime(2026, 11, day, 23, tzinfo=UTC) for day in (29, 30))


def write_arm(results: Path, policy: str, speed: float = 1.0, **more: Any) -> Path:
    written = {name: more.pop(name) for name in ("kind", "status", "started", "provenance", "degraded") if name in more}
    requests, steps = toy_run(n=60, seed=more.get("seed", 0), speed=speed)
    return write_run(results, requests, steps, spec=dataclasses.replace(SPEC, policy=policy, **more), **written)


def site(tmp_path: Path) -> Site:
    return site_of(tmp_path / "results", tmp_path / "kept")


def policies(board: Board) -> list[str]:
    return [arm.policy for arm in board.arms]


def test_arms_are_ranked_by_output_tokens_and_what_is_invalid_stands_below(tmp_path: Path) -> None:
    for policy, speed in (("v1", 1.0), ("v0", 0.5), ("eb", 2.0)):
        write_arm(tmp_path / "results", policy, speed)
    write_arm(tmp_path / "results", "sjf", 4.0, status="interrupted")
    board = only_board(site(tmp_path))
    assert policies(board) == ["eb", "v1", "v0", "sjf"]
    assert (board.baseline, board.arms[-1].level) == ("v1", "INVALID")
    assert board.arms[0].changes["output_throughput"].ratio == pytest.approx(2, rel=0.02)
    assert board.arms[1].changes == {}
    assert {one.word for one in board.arms[-1].changes.values()} == {"not compared: INVALID"}
    assert "INVALID" in (board.arms[-1].refusal or "")


def test_pages_show_the_rows_that_the_terminal_has_its_words_on(tmp_path: Path) -> None:
    for policy, speed in (("v1", 1.0), ("eb", 2.0)):
        write_arm(tmp_path / "results", policy, speed, arrival="closed:concurrency=8")
    board = only_board(site(tmp_path))
    assert (board.steady, board.row("ttft_s.p99")) == (True, "ttft_s_steady.p99")
    # One run an arm gets no word: the row that would decide is the same.
    assert board.rate == "output_throughput_steady"
    assert "start and end left out" in settings_words(board)
    (chart, _) = tradeoff_charts(board)
    assert chart.rows[0][2] == board.arms[0].values["output_throughput_steady"].mean
    assert next(point for point in pareto_chart([board]).rows if point[0] == "eb")[6] == chart.rows[0][2]


def test_a_load_that_changes_by_plan_is_shown_whole(tmp_path: Path) -> None:
    write_arm(tmp_path / "results", "v1", arrival="closed:concurrency=8", workload="drift:distribution")
    board = only_board(site(tmp_path))
    assert "ttft_s_steady" in board.arms[0].values
    assert (board.steady, board.rate) == (False, "output_throughput")


@pytest.mark.parametrize(
    ("there", "baseline"), [(("v0", "stock", "v1"), "v1"), (("eb", "v0"), "v0"), (("eb", "ebplus"), None)]
)
def test_the_baseline_is_the_first_of_the_usual_ones(
    tmp_path: Path, there: tuple[str, ...], baseline: str | None
) -> None:
    for policy in there:
        write_arm(tmp_path / "results", policy)
    board = only_board(site(tmp_path))
    assert board.baseline == baseline
    if baseline is None:
        assert all(arm.changes == {} for arm in board.arms)


def test_what_differs_in_more_than_the_policy_stands_on_another_board(tmp_path: Path) -> None:
    write_arm(tmp_path / "results", "v1")
    write_arm(tmp_path / "results", "eb", lengths="oracle")
    for other in ({"gpu": "h200"}, {"slots": 64}, {"slo": {"ttft_s": 1.0}}, {"engine": "emulated", "started": LATER}):
        write_arm(tmp_path / "results", "v1", **other)
    write_arm(tmp_path / "results", "v1", gpu="a100", provenance={"engine_version": "0.32.0"})
    write_arm(tmp_path / "results", "v1", gpu="a100", started=LATER)
    found = site(tmp_path).boards
    assert sorted(len(board.arms) for board in found) == [1, 1, 1, 1, 1, 1, 2]
    assert [board.kind for board in found] == sorted((board.kind for board in found), key=KINDS.index)


def test_repeats_are_one_arm_with_students_interval_and_the_first_run_of_a_spec_counts(tmp_path: Path) -> None:
    for repeat in range(3):
        write_arm(tmp_path / "results", "v1", seed=repeat, repeat=repeat)
    write_arm(tmp_path / "results", "v1", 9.0, seed=1, repeat=1, started=LATER)
    arm = only_board(site(tmp_path)).arms[0]
    values = [entry.run.summary["metrics"]["output_throughput"]["value"] for entry in arm.runs]
    assert len(values) == 3
    mean = sum(values) / 3
    half = stats.t.ppf(0.975, 2) * stats.tstd(values) / math.sqrt(3)
    told = arm.values["output_throughput"]
    assert (told.mean, told.low, told.high) == pytest.approx((mean, mean - half, mean + half))


def test_what_is_as_it_is_by_default_does_not_make_a_board_so_ids_stay_when_specs_gain_a_field(tmp_path: Path) -> None:
    write_arm(tmp_path / "results", "v1", slots=64)
    key = json.loads(board_key(only_board(site(tmp_path)).first))[-1]
    assert key["slots"] == 64
    assert not {"policy", "repeat", "seed", "sessions", "think_s", "prefix_caching"} & key.keys()


def write_three(results: Path, speeds: dict[str, float], **more: Any) -> None:
    for policy, speed in speeds.items():
        for repeat in range(3):
            write_arm(results, policy, speed, seed=repeat, repeat=repeat, **more)


def test_the_answer_is_the_largest_gain_that_was_shown(tmp_path: Path) -> None:
    write_three(tmp_path / "results", {"v1": 1.0, "v0": 1.5, "eb": 2.0, "sjf": 0.5})
    answer = answer_of(only_board(site(tmp_path)))
    assert (answer.tone, [arm.policy for arm in answer.arms], answer.tried) == (GAIN, ["eb"], 3)
    assert answer.change is not None
    assert answer.change.ratio == pytest.approx(2, rel=0.02)
    first, *rest = answer.sentences
    assert first.startswith("Take eb: +")
    assert "the best of 3 that were tried (p " in first
    assert "TTFT mean -5" in " ".join(rest)


def test_where_nothing_gains_the_baseline_is_kept_and_the_dearest_named(tmp_path: Path) -> None:
    write_three(tmp_path / "results", {"v1": 1.0, "v0": 0.9, "eb": 0.5})
    answer = answer_of(only_board(site(tmp_path)))
    assert (answer.tone, answer.short) == (KEEP, "keep v1")
    assert answer.sentences[0] == "Keep v1: none of 2 others was shown to be better in steady output tok/s."
    assert answer.sentences[1].startswith("eb costs most: -5")


def test_with_limits_the_answer_is_in_goodput(tmp_path: Path) -> None:
    # Twice as fast, and what v1 serves within its limit eb serves as well: its gain is in answers that met it.
    write_three(tmp_path / "results", {"v1": 1.0, "eb": 2.0}, slo={"e2el_s": 0.12})
    answer = answer_of(only_board(site(tmp_path)))
    assert (answer.metric.removesuffix("_steady"), answer.tone) == ("goodput", GAIN)
    assert answer.change == answer.arms[0].changes[answer.metric]
    assert answer.change is not None
    assert (answer.change.ratio or 0) > 2.2


def test_what_nobody_can_deploy_is_said_beside_the_answer(tmp_path: Path) -> None:
    write_three(tmp_path / "results", {"v1": 1.0})
    write_three(tmp_path / "results", {"sjf": 2.0}, lengths="oracle")
    answer = answer_of(only_board(site(tmp_path)))
    assert answer.tone == KEEP
    assert answer.beyond is not None
    assert "knew every output length" in answer.sentences[-1]


def test_identical_arms_share_a_place_and_an_answer(tmp_path: Path) -> None:
    write_three(tmp_path / "results", {"v1": 1.0, "eb": 2.0, "ebplus": 2.0, "stock": 1.0})
    board = only_board(site(tmp_path))
    assert [arm.policy for arm in answer_of(board).arms] == ["eb", "ebplus"]
    assert answer_of(board).short.startswith("eb or ebplus +")
    by_policy = {arm.policy: arm.first.id for arm in board.arms}
    ranks = ranks_of(board)
    assert [ranks[by_policy[one]] for one in ("eb", "ebplus", "stock", "v1")] == [1, 1, 3, 3]
    assert twins_of(board) == {by_policy["ebplus"]: "eb", by_policy["stock"]: "v1"}


@pytest.mark.parametrize(
    ("policies", "status", "short"),
    [
        (("v1",), "complete", "one policy"),
        (("eb", "ebplus"), "complete", "no baseline"),
        (("v1", "eb"), "failed", "INVALID"),
    ],
)
def test_without_a_comparison_the_answer_says_why(
    tmp_path: Path, policies: tuple[str, ...], status: str, short: str
) -> None:
    for policy in policies:
        write_arm(tmp_path / "results", policy, status=status)
    answer = answer_of(only_board(site(tmp_path)))
    assert (answer.tone, answer.short, len(answer.sentences)) == (NOTHING, short, 1)


@pytest.mark.parametrize(
    ("arrival", "slots", "running", "waiting", "load"),
    [
        ("poisson:rate=9.0", 64, 8, 0, LIGHT),
        ("poisson:rate=9.0", 16, 8, 0, BUSY),
        ("poisson:rate=9.0", 64, 8, 1, SATURATED),
        ("closed:concurrency=8", 1024, 8, 0, LIGHT),
    ],
)
def test_the_load_is_what_the_steps_of_the_baseline_held(
    tmp_path: Path, arrival: str, slots: int, running: int, waiting: int, load: str
) -> None:
    requests, steps = toy_run(n=60)
    steps = [{**one, "running": running, "waiting": waiting} for one in steps]
    spec = dataclasses.replace(SPEC, policy="v1", arrival=arrival, slots=slots)
    write_run(tmp_path / "results", requests, steps, spec=spec)
    assert load_of(only_board(site(tmp_path))) == load


def test_one_repeats_gain_is_not_held_against_the_mean_of_three(tmp_path: Path) -> None:
    for policy, speed, repeats in (("v1", 1.0, 3), ("v0", 1.5, 3), ("eb", 2.0, 1)):
        for repeat in range(repeats):
            write_arm(tmp_path / "results", policy, speed, seed=repeat, repeat=repeat, degraded=("a cost was assumed",))
    found = site(tmp_path)
    assert policies(only_board(found)) == ["eb", "v0", "v1"]
    one = answer_of(only_board(found))
    assert ([arm.policy for arm in one.arms], one.level) == (["v0"], "DEGRADED")
    assert any("1 of 3 and 1 repeats" in note for note in only_board(found).arms[0].notes)


def test_what_was_published_of_the_same_stands_beside_it(tmp_path: Path) -> None:
    for gpu, arrival in (
        ("l40s", "closed:concurrency=8"),
        ("h200", "closed:concurrency=8"),
        ("l40s", "poisson:rate=9.0"),
    ):
        for policy in ("v1", "v0", "eb"):
            write_arm(tmp_path / "results", policy, gpu=gpu, arrival=arrival)
    for policy, rate in (("v1", 10.0), ("v0", 4.0)):
        write_reported(tmp_path / "results", policy, rate, arrival="closed:concurrency=2048")
    found = site(tmp_path)
    told = reported_changes(found.boards)
    (board,) = (one for one in found.boards if one.id in told)
    assert (board.first.run.spec.gpu, board.first.run.spec.arrival) == ("l40s", "closed:concurrency=8")
    (reported,) = (one for one in found.boards if one.kind == "reported")
    assert told[board.id] == {"v0": ReportedChange(0.4, reported.id, "arXiv 2606.00516, Table 6", "2,048 in flight")}


def write_reported(results: Path, policy: str, rate: float, **more: Any) -> None:
    spec = dataclasses.replace(SPEC, policy=policy, engine="vllm", **more)
    path = results / "published" / policy
    path.mkdir(parents=True)
    manifest = {"schema": 1, "spec": spec.to_dict(), "digest": spec.digest, "kind": "reported", "status": "complete"}
    manifest["provenance"] = {"paper": "arXiv 2606.00516", "set": "Table 6"}
    (path / "run.json").write_text(json.dumps(manifest))
    metrics = {"request_throughput": {"value": rate, "unit": "req/s"}}
    (path / "summary.json").write_text(json.dumps({"schema": 1, "metrics": metrics}))


def test_of_one_spec_the_first_run_counts_and_the_others_are_named(tmp_path: Path) -> None:
    for started in (datetime(2026, 11, 28, tzinfo=UTC), LATER):
        write_arm(tmp_path / "results", "v1", started=started)
    found = site(tmp_path)
    ((later, first),) = superseded(found)
    assert "20261129" in later.where
    assert "20261128" in first.where
    assert [entry.id for entry in only_board(found).arms[0].runs] == [first.id]


def test_an_invalid_repeat_takes_no_other_with_it(tmp_path: Path) -> None:
    for policy in ("v1", "eb"):
        for repeat in range(2):
            write_arm(tmp_path / "results", policy, seed=repeat, repeat=repeat)
    write_arm(tmp_path / "results", "eb", seed=7, repeat=7, status="failed")
    board = only_board(site(tmp_path))
    assert [(arm.level == "INVALID", len(arm.runs)) for arm in board.arms] == [(False, 2), (False, 2), (True, 1)]
    assert board.arms[-1].policy == "eb"


def test_the_front_is_what_no_other_beats_in_both(tmp_path: Path) -> None:
    write_arm(tmp_path / "results", "v1")
    board = only_board(site(tmp_path))
    arm = board.arms[0]
    told = [(10.0, 1.0), (8.0, 3.0), (8.0, 2.0), (7.0, 3.0), (5.0, 9.0), (1.0, 8.0)]
    found = with_front([ParetoPoint(board, arm, *one) for one in reversed(told)])
    assert [(one.speed, one.throughput) for one in found if one.front] == [(10.0, 1.0), (8.0, 3.0), (5.0, 9.0)]


def test_fronts_never_mix_kinds_and_points_say_whose_they_are(tmp_path: Path) -> None:
    # The emulated one beats both others in both, and is on a front of its own.
    for policy, speed in (("v1", 1.0), ("eb", 1.2)):
        write_arm(tmp_path / "results", policy, speed)
    write_arm(tmp_path / "results", "v1", 3.0, engine="emulated", started=LATER)
    write_arm(tmp_path / "results", "v1", 3.0, engine="vllm", status="interrupted", started=LATEST)
    boards = site(tmp_path).boards
    chart = pareto_chart(boards)
    by_name = {one.name: one for one in chart.series}
    assert sorted(by_name) == ["eb, simulated", "front", "v1, emulated", "v1, simulated"]
    assert all(one.hollow for name, one in by_name.items() if name != "front")
    known = {board.id for board in boards}
    for one in chart.series:
        assert one.boards is not None
        assert len(one.boards) == len(one.x) == len(one.y)
        assert {board for board in one.boards if board is not None} <= known
    assert [row[-1] for row in chart.rows if row[4] == "emulated"] == ["yes"]
    assert [(row[0], row[-1]) for row in chart.rows if row[4] == "simulated"] == [("eb", "yes"), ("v1", "no")]


def test_what_a_spec_has_in_a_form_of_its_own_reads_as_people_say_it() -> None:
    assert [gpu_name(one) for one in ("h200", "./cpu-tiny.toml", "/some/where/mine.toml")] == [
        "h200",
        "cpu-tiny",
        "mine",
    ]
    told = {
        "closed:concurrency=2048": "2,048 in flight",
        "closed-phases:concurrency=32/512,drain=true,requests=6/18": "32 → 512 in flight",
        "poisson:rate=30.0": "Poisson, 30 req/s",
        "constant:rate=0.5": "constant, 0.5 req/s",
        "gamma:cv=2.0,rate=3": "gamma:cv=2.0,rate=3",
        "<script>": "<script>",
    }
    assert {one: load_words(one) for one in told} == told


def test_one_value_keeps_the_interval_from_within_its_run(tmp_path: Path) -> None:
    run = write_arm(tmp_path / "results", "v1")
    metric = json.loads((run / "summary.json").read_text())["metrics"]["output_throughput"]
    arm = only_board(site(tmp_path)).arms[0]
    assert arm.values["output_throughput"] == MetricMean(metric["value"], metric["low"], metric["high"])
