"""Data sets by id through the library `datasets`: what it wrote gives our readers' rows, streamed or not."""

import json
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import datasets
import pytest

from tests.support import dataset_files as made
from tests.support.library_sets import lmsys, write
from tests.support.refusals import refusal
from workloads.catalog import dataset_texts
from workloads.core import cache
from workloads.core.trace import Trace
from workloads.datasets import hub_rows

Rows = list[dict[str, Any]]
Load = Callable[..., Trace]
# Letters that break readers: other planes, line ends that JSON lines have inside, signs that join, and none at all.
ODD = (
    "",
    " \n",
    "é",
    "😀",
    "a\u2028b\u0085c",
    "\u200d\u0301",
    "{}",
    '"\\',
    "2023-04-09T00:02:53",
    "null",
    "\x00",
)


def odd_turns(draw: random.Random, stamped: bool) -> made.Turns:
    turns: made.Turns = []
    for _ in range(draw.randint(0, 9)):
        role = draw.choice(("user", "user", "assistant", "assistant", "assistant", "system", "tool", None))
        text = draw.choice((None, *ODD, made.words(draw, 1, 30)))
        turns.append({"role": role, "content": text})
        if stamped and draw.random() < 0.7:
            at = datetime(2023, 4, 9, tzinfo=UTC) + timedelta(microseconds=draw.randint(-(10**12), 10**14))
            turns[-1]["timestamp"] = at
    return turns


def odd_talks(seed: int, stamped: bool) -> list[made.Turns | None]:
    draw = random.Random(seed)
    talks = [None if draw.random() < 0.1 else odd_turns(draw, stamped) for _ in range(draw.randint(1, 60))]
    # One pair at least is whole.
    return [*talks, made.say(("user", "q"), ("assistant", "a"))]


def layouts(seed: int) -> dict[str, tuple[Any, Rows]]:
    """Schema and rows of each chat data set with what the wild has: other roles, nulls, empty turns, odd letters."""
    wild = [made.wildchat_row(i, talk) for i, talk in enumerate(odd_talks(seed, True))]
    plain = [made.lmsys_row(i, talk) for i, talk in enumerate(odd_talks(seed + 1, False))]
    draw = random.Random(seed + 2)
    problems = [made.numinamath_row(draw.choice((*ODD, made.words(draw, 1, 9))), "4" * 900) for _ in range(30)]
    return {
        "wildchat": (made.wildchat_schema(), wild),
        "lmsys": (made.lmsys_schema(), plain),
        "numinamath": (made.numinamath_schema(), [*problems, made.numinamath_row("2+2?", "4" * 900)]),
    }


ALL: dict[str, dict[str, Any]] = {
    "wildchat": {"conversations": 0, "min_turns": 0, "max_turns": 0, "output_cap": 0},
    "lmsys": {},
    "numinamath": {},
}
FACTS = ("skipped", "conversations_read", "conversations_taken", "ids_that_occur_again", "turns_without_time")


def same(found: Trace, expected: Trace) -> None:
    assert found.digest == expected.digest
    for fact in FACTS:
        assert found.source.get(fact) == expected.source.get(fact), fact


@pytest.mark.parametrize("seed", range(8))
def test_what_the_library_wrote_gives_our_readers_rows(tmp_path: Path, load: Load, by_id: Load, seed: int) -> None:
    for name, (schema, rows) in layouts(seed * 10).items():
        folder = write(tmp_path / name, schema, rows, shards=1 + seed % 2)
        expected = load(name, folder, **ALL[name])
        for streaming in (True, False):
            found = by_id(name, folder, streaming=streaming, **ALL[name])
            same(found, expected)
            assert found.source["rows"] == len(rows)
            shutil.rmtree(cache.cache_dir() / "rows")
        if name == "wildchat":
            same(by_id(name, folder, order="time", **ALL[name]), load(name, folder, order="time", **ALL[name]))


@pytest.mark.parametrize("seed", range(4))
def test_json_lines_that_the_library_reads_give_our_readers_rows(
    tmp_path: Path, load: Load, by_id: Load, seed: int
) -> None:
    for name, (_, rows) in layouts(seed * 100).items():
        folder = tmp_path / name
        folder.mkdir()
        text = "".join(json.dumps(row, default=str) + "\n" for row in rows)
        (folder / "train.jsonl").write_text(text)
        expected = load(name, folder, **ALL[name])
        for streaming in (True, False):
            found = by_id(name, folder, streaming=streaming, **ALL[name])
            assert found.digest == expected.digest
            shutil.rmtree(cache.cache_dir() / "rows")


def texts(workload: str) -> list[Any]:
    return list(dataset_texts(workload, "none/none"))


def test_prompts_come_from_the_same_rows(tmp_path: Path, bytes_tokenizer: Path) -> None:
    for name, (schema, rows) in layouts(7).items():
        folder = write(tmp_path / name, schema, rows)
        end = f"{folder},tokenizer={bytes_tokenizer}" + (",min_turns=0" if name == "wildchat" else "")
        found = texts(f"{name}:hf={end}")
        assert found == texts(f"{name}:path={end}")
        assert found


def long_contexts(task: str, count: int) -> Rows:
    draw = random.Random(task)
    return [
        made.longbench_v1_row(i, task, made.words(draw, 1500, 4000), draw.choice(("", "what?")), ["b", "c"])
        for i in range(count)
    ]


def test_longbench_of_both_kinds(tmp_path: Path, load: Load, by_id: Load) -> None:
    draw = random.Random(3)
    second = [made.longbench_v2_row(i, made.words(draw, 2000, 5000), "what?") for i in range(7)]
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2" / "data.json").write_text(json.dumps(second))
    for options in ({}, {"chunk_max": 0}):
        assert (
            by_id("longbench", tmp_path / "v2", **options).digest
            == load("longbench", tmp_path / "v2", **options).digest
        )
    folder = tmp_path / "v1"
    card = "---\nconfigs:\n"
    for task in ("hotpotqa", "qasper_e"):
        card += f"- config_name: {task}\n  data_files:\n  - split: test\n    path: {task}/*\n"
        held = datasets.Dataset.from_list(long_contexts(task, 6))
        (folder / task).mkdir(parents=True)
        held.to_parquet(folder / task / "test-00000-of-00001.parquet")
    (folder / "README.md").write_text(f"{card}---\n")
    for task in ("hotpotqa", "qasper_e"):
        for streaming in (True, False):
            found = by_id("longbench", folder, config=task, streaming=streaming)
            assert found.digest == load("longbench", folder / task).digest
            assert (found.source["config"], found.source["split"]) == (task, "test")
            assert found.source["data_set"] == "THUDM/LongBench"
        assert by_id("longbench", folder, config=task, tasks=task).digest == found.digest
    line = refusal(lambda: by_id("longbench", folder))
    assert line.endswith("(it has several configs): give config=… of hotpotqa, qasper_e")
    line = refusal(lambda: by_id("longbench", folder, config="hotpot"))
    assert line.endswith("(it has no config hotpot (did you mean hotpotqa?)): its configs are hotpotqa, qasper_e")


def test_sharegpt_whose_turns_differ_in_their_keys(tmp_path: Path, load: Load, by_id: Load) -> None:
    talk = [{"from": "human", "value": "hé\u2028llo"}, {"from": "gpt", "value": "hi", "markdown": None}]
    odd = [{"from": "human", "value": 3}, {"from": "gpt", "value": "hi", "text": {"a": 1}}, {"from": "system"}]
    records = [{"id": "a", "conversations": talk}, {"id": "a", "conversations": odd}, {"id": "b", "conversations": []}]
    folder = tmp_path / "set"
    folder.mkdir()
    path = folder / "ShareGPT_V4.3_unfiltered_cleaned_split.json"
    path.write_text(json.dumps(records * 3))
    (folder / "other.json").write_text("[1]")
    for streaming in (True, False):
        found, expected = by_id("sharegpt", folder, streaming=streaming), load("sharegpt", path)
        same(found, expected)
        assert found.ids == expected.ids
        shutil.rmtree(cache.cache_dir() / "rows")


def test_the_first_rows_are_taken_and_no_more_is_read(
    tmp_path: Path, load: Load, by_id: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lmsys(tmp_path / "set", 700)
    asked: list[int] = []
    honest = hub_rows._tables

    def watched(*given: Any) -> Any:
        for table in honest(*given):
            asked.append(table.num_rows)
            yield table

    monkeypatch.setattr(hub_rows, "_tables", watched)
    for rows in (1, 255, 256, 257, 699):
        found = by_id("lmsys", folder, rows=rows)
        assert found.digest == load("lmsys", folder, conversations=rows).digest
        assert found.source["rows"] == found.source["conversations_read"] == rows == sum(asked)
        asked.clear()
    assert by_id("lmsys", folder, rows=5000).source["rows"] == 700
    assert by_id("lmsys", folder).source["rows"] == 700


def test_splits_by_name_and_by_default(tmp_path: Path, load: Load, by_id: Load) -> None:
    folder = lmsys(tmp_path / "set", 20)
    lmsys(folder, 30, seed=2, split="test")
    assert by_id("lmsys", folder).source["split"] == "train"
    found = by_id("lmsys", folder, split="test")
    assert found.digest == load("lmsys", folder / "data" / "test-*.parquet").digest
    assert (found.source["split"], found.source["rows"]) == ("test", 30)
    line = refusal(lambda: by_id("lmsys", folder, split="tests"))
    assert line.endswith("(it has no split tests (did you mean test?)): its splits are train, test")
    only = lmsys(tmp_path / "only", 10, split="validation")
    assert by_id("lmsys", only).source["split"] == "validation"
    lmsys(only, 10, split="test")
    line = refusal(lambda: by_id("lmsys", only))
    assert "(it has several splits, none of them train): give split=… of validation, test" in line


def test_the_source_says_where_the_rows_are_from(tmp_path: Path, by_id: Load) -> None:
    folder = lmsys(tmp_path / "set", 20)
    source = by_id("lmsys", folder, rows=7).source
    assert (source["folder"], source["config"], source["split"], source["rows"]) == ("set", "default", "train", 7)
    assert source["library"] == f"datasets {datasets.__version__}"
    assert source["file"] == "train-00000-of-00001.parquet"
    assert source["workload"].startswith(f"lmsys:hf={folder},rows=7,")
    assert str(tmp_path) not in json.dumps(
        {key: held for key, held in source.items() if key not in ("workload", "tokenizer")}
    )
    first = source["revision"]
    lmsys(folder, 21)
    assert by_id("lmsys", folder, rows=7).source["revision"] != first


def test_addresses_are_not_kept(tmp_path: Path, by_id: Load) -> None:
    talk = made.say(("user", "q"), ("assistant", "a"))
    for name, write_rows in (("parquet", write), ("json", None)):
        folder = tmp_path / name
        rows = [made.wildchat_row(i, talk) for i in range(3)]
        if write_rows:
            write_rows(folder, made.wildchat_schema(), rows)
        else:
            folder.mkdir()
            # The keys of turns differ, so that the library keeps them as JSON.
            (folder / "train.jsonl").write_bytes(made.json_lines(rows))
        by_id("wildchat", folder, **ALL["wildchat"])
        (kept,) = (cache.cache_dir() / "rows").rglob("train-*")
        assert kept.suffix == f".{name}"
        content = kept.read_bytes()
        if name == "parquet":
            from pyarrow import parquet

            content = json.dumps(parquet.read_table(kept).to_pylist(), default=str).encode()
        assert b"assistant" in content
        assert not any(word in content for word in (b"f00d", b"Mozilla", b"hashed_ip", b"toxic", b"header"))
        shutil.rmtree(cache.cache_dir() / "rows")
