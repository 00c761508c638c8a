"""Conversion to our own format: nothing is lost, the same digest comes back, and damage is told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.catalog import load_workload
from workloads.core import options
from workloads.core.blocks import Blocks
from workloads.core.errors import WorkloadError
from workloads.core.stream import own_arrival
from workloads.core.trace import Trace
from workloads.traces.writing import write_trace

FORMS = (".jsonl", ".parquet")


def load(text: str, requests: int | None = None, seed: int = 0) -> Trace:
    name, given = options.split(text)
    return load_workload(name, given, requests=requests, seed=seed, model="Qwen/Qwen3-8B")


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def everything() -> Trace:
    """A trace with every column, its sessions not numbered from 0."""
    return Trace(
        "t",
        ints(600, 30, 700),
        ints(1, 2, 3),
        {"kind": "real", "licence": "CC0", "revision": "abc", "tokenizer": "qwen", "skipped": {"empty": 4}},
        timestamp_s=np.array([0.0, 0.1, 1 / 3]),
        session=ints(17, 3, 17),
        turn=ints(0, 0, 5),
        ids=("a", "7", "ü"),
        hint_low=ints(1, 1, 2),
        hint_high=ints(1, 4, 9),
        blocks=Blocks(((1 << 63, 2), (), (1 << 63, 2)), 512),
    )


@pytest.mark.parametrize("form", FORMS)
def test_every_column_comes_back(tmp_path: Path, form: str) -> None:
    trace = everything()
    write_trace(trace, tmp_path / f"t{form}")
    back = load(f"file:{tmp_path / f't{form}'}")
    assert back.digest == trace.digest
    source = back.source
    assert (source["kind"], source["licence"], source["revision"], source["tokenizer"]) == (
        "real",
        "CC0",
        "abc",
        "qwen",
    )
    assert source["skipped"] == {"empty": 4}
    assert source["header"]["digest"] == trace.digest
    assert source["format"] == form[1:]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "workload", ["sharegpt", "wildchat", "drift:bursts", "drift:concurrency-log", "drift:distribution,order=paper"]
)
def test_any_workload_comes_back_with_its_source(tmp_path: Path, workload: str, form: str) -> None:
    trace = load(workload, 500, seed=2)
    write_trace(trace, tmp_path / f"a{form}")
    once = load(f"file:{tmp_path / f'a{form}'}")
    assert once.digest == trace.digest
    assert once.source["kind"] == trace.source["kind"]
    assert once.source.get("phases") == trace.source.get("phases")
    assert own_arrival(once) == own_arrival(trace)
    assert once.source["header"]["filters"] == trace.source.get("filters")
    # Twice over, through the other form.
    other = tmp_path / f"b{FORMS[1 - FORMS.index(form)]}"
    write_trace(once, other)
    twice = load(f"file:{other}")
    assert twice.digest == trace.digest
    assert twice.source["header"]["header"]["workload"] == trace.source["workload"]


def test_jsonl_begins_with_its_header(tmp_path: Path) -> None:
    write_trace(everything(), tmp_path / "t.jsonl")
    first, second, *_ = (tmp_path / "t.jsonl").read_text().splitlines()
    header = json.loads(first)["header"]
    assert header["rows"] == 3
    assert (header["licence"], header["revision"], header["tokenizer"], header["block_tokens"]) == (
        "CC0",
        "abc",
        "qwen",
        512,
    )
    assert json.loads(second)["prompt_tokens"] == 600


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_overwritten_unasked(tmp_path: Path, form: str) -> None:
    out = tmp_path / f"t{form}"
    write_trace(everything(), out)
    with pytest.raises(WorkloadError, match="is there already: give another name, or --overwrite"):
        write_trace(everything(), out)
    write_trace(everything(), out, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    with pytest.raises(WorkloadError, match=r"must end in \.jsonl or \.parquet"):
        write_trace(everything(), tmp_path / "t.csv")
    with pytest.raises(WorkloadError, match="cannot be written: No such file or directory"):
        write_trace(everything(), tmp_path / f"none/t{form}")


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(everything(), path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    with pytest.raises(WorkloadError, match="the header says 3 rows, the file has 2: is it cut off"):
        load(f"file:{path}")
    out = tmp_path / "t.parquet"
    write_trace(everything(), out)
    out.write_bytes(out.read_bytes()[:-50])
    with pytest.raises(WorkloadError, match="no parquet, or cut off"):
        load(f"file:{out}")


def test_edited_rows_are_no_longer_what_the_header_says(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(everything(), path)
    path.write_text(path.read_text().replace('"output_tokens":2', '"output_tokens":9'))
    trace = load(f"file:{path}")
    assert trace.source["kind"] == "file"
    assert "licence" not in trace.source
    assert "the rows are other than those its header tells of" in trace.source["notices"][0]


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ({"schedbench_trace": 9}, "a header of schedbench_trace 9, this version reads 1"),
        ({"rows": "3"}, "the header's rows is '3'"),
        ({"source": []}, r"the header's source is \[\]"),
        ({"block_tokens": 0}, "the header's block_tokens is 0"),
        ({"source": {"phases": [{"name": "a", "first_row": 5}]}}, "the header's source is damaged"),
        ({"source": {"skipped": {"a": "b"}}}, "the header's source is damaged"),
        ({"source": {"notes": "a"}}, "the header's source is damaged"),
    ],
)
def test_damaged_headers(tmp_path: Path, edit: dict[str, Any], told: str) -> None:
    path = tmp_path / "t.jsonl"
    write_trace(everything(), path)
    first, *rows = path.read_text().splitlines(keepends=True)
    header = json.loads(first)["header"] | edit
    path.write_text("".join([json.dumps({"header": header}) + "\n", *rows]))
    with pytest.raises(WorkloadError, match=told):
        load(f"file:{path}")


def parquet(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), path)
    return f"file:{path}"


def test_parquet_of_others(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    trace = load(
        parquet(
            path,
            prompt_tokens=pa.array([5, 6, 7], pa.int32()),
            output_tokens=[1, 2, 3],
            timestamp_s=[10, 11, 12],
            session=["x", "y", "x"],
            extra=[0, 0, 0],
        )
    )
    assert trace.session is not None
    assert trace.turn is not None
    assert trace.timestamp_s is not None
    assert trace.session.tolist() == [0, 1, 0]
    assert trace.turn.tolist() == [0, 0, 1]
    assert trace.timestamp_s.tolist() == [0.0, 1.0, 2.0]
    assert "keys that are not read: 'extra'" in trace.source["notices"][0]


@pytest.mark.parametrize("hints", [[5, 6], [[5, 5], [6, 6]], pa.array([[5, 5], [6, 6]], pa.list_(pa.uint8(), 2))])
def test_parquet_has_hints_as_numbers_or_as_pairs(tmp_path: Path, hints: Any) -> None:
    trace = load(parquet(tmp_path / "t.parquet", prompt_tokens=[1, 1], output_tokens=[9, 9], out_hint=hints))
    assert trace.hint_low is not None
    assert trace.hint_high is not None
    assert trace.hint_low.tolist() == trace.hint_high.tolist() == [5, 6]
    assert "notices" not in trace.source


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"prompt": [1], "output_tokens": [1]}, "no column prompt_tokens: found prompt, output_tokens"),
        ({"prompt_tokens": [1, None], "output_tokens": [1, 1]}, "row 2: prompt_tokens is missing"),
        ({"prompt_tokens": [1.5], "output_tokens": [1]}, "prompt_tokens is a column of double"),
        ({"prompt_tokens": [1, 0], "output_tokens": [1, 1]}, "row 2: prompt_tokens is 0; it must be 1 to"),
        (
            {"prompt_tokens": [1, 1], "output_tokens": [1, 1], "timestamp_s": [2.0, 1.0]},
            "row 2: timestamp_s 1.0 is earl",
        ),
        ({"prompt_tokens": [1], "output_tokens": [1], "timestamp_s": [1e300]}, "row 1: timestamp_s is 1e"),
        ({"prompt_tokens": [1], "output_tokens": [1], "timestamp_s": ["noon"]}, "timestamp_s is a column of string"),
        ({"prompt_tokens": [1, 1], "output_tokens": [1, 1], "id": ["a", "a"]}, "row 2: id 'a' is row 1's already"),
        ({"prompt_tokens": [1], "output_tokens": [1], "turn": [1]}, "turn without session"),
        ({"prompt_tokens": [1], "output_tokens": [1], "session": [1.5]}, "session is a column of double"),
        ({"prompt_tokens": [1], "output_tokens": [1], "hash_ids": [[1, 2]]}, "row 1: 2 hash_ids, but a prompt of 1"),
        ({"prompt_tokens": [1], "output_tokens": [1], "hash_ids": [3]}, "hash_ids is a column of int64"),
        ({"prompt_tokens": pa.array([1, 1 << 63], pa.uint64()), "output_tokens": [1, 1]}, "row 2: prompt_tokens is 9"),
        ({"prompt_tokens": [1], "output_tokens": [1], "out_hint": [0]}, "row 1: out_hint is 0; it must be 1 to"),
        ({"prompt_tokens": [1], "output_tokens": [1], "out_hint": [[7, 5]]}, "out_hint is .7, 5.: write the lower"),
        ({"prompt_tokens": [1], "output_tokens": [1], "out_hint": [[7]]}, "row 1: out_hint is .7., neither a number"),
        ({"prompt_tokens": [1], "output_tokens": [1], "out_hint": [1.5]}, "out_hint is a column of double"),
        ({"prompt_tokens": pa.array([], pa.int64()), "output_tokens": pa.array([], pa.int64())}, "has no row"),
    ],
)
def test_parquet_that_cannot_be(tmp_path: Path, columns: dict[str, Any], told: str) -> None:
    with pytest.raises(WorkloadError, match=told) as caught:
        load(parquet(tmp_path / "t.parquet", **columns))
    assert "t.parquet" in str(caught.value)
    assert str(caught.value).isprintable()
