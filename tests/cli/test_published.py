"""What is published in results/ passes the check that a contribution has to pass."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Bench

RESULTS = Path(__file__).parents[2] / "results"


def test_every_published_run_may_be_published(bench: Bench) -> None:
    checked = bench("site", "check", "--results", str(RESULTS))
    assert checked.code == 0, checked.err + checked.out
    assert "no problem" in checked.out
