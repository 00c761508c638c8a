"""Files of the data sets: what is missing or damaged is said in a line, and the cache answers the second time."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.parquet import ParquetFile

from tests.support import dataset_files as made
from tests.support.refusals import refusal
from workloads.core import cache
from workloads.core.trace import Trace
from workloads.datasets import conversations


def test_a_column_that_is_missing_or_renamed_says_what_is_there(tmp_path: Path, load: Callable[..., Trace]) -> None:
    talk = made.say(("user", "q"), ("assistant", "a"))
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
