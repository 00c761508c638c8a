"""Runs of the batch loop, what must hold of any of them, and that one is the oracle's."""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.simulate.batch import BatchLoop
from harness.simulate.prefix_cache import PrefixCache
from harness.simulate.rows import REQUEST_FIELDS, Rows
from policies.core import STEP_COLUMNS, PolicyState
from tests.support.batch_cases import Case
from tests.support.batch_models import Watching
from tests.support.oracle import Oracle
from tests.support.oracle_rows import LENGTH, TOO_LONG, StepRow

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Played:
    """A run of the batch loop, its chunks put together."""

    requests: Ints
    steps: Ints
    gaps: dict[int, list[int]]
    states: list[PolicyState]
    loop: BatchLoop
    policy: Watching
    chunks: list[Rows]

    def column(self, name: str) -> Ints:
        return self.steps[:, STEP_COLUMNS.index(name)]

    def request_column(self, name: str) -> Ints:
        return self.requests[:, REQUEST_FIELDS.index(name)]


def play(case: Case, leap: bool = True, every: int | None = None) -> Played:
    policy = case.new_policy()
    limit = case.max_duration_s
    cache = case.cache()
    loop = BatchLoop(case.stream, policy, case.model, case.limits, leap, limit, case.hints, cache)
    chunks: list[Rows] = []

    def sink(chunk: Rows) -> bool:
        chunks.append(chunk)
        # Asked only between steps, so it must hold there: with every=1, at each of them.
        assert 0 <= loop.state.free_blocks <= loop.state.total_blocks
        assert loop.state.decoding + loop.state.prefilling <= case.limits.slots
        if cache is not None:
            assert loop.state.free_blocks == cache.free
            if len(chunks) % 16 == 1:
                check_blocks(cache, loop.state.total_blocks)
        return True

    assert loop.run(sink, case.every if every is None else every)
    if cache is not None:
        check_blocks(cache, loop.state.total_blocks)
        assert cache.free == loop.state.total_blocks, "a block is held by nobody who runs"
    gaps: dict[int, list[int]] = {}
    for chunk in chunks:
        assert not gaps.keys() & chunk.gaps.keys()
        gaps.update({row: values.tolist() for row, values in chunk.gaps.items()})
    return Played(
        np.concatenate([chunk.requests for chunk in chunks]),
        np.concatenate([chunk.steps for chunk in chunks]),
        gaps,
        chunks[-1].states,
        loop,
        policy,
        chunks,
    )


def check_blocks(cache: PrefixCache, total: int) -> None:
    """Every block is free or held, as often as it says, and found by its key, once."""
    users = Counter(block for held in cache._held.values() for block in held)
    assert [users[block] for block in range(total + 1)] == cache._users
    assert users.keys() | cache._free.keys() == set(range(1, total + 1))
    assert not users.keys() & cache._free.keys()
    assert all(len(held) == len(set(held)) for held in cache._held.values())
    named = {block: key for block, key in enumerate(cache._key) if key >= 0}
    assert {block: key for key, blocks in cache._blocks.items() for block in blocks} == named
    assert sum(map(len, cache._blocks.values())) == len(named)


# A row of the oracle in the order of the columns, `state` apart.
assert (*(f.name for f in dataclasses.fields(StepRow)), "state") == STEP_COLUMNS
STEP_ROW = operator.attrgetter(*STEP_COLUMNS[:-1])


def oracle_requests(oracle: Oracle) -> list[tuple[int, ...]]:
    return [
        (
            r.row,
            r.due,
            r.due,
            *((r.token_times[0], r.token_times[-1]) if r.token_times else (-1, -1)),
            r.done,
            r.output,
            r.preemptions,
            r.finish,
        )
        for r in oracle.ended
    ]


def check_equal(case: Case, oracle: Oracle, played: Played) -> None:
    """Every integer, every policy state, every token time of the loop is the oracle's."""
    expected = list(map(STEP_ROW, oracle.steps))
    actual = list(map(tuple, played.steps[:, :-1].tolist()))
    if actual != expected:
        for i, (theirs, ours) in enumerate(zip(expected, actual, strict=False)):
            told = dict(zip(STEP_COLUMNS, theirs, strict=False))
            assert told == dict(zip(STEP_COLUMNS, ours, strict=False)), f"step {i}"
    assert len(actual) == len(expected)
    assert list(map(tuple, played.requests.tolist())) == oracle_requests(oracle)
    states = [played.states[i] if i >= 0 else None for i in played.column("state").tolist()]
    assert states == oracle.states
    watched = oracle.policy
    assert isinstance(watched, Watching)
    assert played.policy.views == {at: watched.views[at] for at in played.policy.views}
    assert played.policy.told == watched.told
    assert played.policy.producing == watched.producing
    check_token_times(oracle, played)
    assert played.loop.sent == oracle.sent
    assert played.loop.preemptions == oracle.counts.preemptions


def check_token_times(oracle: Oracle, played: Played) -> None:
    """The gaps of preempted requests are written down, those of all others follow from the steps."""
    ends = played.column("t") + played.column("duration")
    decode_ends = ends[played.column("decode_requests") > 0]
    for request in oracle.ended:
        times = np.array(request.token_times, dtype=np.int64)
        if request.row in played.gaps:
            assert request.preemptions
            assert played.gaps[request.row] == np.diff(times).tolist()
        elif request.finish == LENGTH:
            after = decode_ends[decode_ends > times[0]][: len(times) - 1]
            np.testing.assert_array_equal(times[1:], after)


def check_same(one: Played, other: Played) -> None:
    np.testing.assert_array_equal(one.requests, other.requests)
    np.testing.assert_array_equal(one.steps, other.steps)
    assert one.gaps == other.gaps
    assert one.states == other.states


def check_conservation(case: Case, played: Played) -> None:
    """What holds of any run, read from its rows alone."""
    limits = case.limits
    n = len(case.prompts)
    # Every request ends exactly once, with its asked-for length or as too long.
    rows = played.request_column("row")
    assert sorted(rows.tolist()) == list(range(n))
    outputs, finishes = played.request_column("output_tokens"), played.request_column("finish")
    for row, output, finish in zip(rows.tolist(), outputs.tolist(), finishes.tolist(), strict=True):
        expected = (case.outputs[row], LENGTH) if case.fits(row) else (0, TOO_LONG)
        assert (output, finish) == expected
    ran = finishes == LENGTH
    due, first, last, done = (played.request_column(c) for c in ("due", "first", "last", "done"))
    assert (due[ran] < first[ran]).all()
    assert (first[ran] <= last[ran]).all()
    assert (last[ran] == done[ran]).all()
    assert ((outputs[ran] == 1) <= (first[ran] == last[ran])).all()

    # Limits, phases and blocks.
    prefill, decodes = played.column("prefill_tokens"), played.column("decode_requests")
    held = played.column("kv_tokens")
    assert (played.column("running") <= limits.slots).all()
    assert (prefill + decodes <= limits.token_budget).all()
    assert (prefill + decodes > 0).all()
    assert (held <= (limits.kv_blocks - 1) * limits.block_size).all()
    assert (held % limits.block_size == 0).all()
    assert (held >= limits.block_size).all()
    np.testing.assert_array_equal(
        played.column("phase"), np.where((prefill > 0) & (decodes > 0), 0, np.where(prefill > 0, 1, 2))
    )
    assert played.loop.state.free_blocks == played.loop.state.total_blocks == limits.kv_blocks - 1
    assert (played.loop.state.waiting, played.loop.state.prefilling, played.loop.state.decoding) == (0, 0, 0)
    check_gap(case, played)
    if case.policy in ("v0", "eb"):
        assert (played.column("phase") != 0).all()
        check_phases(case, played)

    # Work: every token of every request was produced once, every prompt computed again after a preemption.
    assert played.column("producing").sum() == outputs.sum()
    prompts = np.array(case.prompts)[rows[ran]].sum()
    if not played.column("preempted").any():
        assert prefill.sum() == prompts
    assert prefill.sum() >= prompts
    assert played.column("preempted").sum() == played.request_column("preemptions").sum()
    # Each producing request adds 1 … o over its life, whatever happens to it.
    assert played.column("generated_sum").sum() == sum(o * (o + 1) // 2 for o in outputs.tolist())
    assert played.column("footprint_sum").sum() == sum(
        case.prompts[row] * o + o * (o + 1) // 2 for row, o in zip(rows.tolist(), outputs.tolist(), strict=True)
    )

    # Time goes on without a break except where nothing is there to do.
    starts, durations = played.column("t"), played.column("duration")
    assert (durations > 0).all()
    gaps = starts[1:] - (starts + durations)[:-1]
    if case.due_ns is None:
        assert (gaps == 0).all()
        assert not len(starts) or starts[0] == 0
    else:
        assert (gaps >= 0).all()
        assert np.isin(starts[1:][gaps > 0], case.due_ns).all()
        assert (played.column("waiting")[:-1][gaps > 0] == 0).all()


def check_gap(case: Case, played: Played) -> None:
    """No two that give a token in one step are ever further apart than a strict guard allows."""
    given = dict(case.options)
    if case.policy == "ljf":
        given["alpha"] = "0"
    if case.policy not in ("ljf", "isjl") or given.get("guard") == "lenient":
        return
    count = "footprint" if given.get("footprint") == "kv" else "generated"
    assert (played.column(f"{count}_max") - played.column(f"{count}_min") <= int(given["alpha"])).all()


def check_phases(case: Case, played: Played) -> None:
    """A chunked prompt finishes before the phase ends: each time decodes begin, as many produce as hold a slot."""
    decoding = played.column("phase") == 2
    np.testing.assert_array_equal(played.column("decode_requests")[decoding], played.column("running")[decoding])


def check_found(oracle: Oracle, played: Played) -> None:
    """The prefix cache of the loop found what the oracle found, and made as much room."""
    cached = [tokens for rows in played.chunks for tokens in rows.cached_tokens or ()]
    assert cached == [request.found if request.seen else None for request in oracle.ended]
    cache = played.loop._cache
    assert cache is not None
    assert cache.evictions == oracle.counts.evictions
