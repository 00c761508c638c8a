import json
from pathlib import Path
from typing import Any

import pytest

from workloads.catalog import load_workload
from workloads.core.errors import WorkloadError
from workloads.core.trace import Trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def load(path: Path, requests: int | None = None, seed: int = 0, **options: str) -> Trace:
    return load_workload("file", {"path": str(path), **options}, requests=requests, seed=seed, model="m/m")


def row(prompt: Any = 10, output: Any = 5, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "output_tokens": output, **more}


def put(path: Path, *rows: Any) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))


def test_every_column(path: Path) -> None:
    put(
        path,
        row(1, 2, timestamp_s=100, id="a", session="u", turn=0, out_hint=3, note="not read"),
        row(3, 4, timestamp_s=100.5, id="b", session=7, turn=0, out_hint=[4, 9]),
        row(5, 6, timestamp_s=100.5, id=9, session="u", turn=1, out_hint=[1, 1]),
    )
    trace = load(path)
    assert trace.prompt_tokens.tolist() == [1, 3, 5]
    assert trace.output_tokens.tolist() == [2, 4, 6]
    assert trace.timestamp_s is not None
    assert trace.session is not None
    assert trace.turn is not None
    assert trace.timestamp_s.tolist() == [0.0, 0.5, 0.5]
    assert trace.session.tolist() == [0, 1, 0]
    assert trace.turn.tolist() == [0, 0, 1]
    assert trace.ids == ("a", "b", "9")
    assert trace.hint_low is not None
    assert trace.hint_high is not None
    assert (trace.hint_low.tolist(), trace.hint_high.tolist()) == ([3, 4, 1], [3, 9, 1])
    assert trace.source["kind"] == "file"


def test_sessions_without_turns_are_numbered_in_order(path: Path) -> None:
    put(path, row(session=3), row(session=8), row(session=3))
    turn = load(path).turn
    assert turn is not None
    assert turn.tolist() == [0, 0, 1]


@pytest.mark.parametrize("form", ["{0}\r\n{1}\r\n", "{0}\n{1}", "\ufeff{0}\n\n{1}\n\n \n"])
def test_line_ends_and_blank_lines(path: Path, form: str) -> None:
    path.write_bytes(form.format(json.dumps(row()), json.dumps(row(7))).encode())
    assert load(path).prompt_tokens.tolist() == [10, 7]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"prompt_tokens": 3}, "output_tokens is missing"),
        ({"prompt_tokens": None, "output_tokens": 3}, "prompt_tokens is missing"),
        (row(1.0), "prompt_tokens is 1.0, not a whole number"),
        (row(True), "prompt_tokens is True, not a whole number"),
        (row("7"), "prompt_tokens is '7', not a whole number"),
        (row(1, 0), "output_tokens is 0; it must be 1 to"),
        (row(-4), "prompt_tokens is -4; it must be 1 to"),
        (row(10**15), f"prompt_tokens is {10**15}; it must be"),
        (row(timestamp_s="noon"), "timestamp_s is 'noon'"),
        (row(timestamp_s=True), "timestamp_s is True"),
        (row(id=1.5), "id is 1.5"),
        (row(session=[1]), r"session is \[1\]"),
        (row(session=1, turn=-1), "turn is -1"),
        (row(turn=1), "turn without session"),
        (row(out_hint=0), "out_hint is 0; it must be 1 to"),
        (row(out_hint=2.5), "out_hint is 2.5, not a whole number"),
        (row(out_hint=[1, 2, 3]), r"out_hint is \[1, 2, 3\], neither a number of tokens nor a pair"),
        (row(out_hint=[9, 2]), r"out_hint is \[9, 2\]: write the lower number first"),
        ([1, 2], "not a JSON object"),
        (7, "not a JSON object"),
    ],
)
def test_a_bad_row_is_named(path: Path, bad: Any, told: str) -> None:
    put(path, row(), row(), bad)
    with pytest.raises(WorkloadError, match=rf"trace\.jsonl, row 3: {told}"):
        load(path)


def test_what_is_no_json_is_named(path: Path) -> None:
    path.write_text(json.dumps(row()) + '\n{"prompt_tokens": 1, "outp')
    with pytest.raises(WorkloadError, match=r"row 2: not JSON \(.*\): one JSON object a line"):
        load(path)
    path.write_text(json.dumps(row()) + '\n{"prompt_tokens": NaN, "output_tokens": 1}')
    with pytest.raises(WorkloadError, match="row 2: not JSON"):
        load(path)


def test_ids_twice_name_both_rows(path: Path) -> None:
    put(path, row(id="a"), row(id="b"), row(id="a"))
    with pytest.raises(WorkloadError, match="row 3: id 'a' is row 1's already"):
        load(path)


def test_time_runs_forward(path: Path) -> None:
    put(path, row(timestamp_s=5), row(timestamp_s=6), row(timestamp_s=5.5))
    with pytest.raises(WorkloadError, match=r"row 3: timestamp_s 5\.5 is earlier .* sort the file"):
        load(path)


def test_a_column_is_in_every_row_or_in_none(path: Path) -> None:
    put(path, row(timestamp_s=5), row())
    with pytest.raises(WorkloadError, match="row 2: lacks timestamp_s"):
        load(path)
    put(path, row(), row(id="x"))
    with pytest.raises(WorkloadError, match="row 2: has id"):
        load(path)


@pytest.mark.parametrize("content", ["", "\n\n", "   "])
def test_empty(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(WorkloadError, match="is empty: nothing to replay"):
        load(path)
    with pytest.raises(WorkloadError, match="is empty: nothing to replay"):
        load(path, format="jsonl")


def test_unknown_formats(path: Path) -> None:
    path.write_text("prompt,output\n1,2\n")
    with pytest.raises(
        WorkloadError,
        match="format not recognised: its first line is 'prompt, output'; known are jsonl, parquet, azure",
    ):
        load(path)
    with pytest.raises(WorkloadError, match=r"format=json is unknown \(did you mean jsonl\?\)"):
        load(path, format="json")
    with pytest.raises(WorkloadError, match="no such file"):
        load(path.with_name("none"))
    with pytest.raises(WorkloadError, match="cannot be read"):
        load(path.parent)


def test_a_window_keeps_relative_times_and_a_repeated_trace_has_none(path: Path) -> None:
    put(path, *(row(10 + i, timestamp_s=2 * i) for i in range(5)))
    window = load(path, requests=2, seed=1)
    assert window.prompt_tokens.tolist() == [12, 13]
    assert window.timestamp_s is not None
    assert window.timestamp_s.tolist() == [0.0, 2.0]
    wrapped = load(path, requests=3, seed=1)
    assert wrapped.prompt_tokens.tolist() == [13, 14, 10]
    assert wrapped.timestamp_s is None
    assert "wraps round" in wrapped.source["notes"][0]
    repeated = load(path, requests=12)
    assert repeated.timestamp_s is None
    assert repeated.prompt_tokens.tolist() == [10, 11, 12, 13, 14, 10, 11, 12, 13, 14, 10, 11]
    assert repeated.source["notes"] == ["12 requests repeat the trace of 5 rows 2.4 times"]
