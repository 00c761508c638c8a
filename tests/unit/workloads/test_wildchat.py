"""WildChat: the published protocol, times as arrivals, and what is never read."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.parquet import ParquetFile

from tests.support import dataset_files as made
from tests.support.refusals import refusal
from workloads.core.trace import Trace

US = 1_000_000
EPOCH = 1_681_084_800  # 2023-04-10, when WildChat begins


def wild(seed: int, turns: int, times: list[float | None] | None = None) -> made.Turns:
    talk = made.chat(random.Random(seed), turns)
    stamps = iter(times or [])
    for turn in talk:
        if turn["role"] == "assistant" and times is not None:
            at = next(stamps)
            turn["timestamp"] = None if at is None else round((EPOCH + at) * US)
    return talk


def put_wild(path: Path, *talks: made.Turns | None) -> Path:
    rows = [made.wildchat_row(i, talk) for i, talk in enumerate(talks)]
    return made.write_parquet(path, made.wildchat_schema(), rows)


def test_wildchats_published_protocol(tmp_path: Path, load: Callable[..., Trace]) -> None:
    talks = [wild(i, turns) for i, turns in enumerate([6, 5, 13, 2, 12, 7, 6])]
    path = put_wild(tmp_path / "w.parquet", *talks)
    trace = load("wildchat", path)
    taken = {0: 6, 2: 12, 4: 12, 5: 7, 6: 6}
    assert trace.prompt_tokens.tolist() == [
        n for i, turns in taken.items() for n in made.turn_bytes(talks[i], "user")[:turns]
    ]
    assert trace.output_tokens.tolist() == [
        min(n, 256) for i, turns in taken.items() for n in made.turn_bytes(talks[i], "assistant")[:turns]
    ]
    assert trace.session is not None
    assert np.bincount(trace.session).tolist() == [6, 0, 12, 0, 12, 7, 6]
    assert trace.source["skipped"] == {
        "conversation of fewer than 6 turns": 2,
        "turn after the first 12 of its conversation": 1,
    }
    assert trace.timestamp_s is None
    two = load("wildchat", path, conversations=2)
    assert two.session is not None
    assert sorted(set(two.session.tolist())) == [0, 2]
    assert two.source["conversations_read"] == 3
    whole = load("wildchat", path, conversations=0, min_turns=0, max_turns=0, output_cap=0, pairs="first")
    assert whole.prompt_tokens.tolist() == [made.turn_bytes(talk, "user")[0] for talk in talks]
    assert whole.source["skipped"] == {"not the first pair (pairs=first)": 51 - 7}


def test_wildchats_times_are_arrivals_in_order(tmp_path: Path, load: Callable[..., Trace]) -> None:
    path = put_wild(
        tmp_path / "w.parquet", wild(1, 2, [30.5, 90.25]), wild(2, 2, [10.0, None]), wild(3, 2, [50.0, 40.0])
    )
    options = {"min_turns": 0, "order": "time"}
    trace = load("wildchat", path, **options)
    assert trace.timestamp_s is not None
    assert trace.session is not None
    assert trace.turn is not None
    assert trace.timestamp_s.tolist() == [0.0, 20.5, 40.0, 40.0, 80.25]
    assert trace.session.tolist() == [1, 0, 2, 2, 0]
    assert trace.turn.tolist() == [0, 0, 0, 1, 1]
    assert trace.source["skipped"] == {"turn without a timestamp": 1}
    assert trace.source["times_put_in_order"] == 1
    assert trace.source["timestamps"].endswith("the first is 2023-04-10T00:00:10+00:00")
    told = load("wildchat", path, history=True, **options)
    before = trace.prompt_tokens + trace.output_tokens
    assert (told.prompt_tokens - trace.prompt_tokens).tolist() == [0, 0, 0, int(before[2]), int(before[1])]
    far = put_wild(tmp_path / "f.parquet", wild(1, 2, [0.0, 1e7]))
    (notice,) = load("wildchat", far, **options).source["notices"]
    assert notice == "2 requests in 1e+07 s are 2e-07/s: are the timestamps in the right unit?"
    assert "notices" not in trace.source
    untimed = put_wild(tmp_path / "u.parquet", wild(1, 2))
    assert "no turn has a timestamp: leave out order=time" in refusal(lambda: load("wildchat", untimed, **options))


def test_times_keep_their_instant_whatever_the_zone(tmp_path: Path, load: Callable[..., Trace]) -> None:
    talks = [
        "2023-04-10T02:00:00+02:00",
        "2023-04-10T00:00:01",
        "2023-04-09T19:00:02.500-05:00",
        "soon",
        12,
        None,
        "9999-12-31",
    ]
    rows = [made.wildchat_row(i, made.say(("user", "q"), ("assistant", "a"))) for i in range(len(talks))]
    for row, stamp in zip(rows, talks, strict=True):
        row["conversation"][1]["timestamp"] = stamp
    (tmp_path / "w.jsonl").write_bytes(made.json_lines(rows))
    trace = load("wildchat", tmp_path / "w.jsonl", min_turns=0, order="time")
    assert trace.timestamp_s is not None
    assert trace.timestamp_s.tolist() == [0.0, 1.0, 2.5]
    assert trace.source["turns_without_time"] == 4
    text = pa.string()
    for kind in (pa.timestamp("ns", tz="Asia/Tokyo"), pa.timestamp("s"), pa.timestamp("ms", tz="+05:00")):
        turn = pa.struct([("content", text), ("role", text), ("timestamp", kind)])
        unit = {"s": 1, "ms": 1000, "ns": 10**9}[kind.unit]
        talk = [
            {"content": "q", "role": "user"},
            {"content": "a", "role": "assistant", "timestamp": (EPOCH + 5) * unit},
        ]
        early = [talk[0], {"content": "a", "role": "assistant", "timestamp": EPOCH * unit}]
        table = pa.table({"conversation": pa.array([talk, early], pa.list_(turn))})
        pa.parquet.write_table(table, tmp_path / "z.parquet")
        zoned = load("wildchat", tmp_path / "z.parquet", min_turns=0, order="time")
        assert zoned.timestamp_s is not None
        assert zoned.timestamp_s.tolist() == [0.0, 5.0], kind
        assert "the first is 2023-04-10T00:00:00+00:00" in zoned.source["timestamps"], kind


def test_addresses_and_headers_are_never_read(tmp_path: Path, load: Callable[..., Trace]) -> None:
    talks = [wild(i, 6, [float(i)] * 6) for i in range(20)]
    path = put_wild(tmp_path / "w.parquet", *talks)
    expected = load("wildchat", path).digest
    content = bytearray(path.read_bytes())
    group = ParquetFile(path).metadata.row_group(0)
    spoilt = []
    for i in range(group.num_columns):
        chunk = group.column(i)
        leaf = chunk.path_in_schema.split(".")
        read = leaf[0] == "conversation_hash" or (
            leaf[0] == "conversation" and len(leaf) == 4 and leaf[3] in ("role", "content", "timestamp")
        )
        if not read:
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
            spoilt.append(chunk.path_in_schema)
    assert "hashed_ip" in spoilt
    assert "conversation.list.element.header.user-agent" in spoilt
    path.write_bytes(content)
    with pytest.raises((OSError, pa.ArrowException)):
        ParquetFile(path).read()
    # Each of those columns is garbage now, and nothing notices: nothing reads them.
    assert load("wildchat", path).digest == expected
