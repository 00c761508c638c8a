"""Boards at their bounds: one policy, INVALID runs only, sixty policies; what is published beside them to take away."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from harness.pages.build import build
from tests.support.runfactory import SPEC, toy_run, write_run

MOST_BYTES = 400_000


def write(results: Path, policy: str, speed: float = 1.0, **told: Any) -> None:
    status = told.pop("status", "complete")
    requests, steps = toy_run(n=60, speed=speed)
    write_run(results, requests, steps, spec=dataclasses.replace(SPEC, policy=policy, **told), status=status)


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def only_page(site: Path) -> str:
    (page,) = (site / "boards").glob("*.html")
    assert page.stat().st_size <= MOST_BYTES
    return page.read_text()


@pytest.mark.parametrize(
    ("policies", "status", "answer"),
    [(("v1",), "complete", "only v1 ran"), (("v1", "eb"), "failed", "every run here is INVALID")],
)
def test_a_board_without_an_answer_says_so(tmp_path: Path, policies: tuple[str, ...], status: str, answer: str) -> None:
    for policy in policies:
        write(tmp_path / "results", policy, status=status)
    built = build(tmp_path / "results", tmp_path / "site")
    assert (built.runs, built.problems) == (len(policies), 0)
    assert answer in only_page(tmp_path / "site")


def test_sixty_policies_fit_a_page_and_all_stand_in_its_table(tmp_path: Path) -> None:
    names = ["v1", *(f"eb:k={k}" for k in range(1, 60))]
    for place, policy in enumerate(names):
        write(tmp_path / "results", policy, 1 + place / 100)
    build(tmp_path / "results", tmp_path / "site")
    page = only_page(tmp_path / "site")
    ranking = page[page.index('id="ranking"') : page.index('id="throughput"')]
    assert all(f">{policy}</a>" in ranking for policy in names)
    assert "52 more policies stand in the tables" in page
    assert (tmp_path / "site/index.html").stat().st_size < 300_000


def test_what_can_be_taken_away_has_every_number_with_its_runs(tmp_path: Path) -> None:
    for policy, speed in (("v1", 1.0), ("eb", 1.5), ("=cmd()", 1.0)):
        write(tmp_path / "results", policy, speed, engine="endpoint")
    build(tmp_path / "results", tmp_path / "site")
    told = json.loads((tmp_path / "site/leaderboard.json").read_text())
    (board,) = told["boards"]
    by_policy = {arm["policy"]: arm for arm in board["arms"]}
    for where in (one for arm in board["arms"] for one in arm["runs"]):
        assert (tmp_path / "results" / where / "run.json").is_file()
    summary = json.loads((tmp_path / "results" / by_policy["eb"]["runs"][0] / "summary.json").read_text())
    value = summary["metrics"]["output_throughput"]["value"]
    assert by_policy["eb"]["values"]["output_throughput"][0] == pytest.approx(value, rel=1e-5)
    rows = read(tmp_path / "site/leaderboard.csv")
    assert rows == read(tmp_path / f"site/boards/{board['id']}.csv")
    (row,) = (one for one in rows if one["policy"] == "eb" and one["metric"] == "output_throughput")
    assert float(row["mean"]) == pytest.approx(value, rel=1e-5)
    # A spreadsheet takes no name for a formula.
    assert "'=cmd()" in {one["policy"] for one in rows}
    feed = ElementTree.parse(tmp_path / "site/feed.xml").getroot()  # noqa: S314 - of our own making
    atom = "{http://www.w3.org/2005/Atom}"
    assert [entry.find(f"{atom}link").get("href") for entry in feed.iter(f"{atom}entry")] == [  # type: ignore[union-attr]
        f"boards/{board['id']}.html"
    ]
