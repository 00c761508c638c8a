"""Seeded runs of the batch loop against the oracle, counted: everything that can happen has happened."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import settings

from policies.core import Phase
from tests.support.batch_cases import ORDERED, Case, Seeded, case_of, crowded
from tests.support.batch_played import check_conservation, check_equal, check_same, play
from tests.support.oracle import Oracle


def any_case(seed: int) -> Case:
    return case_of(Seeded(seed))


def crowded_case(seed: int) -> Case:
    return crowded(Seeded(seed))


def ordered_case(seed: int) -> Case:
    return crowded(Seeded(seed), ORDERED) if seed % 4 == 0 else case_of(Seeded(seed), kinds=ORDERED)


def changing_case(seed: int) -> Case:
    # An update asks for 30 completions: more requests for the policy that changes its mode at updates.
    return case_of(Seeded(seed), 60, 200, ("ebplus",))


@dataclass(frozen=True, slots=True)
class Shard:
    """Some seeds of a kind of case, and how often each event has to happen in them at least."""

    case: Callable[[int], Case]
    seeds: range
    floors: dict[str, int]

    def __str__(self) -> str:
        return f"{self.case.__name__}-{self.seeds.start}"


ALWAYS = {"preemptions": 50, "chunked": 50, "leaps": 50}
ANY = ALWAYS | {"rejected": 50, "gate_closed": 50, "empty_prefills": 50}
FULL = ALWAYS | {"starved_chunks": 40, "empty_prefills": 50, "starved_prefills": 5}
ORDER = ALWAYS | {"held_back": 50, "guarded_preemptions": 25, "empty_prefills": 50}
CHANGE = ALWAYS | {"mode_changes": 30, "watermark_held": 50}
# Each shard sees everything that it is there for; `make soak` plays more of each kind.
SOAK = settings.default is not None and settings.default.max_examples > 1000
SHARDS = (
    *(Shard(any_case, range(first, first + 50), ANY) for first in range(0, 1000 if SOAK else 50, 50)),
    Shard(crowded_case, range(0, 150, 5), FULL),
    *(Shard(ordered_case, range(first, first + 25), ORDER) for first in range(200, 1000 if SOAK else 225, 25)),
    *(Shard(changing_case, range(first, first + 25), CHANGE) for first in range(150, 500 if SOAK else 175, 25)),
)


def tally(case: Case, oracle: Oracle) -> Counter[str]:
    seen: Counter[str] = Counter({f.name: getattr(oracle.counts, f.name) for f in dataclasses.fields(oracle.counts)})
    modes = [state.mode for state in oracle.states if state is not None]
    if case.policy == "isjl":
        seen["guarded_preemptions"] = oracle.counts.preemptions
    seen["mode_changes"] = sum(a != b for a, b in pairwise(modes))
    prefilling = [plan.phase is Phase.PREFILL for plan in oracle.plans]
    if case.policy in ("v0", "eb"):
        seen["gate_closed"] = sum(
            before and not now and row.waiting > 0 and row.running < case.limits.slots
            for before, now, row in zip(prefilling, prefilling[1:], oracle.steps, strict=False)
        )
    return seen


@pytest.mark.parametrize("shard", SHARDS, ids=str)
def test_seeded_cases_equal_the_oracle_and_see_everything_happen(shard: Shard) -> None:
    seen: Counter[str] = Counter()
    for case in map(shard.case, shard.seeds):
        # A chunk a step, or a leap; and the other way round, steps in chunks of the case's own size.
        oracle, leapt, stepped = case.oracle(), play(case, every=1), play(case, leap=False)
        check_equal(case, oracle, leapt)
        check_same(leapt, stepped)
        check_conservation(case, leapt)
        seen += tally(case, oracle)
        seen["leaps"] += len(leapt.steps) - len(leapt.chunks)
    print(dict(seen))
    assert {name: seen[name] for name, floor in shard.floors.items() if seen[name] < floor} == {}
