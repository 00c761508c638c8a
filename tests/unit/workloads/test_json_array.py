import json
import re
import tracemalloc
from pathlib import Path

import pytest

from workloads.core.errors import WorkloadError
from workloads.datasets import json_array
from workloads.datasets.json_array import TruncatedFileError, read_array

RECORDS: list[object] = [
    {
        "id": "a_0",
        "conversations": [{"from": "human", "value": 'Größe "x" \\ \n'}, {"from": "gpt", "value": "日本 🙂"}],
    },
    {"t": True, "f": False, "n": None, "i": -12, "x": 1.5e-7, "list": [[], {}, [1, 2]], "e": ""},
    {"id": "lone \ud83d", "conversations": []},
    {"last": "record"},
]


def text_of(*, ascii_only: bool) -> tuple[bytes, list[int]]:
    """The array as bytes, and where each record ends."""
    content, ends = b" \n[", []
    for position, record in enumerate(RECORDS):
        only = ascii_only or record == RECORDS[2]
        content += b"\n  " + json.dumps(record, ensure_ascii=only, indent=2).encode()
        ends.append(len(content))
        content += b" ," if position + 1 < len(RECORDS) else b"\n"
    return content + b"]", ends


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.json"


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_every_truncation_is_named_and_gives_exactly_the_whole_records(
    path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, ascii_only: bool
) -> None:
    monkeypatch.setattr(json_array, "READ_BYTES", chunk)
    content, ends = text_of(ascii_only=ascii_only)
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        got: list[json_array.ArrayRecord] = []
        with pytest.raises(WorkloadError) as caught:
            got.extend(read_array(path))
        whole = sum(end <= cut for end in ends)
        assert [record.value for record in got] == RECORDS[:whole]
        if cut <= content.index(b"["):
            assert str(caught.value) == f"{path} is empty: nothing to replay"
            continue
        assert isinstance(caught.value, TruncatedFileError)
        assert caught.value.last_whole_record == whole
        assert caught.value.byte == (ends[whole - 1] if whole else content.index(b"[") + 1)
        for part in (str(path), f"number {whole},", f"byte {caught.value.byte};", "allow_truncated=true"):
            assert part in str(caught.value)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n  "])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_whole_file_gives_every_record_with_its_number_and_end(path: Path, start: bytes, end: bytes) -> None:
    content, ends = text_of(ascii_only=False)
    path.write_bytes(start + content + end)
    got = list(read_array(path))
    assert [record.value for record in got] == RECORDS
    assert [record.number for record in got] == [1, 2, 3, 4]
    assert [record.end_byte - len(start) for record in got] == ends


def test_an_empty_array_has_no_records(path: Path) -> None:
    path.write_bytes(b"[ ]\n")
    assert list(read_array(path)) == []


@pytest.mark.parametrize(
    ("content", "record", "byte"),
    [
        (b'[{"a": 1}, xx {"b": 2}, {"c": 3}]', 2, 11),
        (b'[{"a": 1} {"b": 2}]', 2, 10),
        (b'[{"a": 1}, {"b" 2}, {"c": 3}]', 2, 16),
        (b'[{"a": 1}, {"b": "\n"}, {"c": 3}]', 2, 18),
        (b'[{"a": 1}, ]', 2, 11),
        (b'[{"a": 1}] {"b": 2}', 2, 11),
        ('[{"ü": 1}, {"b": tru}, {"c": 3}]'.encode(), 2, 18),
        (b'[{"a": "\\q"}, {"c": 3}]', 1, 8),
        (b"[" + b"[" * 100_000 + b"]", 1, 1),
        (b"[" + b"9" * 5000 + b", 1]", 1, 1),
    ],
)
def test_garbage_names_record_and_byte_and_is_no_truncation(path: Path, content: bytes, record: int, byte: int) -> None:
    path.write_bytes(content)
    with pytest.raises(WorkloadError) as caught:
        list(read_array(path))
    assert not isinstance(caught.value, TruncatedFileError)
    assert f"record {record}:" in str(caught.value)
    assert f"corrupt at byte {byte}," in str(caught.value)
    assert "\n" not in str(caught.value)


def test_any_single_wrong_byte_is_read_or_told_in_one_line(path: Path) -> None:
    content, _ = text_of(ascii_only=False)
    for position in range(len(content)):
        for wrong in (b"@", b'"', b"}", b"\x00", b"\xff"):
            path.write_bytes(content[:position] + wrong + content[position + 1 :])
            said = str(path)  # a change inside a string may well leave the file whole
            try:
                list(read_array(path))
            except WorkloadError as error:
                said = str(error)
            assert str(path) in said
            assert "\n" not in said


@pytest.mark.parametrize("content", [b'{"a": 1}', b"PK\x03\x04", b"\xff\xfe[\x00]\x00", b"id,prompt\n"])
def test_what_is_no_array_is_told(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match="not a JSON array: byte 0 is"):
        list(read_array(path))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for bad in (tmp_path / "none.json", tmp_path):
        with pytest.raises(WorkloadError, match=re.escape(str(bad))):
            list(read_array(bad))


def test_an_endless_record_is_refused_before_memory_runs_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "READ_BYTES", 64)
    monkeypatch.setattr(json_array, "LONGEST_RECORD", 1000)
    path.write_bytes(b'[{"a": "' + b"x" * 5000 + b'"}]')
    with pytest.raises(WorkloadError, match="longer than 1000 characters"):
        list(read_array(path))


def test_memory_does_not_grow_with_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "READ_BYTES", 1 << 16)
    record = json.dumps({"value": "x" * 4000})
    path.write_text("[" + ",".join([record] * 2000) + "]")
    tracemalloc.start()
    assert sum(1 for _ in read_array(path)) == 2000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 8_000_000
    assert peak < 1_000_000
