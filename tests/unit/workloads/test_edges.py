"""What a hostile user gives a workload: one printable line each, no hang, no warning, no belief in a bad cache."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import dataset_files as made
from tests.support.refusals import refusal
from workloads.catalog import load_workload
from workloads.core import cache
from workloads.core.arrivals import Arrival, Phases, Poisson, Ramp, parse_arrival
from workloads.core.stream import schedule
from workloads.core.trace import Trace
from workloads.datasets import sharegpt
from workloads.text import qwen_vocabulary


def file_of(path: Path, **options: str) -> Trace:
    return load_workload("file", {"path": str(path), **options}, requests=None, seed=0, model="none/none")


def put(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(**more: Any) -> dict[str, Any]:
    return {"prompt_tokens": 10, "output_tokens": 5, **more}


@pytest.mark.parametrize(
    "text",
    [
        "poisson:rate=1000001",
        "poisson:rate=1e300",
        "constant:rate=1e7",
        "gamma:cv=2,rate=1e9",
        "ramp:from=1e300,to=1,seconds=1",
        "ramp:from=1,to=1e300,seconds=1",
        "ramp:from=1,to=2,seconds=1e300",
        "ramp:from=1,to=2,seconds=9000001",
        "phases:rates=1e300/1,seconds=1/1",
        "phases:rates=1/1e300,seconds=1/1",
        "phases:rates=1/1,seconds=1e300/1",
        "phases:rates=1/1,seconds=5e6/5e6",
        "trace:scale=1e300",
        "poisson:rate=" + "9" * 5000,
        "closed:concurrency=" + "9" * 5000,
    ],
)
def test_absurd_arrivals(text: str) -> None:
    refusal(lambda: parse_arrival(text))


@pytest.mark.parametrize(
    ("text", "arrival"),
    [
        ("poisson:rate=1000000", Poisson(1e6)),
        ("ramp:from=0,to=1e6,seconds=9e6", Ramp(0.0, 1e6, 9e6)),
        ("phases:rates=1/1,seconds=1/2", Phases((1.0, 1.0), (1.0, 2.0))),
    ],
)
def test_arrivals_at_their_bounds(text: str, arrival: Arrival) -> None:
    assert parse_arrival(text) == arrival
    due = schedule(arrival, Trace("t", np.full(9, 1), np.full(9, 1)), 0).due_ns
    assert due is not None
    assert len(due) == 9
    assert due[0] >= 0
    assert (np.diff(due) >= 0).all()


def test_a_schedule_ends_where_float64_seconds_tell_nanoseconds_apart() -> None:
    trace = Trace("t", np.full(9, 1), np.full(9, 1))
    assert schedule(parse_arrival("constant:rate=1e-6"), trace, 0).due_ns is not None
    longer = Trace("t", np.full(10, 1), np.full(10, 1))
    line = refusal(lambda: schedule(parse_arrival("constant:rate=1e-6"), longer, 0))
    assert "due in 1e+07 s" in line
    assert "raise the rate" in line
    refusal(lambda: schedule(parse_arrival("poisson:rate=1e-320"), trace, 0))
    timed = Trace("t", np.full(2, 1), np.full(2, 1), timestamp_s=np.array([0.0, 100.0]))
    assert "lower the scale" in refusal(lambda: schedule(parse_arrival("trace:scale=1e5"), timed, 0))


@pytest.mark.parametrize("stamp", [1e308, -1e308, 1e10, -1e10, 1.7e12, 10**30])
def test_stamps_that_are_no_seconds(tmp_path: Path, stamp: float) -> None:
    path = put(tmp_path / "t.jsonl", row(timestamp_s=-stamp), row(timestamp_s=stamp))
    assert "row 1: timestamp_s" in refusal(lambda: file_of(path))


def test_seconds_since_1970_are_fine(tmp_path: Path) -> None:
    trace = file_of(put(tmp_path / "t.jsonl", row(timestamp_s=1_700_000_000.0), row(timestamp_s=1_700_000_001.5)))
    assert trace.timestamp_s is not None
    assert trace.timestamp_s.tolist() == [0.0, 1.5]


@pytest.mark.parametrize("options", [{}, {"format": "jsonl"}, {"format": "sharegpt"}])
def test_pipes_and_devices_are_not_waited_for(tmp_path: Path, options: dict[str, str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path):
        line = refusal(lambda path=path: file_of(path, **options))  # type: ignore[misc]
        assert line == f"{path}: cannot be read: not a regular file: save what it gives in one first"


@pytest.mark.parametrize("names", [("prompt_tokens", "output_tokens"), ("input_length", "output_length")])
def test_an_array_of_rows_is_not_taken_for_sharegpt(tmp_path: Path, names: tuple[str, str]) -> None:
    path = tmp_path / "rows.json"
    for indent in (None, 2):
        path.write_text(json.dumps([dict.fromkeys(names, 5)] * 2, indent=indent))
        assert "write one object a line" in refusal(lambda: file_of(path))
    path.write_text(json.dumps([row(), row()]))
    assert "write one object a line" in refusal(lambda: file_of(path, format="jsonl"))


def test_remedies_speak_of_the_workload_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(made.SHAREGPT))
    line = refusal(lambda: file_of(path, tokenizer="/no/where"))
    assert "file:PATH,tokenizer=PATH" in line
    assert "sharegpt:" not in line
    given = {"path": str(path), "tokenizer": "/no/where"}
    line = refusal(lambda: load_workload("sharegpt", given, requests=None, seed=0, model=""))
    assert "sharegpt:path=FILE,tokenizer=PATH" in line


def test_the_list_of_formats_has_no_empty_item(tmp_path: Path) -> None:
    assert refusal(lambda: file_of(tmp_path / "x", format="csv")).endswith(
        "it is one of jsonl, parquet, azure, mooncake, burstgpt, vidur, sharegpt"
    )


def test_keys_that_are_not_read_are_named_once(tmp_path: Path) -> None:
    path = put(tmp_path / "t.jsonl", row(timestamp=1, arrival_s=2), row(timestamp=2, arrival_s=3), row(note="\x1b[31m"))
    (notice,) = file_of(path).source["notices"]
    assert notice == (
        "t.jsonl: keys that are not read: 'timestamp', 'arrival_s', 'note' "
        "(known are prompt_tokens, output_tokens, timestamp_s, id, session, turn, out_hint, hash_ids)"
    )
    (notice,) = file_of(put(path, row(**{f"\n{i}": 1 for i in range(20)}))).source["notices"]
    assert notice.isprintable()
    assert "and 12 more" in notice
    assert "notices" not in file_of(put(path, row(id="a"))).source


def test_names_and_values_reach_a_terminal_escaped(tmp_path: Path, bytes_tokenizer: Path) -> None:
    odd = tmp_path / "a\x1b[31m\nb.jsonl"
    assert "\\x1b[31m\\nb.jsonl" in refusal(lambda: file_of(odd))
    refusal(lambda: file_of(put(odd, row(id="\x1b" * 999), row(id="\x1b" * 999))))
    refusal(lambda: file_of(put(odd, row(prompt_tokens="x" * 10**6))))
    odd.write_text(json.dumps([1]))
    refusal(lambda: file_of(odd))
    odd.write_text("[1")
    refusal(lambda: file_of(odd, format="sharegpt", tokenizer=str(bytes_tokenizer)))
    assert file_of(put(odd, row())).source["file"].isprintable()
    refusal(lambda: file_of(tmp_path / ("x" * 5000)))


@pytest.fixture
def bytes_tokenizer(tmp_path: Path) -> Path:
    lines = [base64.b64encode(bytes([byte])) + f" {byte}".encode() for byte in range(256)]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(qwen_vocabulary.convert(b"\n".join(lines)))
    return path


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(made.SHAREGPT))
    return path


def count(path: Path, tokenizer: Path) -> Trace:
    given = {"path": str(path), "tokenizer": str(tokenizer)}
    return load_workload("sharegpt", given, requests=None, seed=0, model="")


def _resave(kept: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Write a cache file anew with its digest made to fit, as somebody would who knows how."""
    found = cache.load(kept, ("prompt_tokens", "output_tokens", "session", "turn"))
    assert isinstance(found, tuple)
    columns, meta = found
    change(columns, meta)
    assert cache.save(kept, columns, meta) is None


def _set(where: str, key: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(columns: dict[str, Any], meta: dict[str, Any]) -> None:
        place = columns if where == "columns" else meta
        if value is None:
            del place[key]
        else:
            place[key] = value(place[key])

    return change


CACHE: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "no column": _set("columns", "turn", None),
    "floats": _set("columns", "prompt_tokens", lambda values: values.astype(float)),
    "shorter": _set("columns", "prompt_tokens", lambda values: values[:-1]),
    "two-dimensional": _set("columns", "turn", lambda values: values[:, None]),
    "zero": _set("columns", "output_tokens", lambda values: values * 0),
    "all shorter": lambda columns, _: columns.update({name: values[:-1] for name, values in columns.items()}),
    "no ids": _set("meta", "ids", None),
    "ids of numbers": _set("meta", "ids", lambda ids: list(range(len(ids)))),
    "ids twice": _set("meta", "ids", lambda ids: [ids[0]] * len(ids)),
    "no source": _set("meta", "source", None),
    "source of another kind": _set("meta", "source", lambda _: [1]),
    "more in the source": _set("meta", "source", lambda source: source | {"kind": "real"}),
    "skipped of text": _set("meta", "source", lambda _: {"skipped": {"x": "y"}}),
    "cut of text": _set("meta", "source", lambda source: source | {"truncated": "yes"}),
}


@pytest.mark.parametrize("damage", CACHE)
def test_a_cache_file_that_is_not_whole_is_never_believed(data: Path, bytes_tokenizer: Path, damage: str) -> None:
    first = count(data, bytes_tokenizer)
    (kept,) = (cache.cache_dir() / "lengths").iterdir()
    _resave(kept, CACHE[damage])
    again = count(data, bytes_tokenizer)
    assert again.digest == first.digest
    assert again.source["skipped"] == first.source["skipped"]
    assert again.source["notices"] == [f"{kept} was corrupt: counted again and written anew"]
    assert "notices" not in count(data, bytes_tokenizer).source


def test_the_cache_file_of_another_file_is_never_believed(data: Path, bytes_tokenizer: Path) -> None:
    count(data, bytes_tokenizer)
    (kept,) = (cache.cache_dir() / "lengths").iterdir()
    data.write_text(json.dumps(made.SHAREGPT[:1]))
    sha = cache.file_digest(data)
    first = count(data, bytes_tokenizer)
    (other,) = set((cache.cache_dir() / "lengths").iterdir()) - {kept}
    other.write_bytes(kept.read_bytes())
    again = count(data, bytes_tokenizer)
    assert again.source["file_sha256"] == sha
    assert again.digest == first.digest
    assert "was corrupt" in again.source["notices"][0]


def test_a_cache_file_that_is_a_pipe_is_not_waited_for(data: Path, bytes_tokenizer: Path) -> None:
    first = count(data, bytes_tokenizer)
    (kept,) = (cache.cache_dir() / "lengths").iterdir()
    kept.unlink()
    os.mkfifo(kept)
    assert count(data, bytes_tokenizer).digest == first.digest


def test_without_a_home_directory_the_cache_is_a_temporary_one(
    data: Path, bytes_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("BENCH_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trace = count(data, bytes_tokenizer)
    assert trace.source["notices"] == [cache.HOMELESS]
    folder = tmp_path / f"schedbench-{os.getuid()}"
    assert list((folder / "lengths").iterdir())
    assert folder.stat().st_mode & 0o777 == 0o700
    if os.getuid() == 0:
        os.chown(folder, 12345, 12345)
        assert "set BENCH_CACHE" in refusal(lambda: count(data, bytes_tokenizer))


def test_the_reader_of_the_cache_takes_whatever_lies_there(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, meta=np.frombuffer(b"[" * 99_999, dtype=np.uint8), column_a=np.arange(3))
    assert "was corrupt" in str(cache.load(path, ("a",)))
    np.savez(path, meta=np.frombuffer(b"[]", dtype=np.uint8), column_a=np.array([{}], dtype=object))
    assert "was corrupt" in str(cache.load(path, ("a",)))
    assert sharegpt._KEPT == ("prompt_tokens", "output_tokens", "session", "turn")
