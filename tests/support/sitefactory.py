"""A site's data from run directories, as `bench site build` has it before it writes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from harness.pages.boards import Board, boards_of
from harness.pages.site import Site
from harness.published.cache import JsonCache
from harness.published.corpus import collect_corpus
from tests.support.runfactory import SPEC, write_run
from tests.support.schedules import Schedule

LENGTHS = [40, 30, 30, 20, 12, 8, 6, 4]
STARTS = {
    "v1": [0, 0, 30, 40, 60, 60, 68, 72],
    "ljf": [0, 0, 40, 40, 70, 70, 82, 82],
    "isjl:alpha=10": [0, 8, 40, 46, 70, 0, 40, 70],
}


def site_of(results: Path, kept: Path) -> Site:
    """The site of the runs under a directory."""
    cache = JsonCache(kept)
    corpus = collect_corpus(results, cache)
    assert not corpus.problems
    return Site(corpus, tuple(boards_of(corpus, cache)), cache)


def only_board(site: Site) -> Board:
    assert len(site.boards) == 1
    return site.boards[0]


def write_schedules(results: Path, **spec: Any) -> None:
    """A run a policy of the token-step schedules: the same eight requests in other orders."""
    for policy, starts in STARTS.items():
        one = Schedule(starts, LENGTHS, [100] * 8, [10**9] * 100)
        # A small run has no steady window to speak of; an open loop needs none.
        given = dataclasses.replace(SPEC, policy=policy, arrival="poisson:rate=9.0", **spec)
        write_run(results / policy.replace(":", "-"), one.requests(), one.steps(), spec=given)
