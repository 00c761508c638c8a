import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.support import dataset_files as made
from tests.support.refusals import refusal
from workloads.catalog import canonical_workload, dataset_texts
from workloads.core.trace import Trace
from workloads.datasets import longbench
from workloads.prompts.dataset import DatasetPrompts

Load = Callable[..., Trace]
WHOLE = {"chunk_max": 0, "forced": 0, "output_cap": 0}


def records(count: int, seed: int, low: int = 1500, high: int = 4000) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [made.longbench_v2_row(i, made.words(draw, low, high), made.words(draw, 5, 20)) for i in range(count)]


def question(record: dict[str, Any]) -> str:
    choices = "".join(f"{letter}. choice {letter}\n" for letter in "ABCD")
    return f"\n\nQuestion: {record['question']}\n\n{choices}\nAnswer:"


def tasks() -> dict[str, list[dict[str, Any]]]:
    draw = random.Random(9)
    names = ("gov_report", "hotpotqa", "hotpotqa_e", "qasper")
    return {
        name: [
            made.longbench_v1_row(
                10 * n + i,
                name,
                made.words(draw, 20, 60),
                "" if name == "gov_report" else made.words(draw, 3, 9),
                [made.words(draw, 1, 5), "another"],
            )
            for i in range(n + 2)
        ]
        for n, name in enumerate(names)
    }


def test_v2_whole_is_context_question_and_choices(tmp_path: Path, load: Load) -> None:
    rows = records(5, seed=1)
    (tmp_path / "data.json").write_text(json.dumps(rows, indent=2, ensure_ascii=False), encoding="utf-8")
    trace = load("longbench", tmp_path / "data.json", **WHOLE)
    assert trace.prompt_tokens.tolist() == [made.size_bytes(row["context"] + question(row)) for row in rows]
    assert trace.output_tokens.tolist() == [1] * 5
    assert trace.ids == tuple(f"{i}-0" for i in range(5))
    assert trace.session is None
    source = trace.source
    assert (source["kind"], source["data_set"], source["licence"]) == ("real", "THUDM/LongBench-v2", "Apache-2.0")
    assert (source["records"], source["records_read"], source["chunks"]) == (5, 5, "whole contexts")
    assert source["skipped"] == {}
    table = pa.Table.from_pylist(rows)
    (tmp_path / "data").mkdir()
    pa.parquet.write_table(table, tmp_path / "data" / "train-00000-of-00001.parquet")
    assert load("longbench", tmp_path / "data", **WHOLE).digest == trace.digest


def test_chunks_lie_in_the_published_range_and_cover_the_contexts(tmp_path: Path, load: Load) -> None:
    rows = records(8, seed=2)
    (tmp_path / "data.json").write_text(json.dumps(rows))
    trace = load("longbench", tmp_path / "data.json")
    assert 1000 <= int(trace.prompt_tokens.min()) <= int(trace.prompt_tokens.max()) <= 4000
    assert set(trace.output_tokens.tolist()) == {20}
    assert trace.ids is not None
    tokens = dict.fromkeys(range(8), 0)
    for name, length in zip(trace.ids, trace.prompt_tokens.tolist(), strict=True):
        record, chunk = map(int, name.split("-"))
        assert chunk == sum(1 for other in trace.ids[: trace.ids.index(name)] if other.startswith(f"{record}-"))
        tokens[record] += length - made.size_bytes(question(rows[record]))
    short = trace.source["skipped"].get("last piece of a context, too short", 0)
    assert 0 < short < 8
    lost = [made.size_bytes(row["context"]) - tokens[i] for i, row in enumerate(rows)]
    # What is missing is the last piece, too short for a prompt of 1000.
    assert sum(1 for one in lost if one) == short
    assert all(0 <= one < 1000 for one in lost)
    assert load("longbench", tmp_path / "data.json").digest == trace.digest
    assert load("longbench", tmp_path / "data.json", chunk_seed=1).digest != trace.digest
    near = load("longbench", tmp_path / "data.json", chunk_min=2000, chunk_max=2000)
    assert set(near.prompt_tokens.tolist()) == {2000}


def test_another_chunking_counts_nothing_again(
    tmp_path: Path,
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "data.json").write_text(json.dumps(records(3, seed=3)))
    load("longbench", tmp_path / "data.json")

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("counted again")

    monkeypatch.setattr(longbench, "count_rows", never)
    assert len(load("longbench", tmp_path / "data.json", chunk_seed=5, chunk_min=300, chunk_max=500)) > 20


def test_v1_from_its_zip_a_folder_and_parquet(tmp_path: Path, load: Load) -> None:
    held = tasks()
    archive = made.write_longbench_zip(tmp_path / "data.zip", held)
    plain = [row for name in ("gov_report", "hotpotqa", "qasper") for row in held[name]]

    def prompt(row: dict[str, Any]) -> str:
        asked = f"\n\n{row['input']}" if row["input"] else ""
        return f"{row['context']}{asked}\n\nAnswer:"

    trace = load("longbench", archive, **WHOLE)
    assert trace.prompt_tokens.tolist() == [made.size_bytes(prompt(row)) for row in plain]
    assert trace.output_tokens.tolist() == [made.size_bytes(row["answers"][0]) for row in plain]
    assert trace.source["data_set"] == "THUDM/LongBench"
    assert trace.source["records_read"] == 2 + 3 + 5
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    assert load("longbench", folder, **WHOLE).digest == trace.digest
    mirror = tmp_path / "mirror"
    for name, rows in held.items():
        (mirror / name).mkdir(parents=True)
        table = pa.Table.from_pylist([{**row, "all_classes": ["x"]} for row in rows])
        pa.parquet.write_table(table, mirror / name / "test-00000-of-00001.parquet")
    assert load("longbench", mirror, **WHOLE).digest == trace.digest
    for path in (archive, folder, mirror):
        two = load("longbench", path, tasks="hotpotqa_e/qasper", **WHOLE)
        assert two.prompt_tokens.tolist() == [
            made.size_bytes(prompt(row)) for row in held["hotpotqa_e"] + held["qasper"]
        ]
        assert two.source["tasks"] == ["hotpotqa_e", "qasper"]
        line = refusal(lambda path=path: load("longbench", path, tasks="qaspr", **WHOLE))  # type: ignore[misc]
        assert line == "longbench: there is no task qaspr: found are gov_report, hotpotqa, hotpotqa_e, qasper"


def test_a_zip_that_is_cut_off_or_corrupt(tmp_path: Path, load: Load) -> None:
    archive = made.write_longbench_zip(tmp_path / "data.zip", tasks())
    content = archive.read_bytes()
    for cut in (0, 10, len(content) // 2, len(content) - 30):
        archive.write_bytes(content[:cut])
        assert "data.zip: not a zip, or cut off (" in refusal(lambda: load("longbench", archive))
    archive.write_bytes(content[:150] + b"\xff" * 50 + content[200:])
    line = refusal(lambda: load("longbench", archive, **WHOLE))
    assert "data.zip: data/gov_report.jsonl: corrupt in the zip (" in line
    with zipfile.ZipFile(archive, "w") as empty:
        empty.writestr("README.md", "nothing")
    assert "no .jsonl or .json file in the zip" in refusal(lambda: load("longbench", archive))
    with zipfile.ZipFile(archive, "w") as cut_member:
        cut_member.writestr("data/qasper.jsonl", made.json_lines(tasks()["qasper"])[:-30])
    line = refusal(lambda: load("longbench", archive, **WHOLE))
    assert "data.zip: data/qasper.jsonl: the file is cut off: its last whole record is number 4" in line
    part = load("longbench", archive, allow_truncated=True, **WHOLE)
    assert part.source["truncated"]["last_whole_record"] == 4


def test_what_cannot_be_a_prompt_is_counted(tmp_path: Path, load: Load) -> None:
    rows = records(6, seed=4, low=300, high=400)
    rows[0]["context"] = None
    rows[1]["context"] = "  "
    rows[2]["question"] = None
    rows[3]["answer"] = ""
    rows[4] = {"_id": "x", "context": "no question"}
    rows.insert(0, made.longbench_v2_row(0, "short " * 400, "why " * 300))
    (tmp_path / "data.json").write_text(json.dumps(rows))
    trace = load("longbench", tmp_path / "data.json", **WHOLE)
    assert trace.ids == ("0-0", "6-0")
    assert trace.source["skipped"] == {
        "context without text": 1,
        "empty answer": 1,
        "empty context": 1,
        "question without text": 1,
        "record without its keys": 1,
    }
    assert trace.source["ids_that_occur_again"] == 1
    cut = load("longbench", tmp_path / "data.json", chunk_min=1200, chunk_max=1300)
    assert cut.source["skipped"]["question that leaves no 100 tokens of context"] == 1


def test_bad_options_and_other_data(tmp_path: Path, load: Load) -> None:
    (tmp_path / "data.json").write_text(json.dumps(records(2, seed=5)))
    path = tmp_path / "data.json"
    assert "give 100 ≤ chunk_min ≤ chunk_max" in refusal(lambda: load("longbench", path, chunk_min=5000))
    assert "give 100 ≤ chunk_min ≤ chunk_max" in refusal(lambda: load("longbench", path, chunk_min=20))
    assert "no context has 60000 tokens" in refusal(lambda: load("longbench", path, chunk_min=60_000, chunk_max=70_000))
    (tmp_path / "other.jsonl").write_text(json.dumps({"prompt": "x", "context": "y"}) + "\n")
    line = refusal(lambda: load("longbench", tmp_path / "other.jsonl"))
    assert "other.jsonl, row 1: neither LongBench v1 (input, context, answers) nor v2 (" in line
    assert line.endswith("found are prompt, context")
    pa.parquet.write_table(pa.table({"context": ["a"], "query": ["b"]}), tmp_path / "other.parquet")
    assert refusal(lambda: load("longbench", tmp_path / "other.parquet")).endswith("found are context, query")


def test_prompts_are_cut_from_the_text_where_the_tokens_are(tmp_path: Path, load: Load, bytes_tokenizer: Path) -> None:
    rows = records(4, seed=6)
    (tmp_path / "data.json").write_text(json.dumps(rows))
    for options in ({}, {"order": "shuffled"}, {"chunk_max": "0", "forced": "3"}, {"chunk_seed": "4"}):
        trace = load("longbench", tmp_path / "data.json", **options)
        given = {"path": str(tmp_path / "data.json"), "tokenizer": str(bytes_tokenizer), **options}
        workload = canonical_workload("longbench", given)
        prompts = [str(one) for one in DatasetPrompts(trace, dataset_texts(workload, "")).texts(range(len(trace)))]
        # The tokenizer counts bytes, so the lengths are exact.
        assert [made.size_bytes(prompt) for prompt in prompts] == trace.prompt_tokens.tolist()
        assert trace.ids is not None
        for name, prompt in zip(trace.ids, prompts, strict=True):
            row = rows[int(name.split("-")[0])]
            assert prompt.endswith(question(row))
            assert prompt.removesuffix(question(row)) in row["context"]
    (tmp_path / "data.json").write_text(json.dumps(rows[:2]))
    assert "is not there any more" in refusal(lambda: DatasetPrompts(trace, dataset_texts(workload, "")))
