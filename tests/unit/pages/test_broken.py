"""What a broken repeat does to an arm, and a rate above capacity: CLI and site say the same, and rank neither."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.pages.answers import NOTHING, answer_of, ranks_of
from harness.report.best import best_line
from harness.report.comparison import compare
from harness.report.matrix import matrix_of
from harness.runs.run import load_run
from tests.support.runfactory import SPEC, request, toy_run, write_run
from tests.support.sitefactory import only_board, site_of

OPEN = dataclasses.replace(SPEC, arrival="constant:rate=10.0")


def write_repeat(results: Path, policy: str, repeat: int, status: str = "complete", speed: float = 1.0) -> Path:
    requests, steps = toy_run(60, 10 * len(policy) + repeat, stream_seed=repeat, speed=speed)
    spec = dataclasses.replace(SPEC, policy=policy, seed=repeat, repeat=repeat)
    return write_run(results, requests, steps, spec=spec, status=status)


def write_open(results: Path, policy: str, repeat: int, served_per_s: float) -> Path:
    """Ten requests a second, each served when the one before it was."""
    rows = []
    for row in range(400):
        due, done = row / 10, max(row / 10 + 0.1, (row + 1) / served_per_s)
        times = {"due_s": due, "sent_s": due, "first_token_s": done - 0.05, "last_token_s": done, "done_s": done}
        rows.append(request(row, **times, token_gaps_s=[0.05], prompt_tokens=10 + repeat))
    return write_run(results, rows, spec=dataclasses.replace(OPEN, policy=policy, seed=repeat, repeat=repeat))


def test_a_broken_repeat_is_left_out_with_its_partner_everywhere(tmp_path: Path) -> None:
    results = tmp_path / "results"
    a = [write_repeat(results, "v1", repeat) for repeat in range(3)]
    b = [write_repeat(results, "eb", repeat, "failed" if repeat == 1 else "complete", 1.2) for repeat in range(3)]
    told = compare(a, b)
    assert told.refusal is None
    assert "left out, since INVALID: repeat 1 of eb; 2 repeats count" in told.notes
    # Who asks for no INVALID run still hears of it.
    assert [len(told.a), len(told.b), told.ranks] == [3, 3, True]
    assert told.metrics == compare([a[0], a[2]], [b[0], b[2]]).metrics
    board = only_board(site_of(results, tmp_path / "kept"))
    eb = next(arm for arm in board.arms if arm.policy == "eb" and arm.level != "INVALID")
    assert [len(arm.runs) for arm in board.arms if arm.policy == "eb"] == [2, 1]
    row = told.metrics["output_throughput"]
    change = eb.changes["output_throughput"]
    assert (change.ratio, change.low, change.high, change.word) == (row.ratio, row.low, row.high, row.word)
    assert any("Repeats that are INVALID" in line and "1 of eb" in line for line in answer_of(board).sentences)


def test_arms_without_a_sound_repeat_in_common_are_shown_whole_and_not_ranked(tmp_path: Path) -> None:
    a = [write_repeat(tmp_path, "v1", repeat, "failed" if repeat == 0 else "complete") for repeat in range(2)]
    b = [write_repeat(tmp_path, "eb", repeat, "failed" if repeat == 1 else "complete") for repeat in range(2)]
    told = compare(a, b)
    assert told.refusal is not None
    assert {row.word for row in told.metrics.values()} == {"not compared: INVALID"}


@pytest.mark.parametrize("slow", ["eb", "v1"])
def test_above_capacity_nothing_is_ranked_and_the_answer_says_why(tmp_path: Path, slow: str) -> None:
    results = tmp_path / "results"
    speeds = {"v1": 20.0, "eb": 20.0, "ebplus": 20.0} | {slow: 7.0}
    runs = {policy: [write_open(results, policy, one, speed) for one in range(3)] for policy, speed in speeds.items()}
    assert load_run(runs[slow][0]).is_overloaded
    board = only_board(site_of(results, tmp_path / "kept"))
    broken = next(arm for arm in board.arms if arm.policy == slow)
    assert broken.first.id not in ranks_of(board)
    answer = answer_of(board)
    assert slow not in [arm.policy for arm in answer.arms]
    assert any(slow in line and "above its capacity" in line for line in answer.sentences)
    assert (answer.tone == NOTHING) == (slow == "v1")
    comparisons = [compare(runs["v1"], runs[policy]) for policy in ("eb", "ebplus")]
    assert {one.metrics["ttft_s"].word for one in comparisons if slow in ("v1", one.b[0].spec.policy)} == {
        "not compared: above capacity"
    }
    assert [one.to_dict()["ranked"] for one in comparisons] == [False, slow == "eb"]
    assert best_line(comparisons) is None
    cells = {cell.policy: cell.row for cell in matrix_of(comparisons).cells}
    assert [policy for policy, row in cells.items() if row is None] == (["eb"] if slow == "eb" else ["eb", "ebplus"])
