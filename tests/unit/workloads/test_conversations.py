import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.parquet import ParquetFile
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.support import dataset_files as made
from tests.support.refusals import refusal
from workloads.core import cache
from workloads.core.trace import Trace
from workloads.datasets import conversations

US = 1_000_000
EPOCH = 1_681_084_800  # 2023-04-10, when WildChat begins


def say(*turns: tuple[Any, Any]) -> made.Turns:
    return [{"role": role, "content": content} for role, content in turns]


def size(text: str) -> int:
    return len(text.encode())


def lengths(turns: made.Turns, role: str) -> list[int]:
    return [size(turn["content"]) for turn in turns if turn["role"] == role]


def put(path: Path, *talks: made.Turns | None) -> Path:
    return made.write_parquet(path, made.lmsys_schema(), [made.lmsys_row(i, talk) for i, talk in enumerate(talks)])


def test_every_row_of_lmsys_shards_is_counted_in_order(tmp_path: Path, load: Callable[..., Trace]) -> None:
    folder = tmp_path / "set"
    rows = list(made.lmsys_rows(2500, seed=1))
    made.write_shards(folder, made.lmsys_schema(), rows, 3)
    trace = load("lmsys", folder)
    talks = [row["conversation"] for row in rows]
    assert trace.prompt_tokens.tolist() == [n for talk in talks for n in lengths(talk, "user")]
    assert trace.output_tokens.tolist() == [n for talk in talks for n in lengths(talk, "assistant")]
    assert trace.session is not None
    assert trace.turn is not None
    assert trace.session.tolist() == [i for i, talk in enumerate(talks) for _ in range(len(talk) // 2)]
    assert trace.turn.tolist() == [t for talk in talks for t in range(len(talk) // 2)]
    source = trace.source
    assert source["kind"] == "real"
    assert source["data_set"] == "lmsys/lmsys-chat-1m"
    assert source["licence"] == "LMSYS-Chat-1M Dataset License Agreement"
    assert [name[:20] for name in source["files"]] == [f"train-0000{i}-of-00003"[:20] for i in range(3)]
    assert source["conversations_read"] == source["conversations_taken"] == 2500
    assert source["skipped"] == {}
    assert "notices" not in source
    assert json.loads(json.dumps(source)) == source
    again = load("lmsys", folder / "data" / "train-*.parquet")
    assert again.digest == trace.digest
    assert again.source == {**source, "workload": again.source["workload"]}


def test_the_same_rows_as_json_lines_and_as_an_array(tmp_path: Path, load: Callable[..., Trace]) -> None:
    rows = list(made.lmsys_rows(40, seed=2))
    expected = load("lmsys", made.write_parquet(tmp_path / "a.parquet", made.lmsys_schema(), rows)).digest
    lines = made.json_lines(rows)
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "crlf.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    for name in ("a.jsonl", "crlf.jsonl", "a.json"):
        assert load("lmsys", tmp_path / name).digest == expected, name


def test_what_cannot_be_a_request_is_counted_by_reason(tmp_path: Path, load: Callable[..., Trace]) -> None:
    trace = load(
        "lmsys",
        put(
            tmp_path / "x.parquet",
            say(("user", "ab"), ("assistant", "c")),
            None,
            [],
            say(("assistant", "first"), ("user", "q"), ("assistant", "a")),
            say(("system", "be brief"), ("user", "qq"), ("assistant", "aa")),
            say(("user", "q"), ("tool", "x"), ("assistant", "a")),
            say(
                ("user", ""),
                ("assistant", "a"),
                ("user", " \n"),
                ("assistant", "b"),
                ("user", None),
                ("assistant", "c"),
            ),
            say(("user", "q"), ("assistant", None), ("user", "last")),
            say((None, "q"), ("User", "odd case"), ("ASSISTANT", "yes")),
        ),
    )
    assert trace.prompt_tokens.tolist() == [2, 1, 2, 8]
    assert trace.output_tokens.tolist() == [1, 1, 2, 3]
    assert trace.session is not None
    assert trace.session.tolist() == [0, 3, 4, 8]
    assert trace.source["skipped"] == {
        "answer without a prompt": 2,
        "answer without text": 1,
        "empty conversation": 2,
        "empty prompt": 2,
        "prompt without an answer": 2,
        "prompt without text": 1,
        "turn of an unknown role": 2,
    }
    assert trace.source["conversations_read"] == 9
    assert trace.source["conversations_taken"] == 4


def test_lone_surrogates_and_stray_bytes_are_a_counted_skip(tmp_path: Path, load: Callable[..., Trace]) -> None:
    rows = [made.lmsys_row(0, say(("user", "a\ud83d"), ("assistant", "b"), ("user", "c"), ("assistant", "\udfff")))]
    rows.append(made.lmsys_row(1, say(("user", "é"), ("assistant", "fine"))))
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = {"answer is not valid Unicode": 1, "prompt is not valid Unicode": 1}
    trace = load("lmsys", tmp_path / "s.jsonl")
    assert trace.source["skipped"] == expected
    assert trace.prompt_tokens.tolist() == [2]
    # In parquet: three bytes that say a surrogate, written as bytes under the name of text.
    turn = pa.struct([("content", pa.binary()), ("role", pa.binary())])
    raw = [
        [
            {"content": t["content"].encode("utf-8", "surrogatepass"), "role": t["role"].encode()}
            for t in row["conversation"]
        ]
        for row in rows
    ]
    column = pa.array(raw, pa.list_(turn))
    text = pa.struct([("content", pa.string()), ("role", pa.string())])
    fields = [column.values.field(i).view(pa.string()) for i in range(2)]
    column = pa.ListArray.from_arrays(column.offsets, pa.StructArray.from_arrays(fields, fields=list(text)))
    pa.parquet.write_table(pa.table({"conversation": column}), tmp_path / "s.parquet")
    trace = load("lmsys", tmp_path / "s.parquet")
    assert trace.source["skipped"] == expected
    assert trace.prompt_tokens.tolist() == [2]


def test_a_turn_of_ten_megabytes(tmp_path: Path, load: Callable[..., Trace]) -> None:
    # It counts words: a token for every byte would make this a test of the tokenizer's memory.
    by_words = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))  # noqa: S106
    by_words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (tmp_path / "words").mkdir()
    by_words.save(str(tmp_path / "words" / "tokenizer.json"))
    path = put(tmp_path / "x.parquet", say(("user", ("w" * 999 + " ") * 10_000), ("assistant", "ok")))
    trace = load("lmsys", path, tokenizer=tmp_path / "words")
    assert trace.prompt_tokens.tolist() == [10_000]


def test_ids_that_occur_again_are_told_and_nothing_is_left_out(tmp_path: Path, load: Callable[..., Trace]) -> None:
    rows = [made.lmsys_row(number, say(("user", "q"), ("assistant", "a"))) for number in (1, 2, 1, 1)]
    trace = load("lmsys", made.write_parquet(tmp_path / "x.parquet", made.lmsys_schema(), rows))
    assert len(trace) == 4
    assert trace.source["ids_that_occur_again"] == 2


def test_numinamath_prompts_end_with_the_published_line(tmp_path: Path, load: Callable[..., Trace]) -> None:
    folder = tmp_path / "set"
    draw = random.Random(3)
    pairs = [(made.words(draw, 1, 9), "x" * n) for n in (799, 800, 3999, 5000, 12)]
    rows = [made.numinamath_row(*pair) for pair in pairs]
    made.write_shards(folder, made.numinamath_schema(), rows, 2)
    test = folder / "data" / "test-00000-of-00001.parquet"
    made.write_parquet(test, made.numinamath_schema(), [made.numinamath_row("not", "this")])
    trace = load("numinamath", folder)
    line = len("\n\nPlease think step by step.")
    assert trace.prompt_tokens.tolist() == [size(problem) + line for problem, _ in pairs[1:4]]
    assert trace.output_tokens.tolist() == [800, 3999, 4000]
    assert trace.source["skipped"] == {"output below 800 tokens": 2}
    assert trace.source["part"] == {"suffix": "\n\nPlease think step by step."}
    plain = load("numinamath", folder, step_by_step=False, min_output_tokens=1, output_cap=0)
    assert plain.prompt_tokens.tolist() == [size(problem) for problem, _ in pairs]
    assert plain.output_tokens.tolist() == [799, 800, 3999, 5000, 12]
    assert load("numinamath", folder, forced=4000).output_tokens.tolist() == [4000] * 3
    assert len(load("numinamath", folder, conversations=2, min_output_tokens=1)) == 2


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
    assert trace.prompt_tokens.tolist() == [n for i, turns in taken.items() for n in lengths(talks[i], "user")[:turns]]
    assert trace.output_tokens.tolist() == [
        min(n, 256) for i, turns in taken.items() for n in lengths(talks[i], "assistant")[:turns]
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
    assert whole.prompt_tokens.tolist() == [lengths(talk, "user")[0] for talk in talks]
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
    rows = [made.wildchat_row(i, say(("user", "q"), ("assistant", "a"))) for i in range(len(talks))]
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


def test_a_column_that_is_missing_or_renamed_says_what_is_there(tmp_path: Path, load: Callable[..., Trace]) -> None:
    talk = say(("user", "q"), ("assistant", "a"))
    table = pa.table({"id": ["x"], "conversations": [talk]})
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    line = refusal(lambda: load("lmsys", tmp_path / "x.parquet"))
    assert line.endswith("x.parquet: no column conversation: found are id, conversations; is it the right data set?")
    pa.parquet.write_table(pa.table({"conversation": [[{"from": "user", "value": "q"}]]}), tmp_path / "y.parquet")
    assert "column conversation has no field role: found are from, value" in refusal(
        lambda: load("lmsys", tmp_path / "y.parquet")
    )
    pa.parquet.write_table(pa.table({"conversation": ["user: q"]}), tmp_path / "z.parquet")
    assert "column conversation has no field role" in refusal(lambda: load("lmsys", tmp_path / "z.parquet"))
    (tmp_path / "x.jsonl").write_text(json.dumps({"id": "x", "conversations": talk}) + "\n")
    assert "x.jsonl, row 1: no list conversation: found are id, conversations" in refusal(
        lambda: load("lmsys", tmp_path / "x.jsonl")
    )
    (tmp_path / "x.jsonl").write_text(json.dumps({"conversation": talk}) + '\n[1]\n{"conversation": null}\n')
    trace = load("lmsys", tmp_path / "x.jsonl")
    assert trace.source["skipped"] == {"record without a list conversation": 2}


def test_parquet_that_is_cut_off_or_corrupt(tmp_path: Path, load: Callable[..., Trace]) -> None:
    rows = list(made.lmsys_rows(300, seed=4))
    path = made.write_parquet(tmp_path / "x.parquet", made.lmsys_schema(), rows)
    content = path.read_bytes()
    for cut in (0, 3, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        line = refusal(lambda: load("lmsys", path, allow_truncated=True))
        assert f"{path}: no parquet, or cut off (" in line
        assert line.endswith("fetch it again")
    group = ParquetFile(pa.BufferReader(content)).metadata.row_group(0)
    leaves = [group.column(i) for i in range(group.num_columns)]
    (chunk,) = (leaf for leaf in leaves if leaf.path_in_schema.endswith("element.content"))
    middle = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size // 2
    path.write_bytes(content[: middle - 200] + b"\xa5" * 400 + content[middle + 200 :])
    assert re.search(r"x\.parquet: corrupt in or after row 1 \(", refusal(lambda: load("lmsys", path)))


def test_json_lines_that_are_cut_off_or_corrupt(tmp_path: Path, load: Callable[..., Trace]) -> None:
    path = tmp_path / "x.jsonl"
    content = made.json_lines(made.lmsys_rows(5, seed=5))
    ends = [i + 1 for i, byte in enumerate(content) if byte == 10]
    path.write_bytes(content[: ends[3] - 40])
    assert "the file is cut off: its last whole record is number 3, which ends at byte" in refusal(
        lambda: load("lmsys", path)
    )
    part = load("lmsys", path, allow_truncated=True)
    assert part.source["truncated"] == {"last_whole_record": 3, "byte": ends[2]}
    assert part.source["conversations_read"] == 3
    assert "the file is cut off" in refusal(lambda: load("lmsys", path))
    path.write_bytes(content[: ends[1]] + b"{oops}\n" + content[ends[1] :])
    assert f"{path}, row 3: not JSON" in refusal(lambda: load("lmsys", path, allow_truncated=True))
    path.write_bytes(b"")
    assert "no pair of turns to replay" in refusal(lambda: load("lmsys", path))


def test_a_folder_is_one_kind_of_file_and_tells_missing_shards(tmp_path: Path, load: Callable[..., Trace]) -> None:
    folder = tmp_path / "set"
    rows = list(made.lmsys_rows(30, seed=6))
    made.write_shards(folder, made.lmsys_schema(), rows, 3)
    (folder / "dataset_infos.json").write_text("{}")
    whole = load("lmsys", folder)
    (folder / "data" / "train-00001-of-00003-abcdef0123456789.parquet").unlink()
    part = load("lmsys", folder)
    assert part.source["conversations_read"] == 20
    (notice,) = part.source["notices"]
    assert notice.endswith("2 of 3 shards train-…-of-00003 are there: the rest of the data set is left out")
    assert part.source["file_sha256"] != whole.source["file_sha256"]
    (folder / "copy.jsonl").write_bytes(made.json_lines(rows))
    assert "holds .jsonl and .parquet files, which may be the same data" in refusal(lambda: load("lmsys", folder))
    (folder / "none").mkdir()
    assert "no .parquet, .jsonl, .json, .zip file in it" in refusal(lambda: load("lmsys", folder / "none"))
    assert "no file fits the pattern" in refusal(lambda: load("lmsys", folder / "none" / "*.parquet"))


def test_the_cache_answers_the_second_time_and_each_part_is_its_own(
    tmp_path: Path, load: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made.write_parquet(tmp_path / "x.parquet", made.lmsys_schema(), made.lmsys_rows(50, seed=7))
    first = load("lmsys", path)

    def never(*_: Any, **__: Any) -> Trace:
        raise AssertionError("counted again")

    with monkeypatch.context() as patched:
        patched.setattr(conversations, "count_rows", never)
        second = load("lmsys", path)
        assert (second.digest, second.source) == (first.digest, first.source)
        for options in ({"conversations": 10}, {"min_turns": 2}, {"max_turns": 1}):
            with pytest.raises(AssertionError, match="counted again"):
                load("lmsys", path, **options)
    for kept in (cache.cache_dir() / "lengths").iterdir():
        kept.write_bytes(kept.read_bytes()[:99])
    (notice,) = load("lmsys", path).source["notices"]
    assert "was corrupt: counted again" in notice


def test_a_large_files_digest_is_remembered_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "LARGE_BYTES", 10)
    path = tmp_path / "x"
    path.write_bytes(b"a" * 20)
    first = cache.large_file_digest(path)
    assert not (cache.cache_dir() / "digests").exists()  # changed a moment ago
    monkeypatch.setattr(cache, "SETTLED_NS", -(10**18))
    assert cache.large_file_digest(path) == first == cache.file_digest(path)
    (kept,) = (cache.cache_dir() / "digests").iterdir()
    kept.write_text(kept.read_text().replace(first, "0" * 64))
    assert cache.large_file_digest(path) == "0" * 64
    path.write_bytes(b"b" * 20)
    assert cache.large_file_digest(path) == cache.file_digest(path)
    kept.write_text("{")
    assert cache.large_file_digest(path) == cache.file_digest(path)
