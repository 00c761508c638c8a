"""Turns of conversations, what they share, and the cache that finds it; runs from before there was any of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.core.records import REQUESTS
from harness.core.runspec import RunSpec
from harness.runs.append_log import conform
from harness.runs.run import load_run
from harness.runs.tables import read_table
from harness.runs.writer import RunWriter, recover
from harness.simulate.prefix_cache import PrefixCache
from tests.support.contents import tokens_of
from tests.support.runfactory import SPEC, batch_of, request, toy_run, write_toy
from workloads.core.arrivals import Closed, ClosedPhases, Poisson
from workloads.core.blocks import Blocks
from workloads.core.errors import WorkloadError
from workloads.core.sessions import turns_of
from workloads.core.stream import schedule
from workloads.core.trace import Trace
from workloads.prompts.content import Content


def trace_of(prompts: list[int], outputs: list[int], **columns: Any) -> Trace:
    arrays: dict[str, Any] = {n: np.array(v) if n != "blocks" else v for n, v in columns.items()}
    return Trace("t", np.array(prompts), np.array(outputs), **arrays)


TALK = trace_of([10, 8, 30, 60, 9], [6, 4, 10, 5, 3], session=[1, 2, 1, 1, 2], turn=[0, 5, 1, 2, 5])


def keys(content: Content, row: int, blocks: int) -> list[int]:
    return list(content.keys(row, 0, blocks))


def test_turns_go_in_order_whatever_stands_between() -> None:
    turns = turns_of(TALK)
    assert turns.heads == [0, 1]
    assert turns.after == {0: 2, 2: 3, 1: 4}
    late = trace_of([5, 5, 5], [1, 1, 1], session=[7, 7, 7], turn=[2, 0, 1])
    assert (turns_of(late).heads, turns_of(late).after) == ([1], {1: 2, 2: 0})


def test_a_schedule_of_conversations_is_another_stream() -> None:
    alone, talks, slower = (schedule(Poisson(2.0), TALK, 0, think) for think in (None, 0.0, 1.5))
    assert (alone.think_ns, talks.think_ns, slower.think_ns) == (None, 0, 1_500_000_000)
    assert len({alone.digest, talks.digest, slower.digest}) == 3
    assert schedule(Closed(2), TALK, 0, 0.5).think_ns == 500_000_000
    with pytest.raises(WorkloadError, match="this trace has none"):
        schedule(Closed(2), trace_of([5], [5]), 0, 0.0)
    with pytest.raises(WorkloadError, match="counts requests, not conversations"):
        schedule(ClosedPhases((1, 2), (2, 3), True), TALK, 0, 0.0)


def test_a_conversation_is_one_text_that_grows() -> None:
    content = Content(TALK, 4, sessions=True)
    assert keys(content, 0, 4) == keys(content, 2, 10)[:4] == keys(content, 3, 16)[:4]
    assert keys(content, 2, 10) == keys(content, 3, 16)[:10]
    # Two turns of the same number continue nothing, each other included.
    assert not set(keys(content, 1, 3)) & set(keys(content, 4, 3))
    # Of the answers all but the last token is known: 3 of the 16 tokens' 4 blocks, 9 of the 40 tokens' 10.
    assert content.recurring_tokens() == 4 * (3 + 9)
    alone = Content(TALK, 4, sessions=False)
    assert not set(keys(alone, 0, 4)) & set(keys(alone, 2, 10))
    assert alone.recurring_tokens() == 0
    with pytest.raises(WorkloadError, match="history=true"):
        Content(dataclasses.replace(TALK, prompt_tokens=np.array([10, 8, 16, 60, 9])), 4, sessions=True)


@pytest.mark.parametrize("size", [1, 3, 4, 8, 12, 16])
def test_named_blocks_are_the_same_as_far_as_their_tokens_are(size: int) -> None:
    ids = [[1, 2, 3], [1, 2], [1, 4, 3], [2, 1], [], [1, 2, 3]]
    trace = trace_of([24, 13, 24, 20, 30, 17], [9, 20, 9, 8, 10, 40], blocks=Blocks(ids, 8))
    content, tokens = Content(trace, size, sessions=False), tokens_of(trace, sessions=False)
    named: dict[int, tuple[int, ...]] = {}
    blocks = 0
    for row, text in enumerate(tokens):
        for place, key in enumerate(content.keys(row, 0, len(text) // size)):
            assert named.setdefault(key, tuple(text[: (place + 1) * size])) == tuple(text[: (place + 1) * size])
            assert list(content.keys(row, place, place + 1)) == [key]
            blocks += 1
    assert len(named) == len(set(named.values())) < blocks
    with pytest.raises(WorkloadError, match="one or the other"):
        Content(dataclasses.replace(trace, session=np.zeros(6, np.int64), turn=np.arange(6)), size, sessions=True)


def cache_of(prompts: list[int], outputs: list[int], room: int, **columns: Any) -> PrefixCache:
    trace = trace_of(prompts, outputs, **columns)
    return PrefixCache(Content(trace, 4, sessions="session" in columns), room, 4)


def test_a_whole_hit_computes_its_last_block_again_in_another() -> None:
    cache = cache_of([8, 8, 8], [1, 1, 1], 6, blocks=Blocks([[1], [1], [1]], 8))
    assert cache.find(0, 8) == []
    assert cache.admit(0, [], 2, 8) == 4
    assert cache.find(1, 8) == [1]
    assert cache.held_by_others([1]) == 1
    assert cache.admit(1, [1], 2, 8) == 3
    assert cache.release(0, 8) == 4  # block 1 is still held
    assert cache.find(2, 9) == [1, 2]  # of two blocks that are the same the older one
    assert cache.held_by_others([1, 2]) == 1
    assert cache.cached_tokens == {0: 0, 1: 4}


def test_blocks_without_content_are_taken_first_then_the_oldest_from_the_back() -> None:
    cache = cache_of([10, 8, 40], [1, 1, 1], 5)
    cache.admit(0, [], 3, 10)
    cache.admit(1, [], 2, 8)
    cache.release(0, 10)
    cache.release(1, 8)
    assert list(cache._free) == [3, 2, 1, 5, 4]
    cache.admit(2, [], 4, 16)
    assert cache._held[2] == [3, 2, 1, 5]
    assert cache.evictions == 3
    assert cache.find(1, 9) == [4]


def test_a_run_from_before_sessions_were_in_the_spec_reads_as_the_same() -> None:
    old = {name: value for name, value in SPEC.to_dict().items() if name not in ("sessions", "think_s")}
    old["client"] = {"api": "chat", "sessions": True, "think_s": 1.5}
    new = dataclasses.replace(SPEC, client={"api": "chat"}, sessions=True, think_s=1.5)
    assert RunSpec.from_dict(old) == new
    assert old["client"] == {"api": "chat", "sessions": True, "think_s": 1.5}
    assert RunSpec.from_dict(new.to_dict()) == new


def test_a_run_from_before_hits_were_written_down_can_be_read(tmp_path: Path) -> None:
    path = write_toy(tmp_path / "runs", n=30)
    table = pq.read_table(path / "requests.parquet")
    pq.write_table(table.drop_columns(["cached_tokens"]), path / "requests.parquet")
    manifest = json.loads((path / "run.json").read_text())
    assert load_run(path).spec == RunSpec.from_dict(manifest["spec"])
    assert read_table(path, "requests")["cached_tokens"].null_count == 30
    assert read_table(path, "requests", {"row", "cached_tokens"}).column_names == ["row", "cached_tokens"]
    batch = batch_of(REQUESTS, [request(0)]).drop_columns(["cached_tokens"])
    assert conform(batch, REQUESTS).column("cached_tokens").to_pylist() == [None]
    with pytest.raises(KeyError):
        conform(batch.drop_columns(["row"]), REQUESTS)
    assert isinstance(batch, pa.RecordBatch)


def test_a_run_that_was_cut_off_before_hits_were_written_down_is_recovered(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    writer.close()
    batch = batch_of(REQUESTS, toy_run(20)[0])
    old = pa.schema([field for field in REQUESTS if field.name != "cached_tokens"])
    with pa.ipc.new_stream(str(writer.partial / "requests.arrows"), old) as stream:
        stream.write_batch(conform(batch, REQUESTS).drop_columns(["cached_tokens"]))
    path, changed = recover(writer.partial)
    assert changed
    assert read_table(path, "requests")["cached_tokens"].null_count == 20
