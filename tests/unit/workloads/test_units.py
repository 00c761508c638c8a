"""The unit of times and the size of blocks: what a file's own numbers decide, and what only the user knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.catalog import canonical_workload, load_workload
from workloads.core import options
from workloads.core.arrivals import FromTrace
from workloads.core.errors import WorkloadError
from workloads.core.stream import schedule
from workloads.core.trace import Trace
from workloads.traces.writing import write_trace

ROWS = 40
# Poisson arrivals of 4.785 requests/s, s.
TIMES = np.cumsum(np.random.default_rng(3).exponential(1 / 4.785, ROWS)).round(3)


def load(path: Path, **options: str) -> Trace:
    return load_workload("file", {"path": str(path), **options}, requests=None, seed=0, model="m/m")


def rate(trace: Trace) -> float:
    assert trace.timestamp_s is not None
    return (len(trace) - 1) / float(trace.timestamp_s[-1])


def number(value: float, fractions: bool) -> float | int:
    return round(value, 6) if fractions else round(value)


def jsonl(path: Path, times: list[float | int]) -> None:
    rows = ({"timestamp_s": one, "prompt_tokens": 9, "output_tokens": 9} for one in times)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def mooncake(path: Path, times: list[float | int]) -> None:
    rows = ({"timestamp": one, "input_length": 9, "output_length": 9} for one in times)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def vidur(path: Path, times: list[float | int]) -> None:
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{one},9,9\n" for one in times))


def burstgpt(path: Path, times: list[float | int]) -> None:
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    path.write_text(head + "".join(f"{one},GPT-4,9,9,18,API log\n" for one in times))


def parquet(path: Path, times: list[float | int]) -> None:
    pq.write_table(pa.table({"timestamp_s": times, "prompt_tokens": [9] * ROWS, "output_tokens": [9] * ROWS}), path)


Write = Callable[[Path, list[float | int]], None]
OF_SECONDS = (jsonl, vidur, burstgpt, parquet)


@pytest.mark.parametrize("write", [*OF_SECONDS, mooncake])
@pytest.mark.parametrize("fractions", [True, False])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_no_unit_is_taken_wrongly_without_a_word(tmp_path: Path, write: Write, unit: str, fractions: bool) -> None:
    per = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    path = tmp_path / "t"
    write(path, [number(one * per, fractions or unit == "s") for one in TIMES])
    trace = load(path)
    if rate(trace) == pytest.approx(4.785, rel=0.3):
        assert "unit_question" not in trace.source
        return
    question = trace.source["unit_question"]
    assert question in trace.source["notices"]
    assert f"{rate(trace) * per / (1e3 if write is mooncake else 1):.3g} as {unit}" in question
    assert "say unit=s, unit=ms, unit=us or unit=ns" in question
    with pytest.raises(WorkloadError, match="--arrival trace: t: in which unit are its times"):
        schedule(FromTrace(1.0), trace, 0)
    told = load(path, unit=unit)
    assert rate(told) == pytest.approx(4.785, rel=0.3)
    assert not told.source.get("notices")
    assert schedule(FromTrace(1.0), told, 0).due_ns is not None


def test_what_a_forms_own_unit_gives_is_not_questioned(tmp_path: Path) -> None:
    for write in (*OF_SECONDS, mooncake):
        path = tmp_path / "t"
        write(path, [number(one * (1e3 if write is mooncake else 1), write is not mooncake) for one in TIMES])
        assert rate(load(path)) == pytest.approx(4.785, rel=0.3)
        assert "notices" not in load(path).source


def test_fractions_in_a_field_of_milliseconds_are_seconds_and_said(tmp_path: Path) -> None:
    path = tmp_path / "t"
    mooncake(path, [float(one) for one in TIMES])
    trace = load(path)
    assert trace.timestamp_s is not None
    assert trace.timestamp_s[-1] == pytest.approx(TIMES[-1] - TIMES[0])
    assert "read as seconds; unit=ms reads them as milliseconds" in trace.source["notes"][0]
    assert rate(load(path, unit="ms")) == pytest.approx(1e3 * rate(trace))


def test_a_question_travels_with_a_converted_trace(tmp_path: Path) -> None:
    vidur(tmp_path / "t", [number(1e3 * one, fractions=False) for one in TIMES])
    write_trace(load(tmp_path / "t"), tmp_path / "asked.jsonl")
    assert "unit_question" in load(tmp_path / "asked.jsonl").source
    write_trace(load(tmp_path / "t", unit="ms"), tmp_path / "told.jsonl")
    told = load(tmp_path / "told.jsonl")
    assert "unit_question" not in told.source
    assert rate(told) == pytest.approx(4.785, rel=0.3)
    # A slow trace that was converted counts seconds all the same.
    write_trace(load(tmp_path / "t", unit="s"), tmp_path / "slow.jsonl")
    assert not load(tmp_path / "slow.jsonl").source["notices"]
    with pytest.raises(WorkloadError, match="its header tells unit and block already"):
        load(tmp_path / "told.jsonl", unit="s")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5,6\n", "this form has dates"),
        ("num_prefill_tokens,num_decode_tokens\n5,6\n", "the file has no times"),
        ('{"prompt_tokens": 5, "output_tokens": 6}\n', "the file has no times"),
    ],
)
def test_a_unit_that_would_say_nothing_is_refused(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "t").write_text(content)
    with pytest.raises(WorkloadError, match=f"unit=ms: {told}: leave it out"):
        load(tmp_path / "t", unit="ms")
    with pytest.raises(WorkloadError, match=r"block=16: .*leave it out"):
        load(tmp_path / "t", block="16")


def blocks_of(path: Path, size: int, whole: bool, form: str) -> Path:
    """Rows that share their first half, with ids of blocks of so many tokens."""
    lengths = [12 * size + extra for extra in (0, 3, size // 2, size - 1)]
    keys = ("input_length", "output_length") if form == "mooncake" else ("prompt_tokens", "output_tokens")
    rows = []
    for row, length in enumerate(lengths):
        count = length // size if whole else -(-length // size)
        ids = [*range(6), *(100 * (row + 1) + i for i in range(count - 6))]
        rows.append({**dict(zip(keys, (length, 5), strict=True)), "hash_ids": ids})
    if form == "mooncake":
        rows = [{"timestamp": 250 * i, **row} for i, row in enumerate(rows)]
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize("form", ["mooncake", "jsonl", "parquet"])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("size", [16, 32, 128, 512, 1024, 2048])
def test_lengths_tell_the_size_of_blocks(tmp_path: Path, size: int, whole: bool, form: str) -> None:
    trace = load(blocks_of(tmp_path / "t", size, whole, form))
    assert trace.blocks is not None
    assert trace.blocks.tokens == size
    assert trace.blocks.shared_tokens(trace.prompt_tokens) == 3 * 6 * size
    said = [one for one in trace.source.get("notices", ()) if "blocks of" in one]
    assert bool(said) == (size != 512)


ROW_OF_ITS_OWN = '{"prompt_tokens": 400, "output_tokens": 5, "hash_ids": [1]}\n'


def test_sizes_that_lengths_do_not_tell_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"prompt_tokens": 300, "output_tokens": 5, "hash_ids": [1, 2, 3]}\n' * 2 + ROW_OF_ITS_OWN)
    with pytest.raises(WorkloadError, match=r"row 1: 3 hash_ids.*check the block size \(block=N says another\)"):
        load(path)
    told = load(path, block="100")
    assert told.blocks is not None
    assert told.blocks.tokens == 100
    # A prefix whose rest has no id may be of any size: 512 is taken, and said.
    path.write_text(
        '{"prompt_tokens": 5000, "output_tokens": 5, "hash_ids": [1, 2]}\n'
        '{"prompt_tokens": 9000, "output_tokens": 5, "hash_ids": [1, 2]}\n'
    )
    (notice,) = load(path).source["notices"]
    assert "512 tokens are taken; block=N says another" in notice


NAMES = (
    "isl=1024,osl=128.jsonl",
    "rate=5.jsonl",
    "a,b.jsonl",
    "=.jsonl",
    'q",u.jsonl',
    "run=1/day=2/t.jsonl",
    " x.jsonl",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_may_be_called_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"prompt_tokens": 5, "output_tokens": 6}\n')
    asked = [options.split(f"file:{form}{name}") for form in ("", "path=")] if name == name.strip() else []
    for head, given in (*asked, options.split(f"file:{options.quoted(name)}")):
        assert given["path"] == name
        assert len(load_workload(head, given, requests=None, seed=0, model="m/m")) == 1
    more = options.split(f"file:{options.quoted(name)},output_cap=3")
    canonical = canonical_workload(*more)
    path.unlink()
    # A run's spec is read where the file is not.
    assert options.split(canonical) == ("file", {"path": name, "output_cap": "3"})


def test_a_name_that_is_no_file_and_no_option_is_told_as_both(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="file: no file isl=1 is there, and no option 'isl'"):
        canonical_workload(*options.split("file:isl=1,osl=2.jsonl"))
    with pytest.raises(WorkloadError, match="follows a quoted value: write a comma after it"):
        options.split('file:"a.jsonl"b')
