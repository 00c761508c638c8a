"""Conversations of one's own: an array, JSON lines or parquet; from and value, or role and content."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.catalog import dataset_texts
from workloads.core.errors import WorkloadError
from workloads.core.trace import Trace
from workloads.traces.formats import guess_format

Load = Callable[..., Trace]
TALKS = (
    (("user", "abc"), ("assistant", "defgh")),
    (("system", "kind"), ("user", "i"), ("assistant", "jk"), ("user", "lmno"), ("assistant", "p")),
)
SHAREGPT_ROLE = {"user": "human", "assistant": "gpt", "system": "system"}


def records(turns: str, who: str, what: str) -> list[dict[str, Any]]:
    named = SHAREGPT_ROLE if who == "from" else dict.fromkeys(SHAREGPT_ROLE)
    return [
        {"id": f"t{i}", turns: [{who: named[role] or role, what: text} for role, text in talk]}
        for i, talk in enumerate(TALKS)
    ]


def array(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(rows))


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("\ufeff\n" + "\r\n\r\n".join(map(json.dumps, rows)))


def parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize("write", [array, lines, parquet])
@pytest.mark.parametrize("turns", ["conversations", "messages", "conversation"])
@pytest.mark.parametrize(("who", "what"), [("from", "value"), ("role", "content")])
def test_every_form_has_the_same_rows(
    tmp_path: Path, load: Load, write: Callable[[Path, list[dict[str, Any]]], None], turns: str, who: str, what: str
) -> None:
    path = tmp_path / "chat"
    write(path, records(turns, who, what))
    assert guess_format(path) == "sharegpt"
    for name in ("file", "sharegpt"):
        trace = load(name, path)
        assert trace.prompt_tokens.tolist() == [3, 1, 4]
        assert trace.output_tokens.tolist() == [5, 2, 1]
        assert trace.session is not None
        assert trace.turn is not None
        assert len(set(trace.session.tolist())) == 2
        assert trace.turn.tolist() == [0, 0, 1]
    told = dataset_texts(f"sharegpt:path={path},tokenizer={tmp_path / 'tokenizer.json'}", "none/none")
    assert [prompt for _, prompt in told] == ["abc", "i", "lmno"]


def test_parts_of_text_are_one_text_and_other_parts_are_none(tmp_path: Path, load: Load) -> None:
    text = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    image = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "c"}]
    rows = [
        {"messages": [{"role": "user", "content": said}, {"role": "assistant", "content": "d"}]}
        for said in (text, image)
    ]
    lines(tmp_path / "chat", rows)
    trace = load("file", tmp_path / "chat")
    assert trace.prompt_tokens.tolist() == [3]
    assert trace.source["skipped"] == {"prompt without text": 1}


def test_a_long_first_line_is_read_whole_before_the_form_is_guessed(tmp_path: Path, load: Load) -> None:
    long = {"messages": [{"role": "user", "content": "a" * 100_000}, {"role": "assistant", "content": "b"}]}
    lines(tmp_path / "chat", [long])
    assert load("file", tmp_path / "chat").prompt_tokens.tolist() == [100_000]


def test_lines_that_are_cut_off_or_damaged_are_refused_with_their_row(tmp_path: Path, load: Load) -> None:
    path = tmp_path / "chat"
    lines(path, records("messages", "role", "content"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(WorkloadError, match="the file is cut off: its last whole record is number 2"):
        load("file", path)
    assert len(load("file", path, allow_truncated=True)) == 1
    path.write_bytes(whole.replace(b"]}\r\n", b"]]\r\n", 1))
    with pytest.raises(WorkloadError, match="row 2: not JSON"):
        load("sharegpt", path)
    parquet(path, records("messages", "role", "content"))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(WorkloadError, match="no parquet, or cut off"):
        load("file", path)
