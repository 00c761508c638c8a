"""Lengths of chats and of LongBench kept in the cache: what counting cannot have made is counted again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import dataset_files as made
from tests.support.models import CHAT, write_bytes_tokenizer, write_model
from workloads.catalog import load_workload
from workloads.core import cache
from workloads.core.trace import Trace
from workloads.datasets import conversations, longbench
from workloads.datasets.shards import Shards

Change = Callable[[dict[str, Any], dict[str, Any]], None]


def zeroed(name: str) -> Change:
    """The first value of a column set to 0."""

    def change(columns: dict[str, Any], _: dict[str, Any]) -> None:
        columns[name] = columns[name].copy()
        columns[name][0] = 0

    return change


def told(key: str, value: Any) -> Change:
    return lambda _, meta: meta.update({key: value})


def emptied(columns: dict[str, Any], _: dict[str, Any]) -> None:
    columns.update({name: values[:0] for name, values in columns.items()})


def chats(folder: Path) -> Path:
    return made.write_parquet(folder / "l.parquet", made.lmsys_schema(), made.lmsys_rows(20, seed=7))


def contexts(folder: Path) -> Path:
    rows = [made.longbench_v2_row(i, f"context {i} " * 400, "what?") for i in range(4)]
    (folder / "data.json").write_text(json.dumps(rows))
    return folder / "data.json"


DAMAGES: dict[str, tuple[str, Callable[[Path], Path], tuple[str, ...], Change]] = {
    "a prompt of nothing": ("lmsys", chats, conversations.KEPT, zeroed("prompt_tokens")),
    "an answer of nothing": ("lmsys", chats, conversations.KEPT, zeroed("output_tokens")),
    "no chat": ("lmsys", chats, conversations.KEPT, emptied),
    "chats of a source unknown": ("lmsys", chats, conversations.KEPT, told("source", {"records": "many"})),
    "a context of nothing": ("longbench", contexts, longbench.KEPT, zeroed("context_tokens")),
    "a question of nothing": ("longbench", contexts, longbench.KEPT, zeroed("question_tokens")),
    "an answer of no token": ("longbench", contexts, longbench.KEPT, zeroed("output_tokens")),
    "no context": ("longbench", contexts, longbench.KEPT, emptied),
    "no LongBench": ("longbench", contexts, longbench.KEPT, told("data_set", "THUDM/ShortBench")),
    "contexts of a source unknown": ("longbench", contexts, longbench.KEPT, told("source", [])),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_counting_cannot_have_made_is_counted_again(
    damage: str, tmp_path: Path, load: Callable[..., Trace]
) -> None:
    name, write, columns, change = DAMAGES[damage]
    path = write(tmp_path)
    first = load(name, path)
    assert "notices" not in first.source
    (kept,) = (cache.cache_dir() / "lengths").iterdir()
    # As somebody would who knows how: with a digest that fits.
    found = cache.load(kept, columns)
    assert isinstance(found, tuple)
    change(*found)
    assert cache.save(kept, *found) is None
    again = load(name, path)
    assert (again.digest, again.source["skipped"]) == (first.digest, first.source["skipped"])
    assert again.source["notices"] == [f"{kept} was corrupt: counted again and written anew"]
    assert "notices" not in load(name, path).source


@pytest.mark.parametrize(
    ("data_set", "record"),
    [
        ("THUDM/LongBench", {"input": "why?", "context": "word " * 500, "answers": ["because"]}),
        (
            "THUDM/LongBench-v2",
            {"question": "why?", "answer": "A", "context": "word " * 500, **{f"choice_{x}": "no" for x in "ABCD"}},
        ),
    ],
)
def test_records_of_just_the_keys_that_are_needed(
    data_set: str, record: dict[str, Any], tmp_path: Path, load: Callable[..., Trace]
) -> None:
    more = {"_id": "7", "language": "en", **record}
    lacking = {name: value for name, value in record.items() if name != "context"}
    (tmp_path / "data.json").write_text(json.dumps([record, more, lacking]))
    trace = load("longbench", tmp_path / "data.json", chunk_max=0, forced=0, output_cap=0)
    assert trace.source["data_set"] == data_set
    assert trace.prompt_tokens[0] == trace.prompt_tokens[1] > 2500
    assert len(trace) == 2
    assert trace.source["skipped"] == {"record without its keys": 1}


def test_a_token_that_a_tokenizer_puts_first_is_part_of_no_text_and_of_no_length(tmp_path: Path) -> None:
    """A tokenizer that counts bytes, and one that does and puts <s> before a text of its own accord."""
    path = contexts(tmp_path)
    plain = write_bytes_tokenizer(tmp_path / "plain.json")
    first = write_model(tmp_path / "first", CHAT)
    pieces = longbench.Pieces(low=600, high=900, seed=3)
    shards = Shards((path,))

    def cut(tokenizer: Path) -> list[tuple[tuple[int, int], str]]:
        given: dict[str, Any] = {"tokenizer": str(tokenizer), "model": "", "allow_truncated": False, "before": ""}
        return list(longbench.texts(shards, "", pieces, **given))

    def counted(tokenizer: Path) -> list[int]:
        options = {"path": str(path), "tokenizer": str(tokenizer), "chunk_max": "0"}
        return list(load_workload("longbench", options, requests=None, seed=0, model="").prompt_tokens)

    assert len(cut(plain)) > 8
    assert cut(plain) == cut(first)
    assert counted(plain) == counted(first)
