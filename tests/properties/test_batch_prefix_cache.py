"""The batch loop's prefix cache against the oracle's."""

from __future__ import annotations

import dataclasses
from collections import Counter

from hypothesis import given

from tests.support.batch_cases import Case, Seeded, cached_case, cached_cases, large_cases
from tests.support.batch_played import check_equal, check_found, play
from workloads.prompts.content import Content


@large_cases
@given(cached_cases())
def test_a_prefix_cache_equals_the_oracle(case: Case) -> None:
    oracle, played = case.oracle(), play(case, every=1)
    check_equal(case, oracle, played)
    check_found(oracle, played)


def test_prefix_caches_equal_the_oracle_where_all_of_their_rules_are_met() -> None:
    met: Counter[str] = Counter()
    for seed in range(120):
        case = cached_case(Seeded(seed))
        oracle, played = case.oracle(), play(case)
        check_equal(case, oracle, played)
        check_found(oracle, played)
        counts = oracle.counts
        for rule in ("hits", "own_hits", "whole_hits", "evictions", "duplicates", "preemptions", "chunked"):
            met[rule] += getattr(counts, rule)
    assert min(met.values()) > 40, met


@large_cases
@given(cached_cases())
def test_a_boundless_cache_finds_all_that_recurs(case: Case) -> None:
    tokens = sum(case.prompts) + sum(case.outputs)
    limits = dataclasses.replace(case.limits, kv_blocks=2 + tokens // case.limits.block_size + 2 * len(case.prompts))
    case = dataclasses.replace(case, policy="v1", options=(), lengths="none", limits=limits)
    played = play(case)
    cached = [tokens for rows in played.chunks for tokens in rows.cached_tokens or ()]
    content = Content(case.stream.trace, limits.block_size, case.talks is not None)
    assert sum(tokens or 0 for tokens in cached) == content.recurring_tokens()


@large_cases
@given(cached_cases())
def test_a_cache_that_nobody_shares_changes_nothing(case: Case) -> None:
    case = dataclasses.replace(case, talks=None, shared=None)
    with_cache, without = play(case), play(dataclasses.replace(case, cached=False), leap=False)
    if not without.loop.preemptions:
        assert with_cache.steps.tolist() == without.steps.tolist()
        assert with_cache.requests.tolist() == without.requests.tolist()
