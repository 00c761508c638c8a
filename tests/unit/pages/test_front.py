"""What the first page has room for, and which places a board gives."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from harness.pages import front
from harness.pages.answers import ranks_of
from harness.pages.boards import Arm
from harness.pages.build import build
from harness.pages.site import Site
from harness.pages.traffic import gpu_label
from tests.support.runfactory import SPEC, toy_run, write_run
from tests.support.sitefactory import only_board, site_of


def write_arm(results: Path, policy: str, speed: float = 1.0, **more: object) -> None:
    for repeat in range(3):
        requests, steps = toy_run(60, 10 * len(policy) + repeat, stream_seed=repeat, speed=speed)
        spec = dataclasses.replace(SPEC, policy=policy, seed=repeat, repeat=repeat, **more)  # type: ignore[arg-type] # fields of a spec
        write_run(results, requests, steps, spec=spec)


def site(tmp_path: Path) -> Site:
    return site_of(tmp_path / "results", tmp_path / "kept")


def test_places_are_shared_unless_intervals_are_apart(tmp_path: Path) -> None:
    for policy, speed in (("v1", 1.0), ("eb", 1.5), ("v0", 0.5)):
        write_arm(tmp_path / "results", policy, speed)
    board = only_board(site(tmp_path))
    assert [ranks_of(board)[arm.first.id] for arm in board.arms] == [1, 2, 3]

    def with_interval(policy: str, low: float, high: float) -> Arm:
        arm = next(arm for arm in board.arms if arm.policy == policy)
        change = dataclasses.replace(arm.changes[board.rate], low=low, high=high)
        return dataclasses.replace(arm, changes={**arm.changes, board.rate: change})

    for eb, v0, places in (
        ((1.2, 1.8), (0.4, 0.6), [1, 2, 3]),
        ((0.9, 2.0), (0.4, 0.6), [1, 1, 3]),
        ((0.9, 2.0), (0.4, 1.1), [1, 1, 1]),
        ((1.2, 1.8), (0.4, 1.1), [1, 2, 2]),
    ):
        arms = (with_interval("eb", *eb), board.reference, with_interval("v0", *v0))
        changed = dataclasses.replace(board, arms=arms)
        assert [ranks_of(changed)[arm.first.id] for arm in arms] == places


def test_columns_of_the_first_page_are_short_where_nothing_is_lost(tmp_path: Path) -> None:
    for gpu in ("h200", "h100", "l40s"):
        write_arm(tmp_path / "results", "v1", gpu=gpu)
    boards = site(tmp_path).boards
    labels = {gpu_label(board.spec.gpu) for board in boards}
    assert "H200 SXM" in labels
    assert sorted(label for _, label in front._columns(boards)) == ["H100", "H200", "L40S"]
    twice = [dataclasses.replace(board, id="x") for board in boards]
    assert len(front._columns([*boards, *twice])) == 3


def test_gpus_beyond_the_columns_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu in ("h200", "h100", "l40s"):
        write_arm(tmp_path / "results", "v1", gpu=gpu)
    for room, named in ((3, False), (2, True)):
        monkeypatch.setattr(front, "MOST_GPUS", room)
        out = tmp_path / f"site{room}"
        build(tmp_path / "results", out)
        page = (out / "index.html").read_text()
        assert (re.search(r'More GPUs: <a href="gpus/[a-z0-9]+\.html">', page) is not None) == named
