"""Data sets by id through the library `datasets`: what bench's cache keeps, and what is refused in a line."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest

from tests.support import dataset_files as made
from tests.support.library_sets import lmsys
from tests.support.refusals import refusal
from workloads.catalog import load_workload
from workloads.core import cache
from workloads.core.trace import Trace
from workloads.datasets import conversations, hub_rows, kept_rows
from workloads.datasets.counting import Reading

Load = Callable[..., Trace]


def test_tables_of_different_forms_are_parts_in_their_order() -> None:
    layout = conversations.layout(conversations.LMSYS)
    turn = pa.struct([("content", pa.string()), ("role", pa.string()), ("hashed_ip", pa.string())])
    rows = [{"conversation": made.say(("user", str(i)), ("assistant", "a"))} for i in range(8)]
    typed = pa.table({"conversation": pa.array([row["conversation"] for row in rows], pa.list_(turn))})
    large = typed.cast(pa.schema([("conversation", pa.large_list(turn))]))
    varied = pa.array([json.dumps(row["conversation"]) for row in rows], pa.json_())
    tables = [
        typed.slice(0, 1),
        typed.slice(1, 1),
        pa.table({"conversation": varied}).slice(2, 2),
        large.slice(4, 1),
        pa.table({"conversation": pa.array([[], None], pa.list_(pa.null()))}),
        typed.slice(7, 1),
    ]
    key = kept_rows.RowsKey("a/b", "1" * 40, "../odd name", "train", 0, layout)
    shards = kept_rows.keep(key, key, tables, {"hub": "a/b"}, "a/b")
    names = [
        f"train-0000{i}-of-00005.{kind}" for i, kind in enumerate(("parquet", "json", "parquet", "json", "parquet"))
    ]
    assert [path.name for path in shards.files] == names
    assert {path.parent.name for path in shards.files} == {"_odd_name"}
    assert shards.origin == {"hub": "a/b", "rows": 8}
    read = conversations.read(shards, conversations.LMSYS, Reading(), allow_truncated=False)
    assert [talk.texts[:1] for talk in read] == [["0"], ["1"], ["2"], ["3"], ["4"], [], [], ["7"]]
    assert not any(b"hashed_ip" in path.read_bytes() for path in shards.files)
    assert kept_rows.find(key) == shards


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("fetched again")


def test_the_cache_answers_the_second_time(tmp_path: Path, by_id: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lmsys(tmp_path / "set", 20)
    first = by_id("lmsys", folder)
    with monkeypatch.context() as patched:
        patched.setattr(hub_rows, "_library", never)
        # By default, by its names, and streamed or not: the same rows.
        answered: list[dict[str, Any]] = [{}, {"config": "default"}, {"split": "train"}, {"streaming": False}]
        for options in answered:
            again = by_id("lmsys", folder, **options)
            assert again.digest == first.digest
            assert "notices" not in again.source
        others: list[dict[str, Any]] = [{"rows": 3}, {"split": "test"}, {"config": "other"}]
        for options in others:
            with pytest.raises(AssertionError, match="fetched again"):
                by_id("lmsys", folder, **options)
    (kept,) = (cache.cache_dir() / "rows").rglob("train-*")
    for damage in (kept.read_bytes()[:-1], b""):
        kept.write_bytes(damage)
        (notice,) = by_id("lmsys", folder).source["notices"]
        assert "was damaged: its rows were fetched again" in notice
        assert "notices" not in by_id("lmsys", folder).source
    for path in (cache.cache_dir() / "rows").rglob("*.json"):
        path.write_text(random.Random(path.name).choice(("", "{}", "[1]", '{"rows": 3}', "null")))
    assert by_id("lmsys", folder).digest == first.digest
    assert not [*(cache.cache_dir() / "rows").glob("unfinished-*")]


def test_what_the_library_cannot_read_is_one_line(tmp_path: Path, by_id: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(folder: Path, **options: Any) -> str:
        line = refusal(lambda: by_id("lmsys", folder, **options))
        assert not [*(cache.cache_dir() / "rows").glob("*")], line
        return line

    assert "no such folder" in refused(tmp_path / "none")
    assert "is no data set's id (OWNER/NAME) and no folder" in refusal(lambda: by_id("lmsys", "a/b/c"))
    monkeypatch.setattr(hub_rows, "MOST_FILES", 3)
    for name in "abcd":
        (tmp_path / "many" / name).mkdir(parents=True)
        (tmp_path / "many" / name / "train.jsonl").write_text("{}")
    assert "it holds more than 3 files): give the folder of the data set itself" in refused(tmp_path / "many")
    (tmp_path / "empty").mkdir()
    assert "doesn't contain any data files" in refused(tmp_path / "empty")
    script = tmp_path / "script"
    script.mkdir()
    (script / "script.py").write_text("raise SystemExit('ran')")
    line = refused(script)
    assert "it is a script, which datasets runs no more" in line
    assert line.endswith("give lmsys:path=FOLDER of its files")
    datasets.Dataset.from_list(list(made.lmsys_rows(3, seed=1))).save_to_disk(tmp_path / "disk")
    assert "it was written by save_to_disk" in refused(tmp_path / "disk")
    for name, content in (("cut.parquet", b"PAR1"), ("cut.jsonl", b'{"conversation": [{'), ("none.jsonl", b"")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(content)
        for streaming in (True, False):
            assert "give lmsys:path=FILE of it, for bench's own reader" in refused(folder, streaming=streaming)
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "README.md").write_text("---\nconfigs: [\n---\n")
    assert "cannot load " in refused(tmp_path / "card")
    other = tmp_path / "other"
    datasets.Dataset.from_list([{"text": "a", "label": 1}]).to_parquet(other / "train.parquet")
    assert "no column conversation: found are text, label; is it the right data set?" in refused(other)
    times = tmp_path / "times"
    times.mkdir()
    talk = made.say(("user", "2023-04-09"), ("assistant", "2023-04-10"))
    (times / "train.jsonl").write_bytes(made.json_lines([made.lmsys_row(0, talk)]))
    assert "conversation.content was read as times, not as text" in refused(times)
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "train.json").write_text("[]")
    assert "split train has no rows" in refused(tmp_path / "nothing")


def test_a_stream_that_breaks_leaves_nothing(tmp_path: Path, by_id: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lmsys(tmp_path / "set", 600)
    honest = datasets.IterableDataset.iter

    def broken(self: Any, batch_size: int) -> Any:
        yield next(honest(self, batch_size))
        raise RuntimeError("later") from ConnectionError("Server Disconnected")

    with monkeypatch.context() as patched:
        patched.setattr(datasets.IterableDataset, "iter", broken)
        line = refusal(lambda: by_id("lmsys", folder))
        assert "(the network was lost on the way): run it again, or with streaming=false, which goes on" in line
        assert not [*(cache.cache_dir() / "rows").iterdir()]
        # What is there by then is enough for those who ask for no more.
        assert by_id("lmsys", folder, rows=256).source["rows"] == 256
    assert by_id("lmsys", folder).source["rows"] == 600


def test_without_the_package_a_line_says_what_to_install(
    tmp_path: Path, by_id: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lmsys(tmp_path / "set", 20)
    with monkeypatch.context() as patched:
        patched.setitem(__import__("sys").modules, "datasets", None)
        line = refusal(lambda: by_id("lmsys", folder))
        assert line == "hf= needs the package datasets: pip install 'schedbench[datasets]'; path=FILE needs none"
    first = by_id("lmsys", folder)
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    assert by_id("lmsys", folder).digest == first.digest


def test_a_cache_that_cannot_be_written(tmp_path: Path, by_id: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lmsys(tmp_path / "set", 20)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "file"))
    assert "cannot be written (Not a directory): set BENCH_CACHE=FOLDER" in refusal(lambda: by_id("lmsys", folder))


def test_options_beside_hf_need_it(tmp_path: Path, load: Load) -> None:
    def refused(name: str, **given: str) -> str:
        return refusal(lambda: load_workload(name, given, requests=None, seed=0, model="m/m"))

    for name in ("lmsys", "wildchat", "numinamath", "longbench", "sharegpt"):
        for key, value in (("config", "a"), ("split", "test"), ("rows", "3"), ("streaming", "false")):
            assert refused(name, **{key: value}) == f"{name}: {key} goes with hf=ID, and no hf is given"
    folder = lmsys(tmp_path / "set", 3)
    assert refusal(lambda: load("lmsys", folder, rows=3)) == "lmsys: rows goes with hf=ID, and no hf is given"
    assert "path and hf are both given" in refusal(lambda: load("lmsys", folder, hf="a/b"))
