"""Distributions and courses on a board's page: percentiles of arms, and what became of traffic that changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from harness.pages import courses, latency
from harness.published.detail import QUANTILES, STRETCHES
from tests.support.runfactory import SPEC, toy_run, write_run, write_toy
from tests.support.sitefactory import only_board, site_of

PHASES = [{"name": "<b>short</b>", "first_row": 0}, {"name": "long", "first_row": 120}]


def drifting(results: Path) -> None:
    requests, steps = toy_run()
    provenance = {"trace": {"phases": PHASES}}
    spec = dataclasses.replace(SPEC, policy="v1", workload="drift:lengths")
    write_run(results, requests, steps, spec=spec, provenance=provenance)


def test_an_arms_curve_is_the_mean_over_its_repeats(tmp_path: Path) -> None:
    for repeat in (0, 1):
        write_toy(tmp_path / "results", policy="v1", seed=repeat, repeat=repeat)
    arm = only_board(site_of(tmp_path / "results", tmp_path / "kept")).arms[0]
    found = latency.curve(arm, "ttft_s")
    assert found is not None
    places = [QUANTILES.index(q) for q in latency.SHOWN]
    curves = np.array([entry.detail["curves"]["ttft_s"] for entry in arm.runs])[:, places]
    assert found == pytest.approx(curves.mean(axis=0))
    for entry in arm.runs:
        table = entry.run.requests()
        ttft = table.column("first_token_s").to_numpy() - table.column("sent_s").to_numpy()
        assert entry.detail["curves"]["ttft_s"][QUANTILES.index(50)] == pytest.approx(np.percentile(ttft, 50), rel=1e-5)


def test_latency_charts_carry_the_slo_and_the_kind(tmp_path: Path) -> None:
    requests, steps = toy_run()
    spec = dataclasses.replace(SPEC, policy="v1", slo={"ttft_s": 0.5})
    write_run(tmp_path / "results", requests, steps, spec=spec)
    board = only_board(site_of(tmp_path / "results", tmp_path / "kept"))
    found = {one.id: one for one in latency.charts_of(board)}
    assert set(found) == {"ttft_s", "tpot_s", "itl_s", "e2el_s"}
    line = found["ttft_s"].series[-1]
    assert (list(line.x), line.name) == ([0.5, 0.5], "TTFT ≤ 500 ms")
    assert len(found["tpot_s"].series) == 1
    for one in found.values():
        assert "simulated" in one.note
        assert "second" in one.x_title
        assert [row[1] for row in one.rows] == list(one.series[0].x)


def test_the_traffics_phases_begin_when_their_first_request_is_sent(tmp_path: Path) -> None:
    drifting(tmp_path / "results")
    board = only_board(site_of(tmp_path / "results", tmp_path / "kept"))
    entry = board.first
    table = entry.run.requests()
    sent = dict(zip(table.column("row").to_pylist(), table.column("sent_s").to_pylist(), strict=True))
    marks = entry.detail["marks"]
    assert [one["name"] for one in marks] == ["<b>short</b>", "long"]
    assert [one["t_s"] for one in marks] == pytest.approx([sent[0], sent[120]], rel=1e-5)
    assert [name for _, name in courses.marks_of(board.arms[0])] == ["<b>short</b>", "long"]


def test_modes_are_drawn_as_places_of_an_axis_with_words(tmp_path: Path) -> None:
    requests, steps = toy_run()
    steps = [{**one, "policy_mode": "EB" if place % 2 else "MB", "policy_k": 3} for place, one in enumerate(steps)]
    write_run(tmp_path / "results", requests, steps, spec=dataclasses.replace(SPEC, policy="ebplus"))
    board = only_board(site_of(tmp_path / "results", tmp_path / "kept"))
    found = {one.id: one for one in courses.threshold_charts(board, courses.lanes_of(board))}
    assert set(found) == {"over-k", "over-mode"}
    assert found["over-mode"].y_words == ("EB", "MB")
    drawn = found["over-mode"].series[0].y
    told = [row[1] for row in found["over-mode"].rows]
    assert [None if place is None else found["over-mode"].y_words[place] for place in drawn] == told
    assert {row[1] for row in found["over-k"].rows} <= {3, None}


def test_the_steps_of_a_stretch_share_its_time(tmp_path: Path) -> None:
    drifting(tmp_path / "results")
    board = only_board(site_of(tmp_path / "results", tmp_path / "kept"))
    (lane,) = courses.step_charts(board, courses.lanes_of(board))
    assert [name for _, name in lane.marks] == ["<b>short</b>", "long"]
    for _, *shares in lane.rows:
        known = [share for share in shares if share is not None]
        assert not known or sum(known) == pytest.approx(100, abs=0.1)


def test_ttft_over_time_is_the_mean_of_the_requests_sent_in_each_stretch(tmp_path: Path) -> None:
    drifting(tmp_path / "results")
    arm = only_board(site_of(tmp_path / "results", tmp_path / "kept")).arms[0]
    table, course = arm.first.run.requests(), arm.first.detail["course"]
    sent, first = (table.column(name).to_numpy() for name in ("sent_s", "first_token_s"))
    width = 2 * course["t_s"][0]
    for place in (0, STRETCHES // 2, STRETCHES - 1):
        here = (sent >= place * width) & (sent < (place + 1) * width)
        if here.any():
            assert course["ttft_s"][place] == pytest.approx((first - sent)[here].mean(), rel=1e-4)
    assert sum(one is not None for one in course["ttft_s"]) > STRETCHES // 4
    # Of the page's coarser stretches: means of numbers, the last of words.
    assert courses._together([1.0, None, 2.0, 4.0, None, None]) == [1.0, 3.0, None]
    assert courses._together(["MB", "EB", None, None, "MB", None]) == ["EB", None, "MB"]
    assert len(courses.course(arm)["t_s"]) == STRETCHES // courses.TOGETHER
