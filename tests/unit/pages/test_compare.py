"""The compare page: every pair of a board, families that differ in N and B, each policy's best in one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from harness.pages.boards import TUNED, Arm
from harness.pages.compare import BEST_BY, best_of, board_document, compared_pairs, families_of, index_document, script
from harness.report.comparison import compare
from harness.report.reader import RunReader
from harness.report.sentences import shown_word
from tests.support.runfactory import SPEC, toy_run, write_run
from tests.support.sitefactory import only_board, site_of

SPEEDS = {"v1": 1.0, "eb": 1.2, "sjf": 0.9}


def write_arms(results: Path, factor: float = 1.0, speeds: dict[str, float] = SPEEDS, **spec: Any) -> None:
    for policy, speed in speeds.items():
        requests, steps = toy_run(speed=factor * speed)
        write_run(results, requests, steps, spec=dataclasses.replace(SPEC, policy=policy, **spec))


def directories(arm: Arm) -> list[Path]:
    return [entry.run.path for entry in arm.runs]


def test_every_pair_of_a_board_is_what_bench_compare_says_whichever_way_round(tmp_path: Path) -> None:
    write_arms(tmp_path / "results")
    site = site_of(tmp_path / "results", tmp_path / "kept")
    board = only_board(site)
    found = board_document(site.cache, board)["pairs"]
    assert len(found) == 3
    arms = {arm.first.id: arm for arm in board.arms}
    for key, pair in found.items():
        a, b = (arms[one] for one in key.split())
        for name, row in compare(directories(a), directories(b)).metrics.items():
            ratio, low, high, p, word = pair["rows"][name][:5]
            assert word == shown_word(row)
            assert p == (row.p if row.p is None else pytest.approx(row.p, rel=1e-5))
            for value, other in ((ratio, row.ratio), (low, row.low), (high, row.high)):
                assert value == (other if other is None else pytest.approx(other, rel=1e-5))
        # The page shows A over B as the inverse of B over A.
        turned = compare(directories(b), directories(a)).metrics
        for name, (ratio, low, high, _, word, *_) in pair["rows"].items():
            if not ratio or low is None or not low:
                continue
            row = turned[name]
            assert [row.ratio, row.low, row.high] == pytest.approx([1 / ratio, 1 / high, 1 / low], rel=1e-4)
            assert row.word == {"better": "worse", "worse": "better"}.get(word, word)


def test_each_policy_has_its_own_best_among_tables_that_differ_in_n_and_b(tmp_path: Path) -> None:
    write_arms(tmp_path / "results", slots=64)
    write_arms(tmp_path / "results", 1.5, {"v1": 1.0, "eb": 0.5}, slots=128, token_budget=8192)
    write_arms(tmp_path / "results", 2.0, arrival="poisson:rate=5.0")
    site = site_of(tmp_path / "results", tmp_path / "kept")
    families = families_of(site.boards)
    assert [len(some) for some in families.values()] == [2]
    best = best_of(next(iter(families.values())))
    assert {label: arm.first.run.spec.slots for label, arm in best.items()} == {"eb": 64, "sjf": 64, "v1": 128}
    for board in next(iter(families.values())):
        for arm in board.arms:
            assert arm.values[BEST_BY].mean <= best[arm.policy].values[BEST_BY].mean
    found = compared_pairs(site.cache, RunReader(8), list(best.values()), TUNED)
    one = found[f"{best['eb'].first.id} {best['v1'].first.id}"]
    assert one["refusal"] is None
    assert one["rows"][BEST_BY][4] == "not tested", "one repeat"
    # Without leave the two differ in more than the policy, and are not compared.
    refused = compared_pairs(site.cache, RunReader(8), [best["eb"], best["v1"]])
    assert next(iter(refused.values()))["refusal"] is not None


def test_in_a_large_table_all_arms_meet_the_baseline_and_the_first_meet_each_other(tmp_path: Path) -> None:
    write_arms(tmp_path / "results", speeds={"v1": 0.5, **{f"eb:k={k}": 1 + k / 10 for k in range(1, 10)}})
    site = site_of(tmp_path / "results", tmp_path / "kept")
    board = only_board(site)
    assert board.arms[-1].policy == "v1"
    found = {frozenset(key.split()) for key in board_document(site.cache, board)["pairs"]}
    ids = [arm.first.id for arm in board.arms]
    assert {frozenset((a, b)) for a in ids[:7] for b in ids[:7] if a != b} <= found
    assert {frozenset((ids[-1], one)) for one in ids[:-1]} <= found


def test_what_the_page_loads_is_a_script_that_cannot_be_broken_out_of(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script>"
    write_arms(tmp_path / "results", speeds={"v1": 1.0, hostile: 1.1}, engine="endpoint")
    site = site_of(tmp_path / "results", tmp_path / "kept")
    text = script("index", index_document(site.boards, {}, {})).decode()
    assert "<" not in text
    told = json.loads(text.split("= ", 2)[2].rstrip(";\n"))
    board = told["boards"][0]
    assert {one[1] for one in board["arms"]} == {"v1", hostile}
    assert [one[0] for one in board["arms"] if one[1] == "v1"] == [board["baseline"]]
    assert "measured" in board["name"]
