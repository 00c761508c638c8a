"""Production traces: the real files exactly, other published forms by their columns, what is wrong in one line."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.runspec import RunSpec
from harness.drive.endpoint import Endpoint
from harness.engines.client import Client
from harness.engines.endpoint import EndpointEngine
from tests.support.places import SHARED
from workloads.catalog import load_workload
from workloads.core.arrivals import Closed
from workloads.core.errors import WorkloadError
from workloads.core.stream import Stream
from workloads.core.trace import Trace
from workloads.prompts.ids import TokenPrompts, safe_ids
from workloads.traces.formats import guess_format

TRACES = SHARED / "reference/traces"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
BURST_1 = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_2 = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n"


def load(path: Path, **options: str) -> Trace:
    return load_workload("file", {"path": str(path), **options}, requests=None, seed=0, model="m/m")


def put(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


def refusal(path: Path, **options: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(WorkloadError) as caught:
            load(path, **options)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 600
    return line


def real(name: str) -> Path:
    path = TRACES / name
    if not path.is_file():
        pytest.skip(f"{path} is not there: the real traces are shared material, not part of the project")
    return path


def times(trace: Trace) -> list[float]:
    assert trace.timestamp_s is not None
    return [float(one) for one in trace.timestamp_s]


def test_azures_real_file_exactly() -> None:
    trace = load(real("azure-2023-code.csv"))
    assert len(trace) == 8_819
    assert (int(trace.prompt_tokens.sum()), int(trace.output_tokens.sum())) == (18_059_974, 245_896)
    assert times(trace)[0] == 0.0
    # 18:17:03.9799600 to 19:14:19.9280160.
    assert times(trace)[-1] == 3435.948056
    assert trace.source["began"].startswith("2023-11-16T18:17:03.979960")
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (4808, 10)
    assert (trace.prompt_tokens[-1], trace.output_tokens[-1]) == (549, 173)
    assert trace.source["skipped"] == {}
    assert trace.source["format"] == "azure"
    assert "notes" not in trace.source


def test_mooncakes_real_file_exactly() -> None:
    trace = load(real("mooncake-conversation-4000.jsonl"))
    assert len(trace) == 4_000
    assert (int(trace.prompt_tokens.sum()), int(trace.output_tokens.sum())) == (53_249_359, 1_388_321)
    assert (times(trace)[0], times(trace)[-1]) == (0.0, 1301.999)
    assert trace.source["format"] == "mooncake"
    assert trace.blocks is not None
    assert trace.blocks.tokens == 512
    assert list(trace.blocks.ids[1]) == [0, *range(14, 28)]
    assert trace.blocks.check("t", trace.prompt_tokens) > 71_000


def test_equal_hash_ids_are_equal_prompts_on_the_wire(tmp_path: Path) -> None:
    path = put(
        tmp_path / "m.jsonl",
        '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 7, 9]}\n'
        '{"timestamp": 250, "input_length": 1300, "output_length": 5, "hash_ids": [0, 7, 10]}\n'
        '{"timestamp": 500, "input_length": 600, "output_length": 5, "hash_ids": [3, 7]}',
    )
    trace = load(path)
    assert times(trace) == [0.0, 0.25, 0.5]
    spec = RunSpec(gpu="unknown", model="m/m", policy="external", workload=f"file:{path}", engine="endpoint")
    stream = Stream(trace, Closed(1), None)
    engine = EndpointEngine(spec, stream, Endpoint("http://127.0.0.1:9"), Client(vocabulary=32_000))
    first, second, third = (one.tolist() for one in engine.requests.prompts())
    assert [len(first), len(second), len(third)] == [1100, 1300, 600]
    assert first[:1024] == second[:1024]
    assert first[1024] != second[1024]
    assert first[:1] != third[:1]
    assert first[512 : 512 + 88] == third[512:]
    assert trace.blocks is not None
    assert trace.blocks.shared_tokens(trace.prompt_tokens) == 1024
    plain = TokenPrompts(trace, 0, safe_ids(32_000))
    assert plain.ids(0)[:512].tolist() != plain.ids(1)[:512].tolist()


def test_blocks_are_part_of_the_digest_and_follow_their_rows(tmp_path: Path) -> None:
    rows = '{{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [{}, 2]}}\n'
    one = load(put(tmp_path / "m.jsonl", rows.format(1) + rows.format(3)))
    two = load(put(tmp_path / "m.jsonl", rows.format(1) + rows.format(1)))
    assert one.digest != two.digest
    assert one.blocks is not None
    taken = one.take(np.array([1])).blocks
    assert taken is not None
    assert list(taken.ids) == [(3, 2)]


@pytest.mark.parametrize("end", ["", "\r\n", "\n\n\n"])
def test_azure_of_2023_and_2024(tmp_path: Path, end: str) -> None:
    old = put(
        tmp_path / "a.csv", f"\ufeff{AZURE}2023-11-16 18:17:03.9799600,5,6\r\n2023-11-16 18:17:04.9799601,7,8{end}"
    )
    assert guess_format(old) == "azure"
    assert times(load(old)) == [0.0, 1.0000001]
    new = put(
        tmp_path / "b.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n\n2024-05-10 02:00:01+02:00,2399,6\n2024-05-10 00:00:02.5Z,76,15",
    )
    trace = load(new)
    assert times(trace) == [0.0, 0.99007, 2.49007]
    assert trace.source["began"] == "2024-05-10T00:00:00.009930000Z"


def test_burstgpt_in_both_versions(tmp_path: Path) -> None:
    old = load(
        put(tmp_path / "b.csv", f"{BURST_1}5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n")
    )
    assert old.prompt_tokens.tolist() == [472]
    assert old.source["skipped"] == {"failed requests (0 response tokens)": 1}
    assert old.source["models"] == {"ChatGPT": 1, "GPT-4": 1}
    assert old.session is None
    new = load(
        put(
            tmp_path / "b.csv",
            f"{BURST_2}100.0,u,3,GPT-4,10,20,30,Conversation log\n101.5,,,ChatGPT,11,21,32,API log\n"
            "102.0,u,9,GPT-4,12,22,34,Conversation log\n103.0,,,ChatGPT,13,23,36,API log\n",
        )
    )
    assert new.source["format"] == "burstgpt"
    assert times(new) == [0.0, 1.5, 2.0, 3.0]
    assert new.session is not None
    assert new.turn is not None
    assert len(set(new.session.tolist())) == 3
    assert new.session[0] == new.session[2]
    assert new.turn.tolist() == [0, 0, 1, 0]


def test_vidur_with_and_without_times(tmp_path: Path) -> None:
    timed = load(put(tmp_path / "v.csv", f"{VIDUR}0.0,591,140\n0.125,547.0,248\n"))
    assert times(timed) == [0.0, 0.125]
    assert timed.prompt_tokens.tolist() == [591, 547]
    lengths = load(put(tmp_path / "v.csv", "num_prefill_tokens,num_decode_tokens,num_total_tokens\n10,20,30\n"))
    assert lengths.timestamp_s is None
    assert lengths.source["format"] == "vidur"


def test_rows_without_tokens_are_skipped_and_counted(tmp_path: Path) -> None:
    trace = load(put(tmp_path / "v.csv", f"{VIDUR}0,0,5\n1,5,0\n2,5,5\n3,0,0\n4,6,6\n"))
    assert trace.source["skipped"] == {"0 prompt tokens": 2, "0 output tokens": 1}
    assert times(trace) == [0.0, 2.0], "seconds count from the first row kept"
    assert "no row has tokens in and out" in refusal(put(tmp_path / "v.csv", f"{VIDUR}0,0,5\n"))


def test_times_out_of_order_are_sorted_and_said(tmp_path: Path) -> None:
    trace = load(put(tmp_path / "v.csv", f"{VIDUR}5,1,1\n3,2,1\n4,3,1\n3,4,1\n"))
    assert trace.prompt_tokens.tolist() == [2, 4, 3, 1]
    assert times(trace) == [0.0, 0.0, 1.0, 2.0]
    assert trace.source["notes"] == ["v.csv: 2 rows are earlier than the row before them: sorted by time"]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("1700000000,5,5\n1700003600,5,5\n", "v.csv: in which unit are its times? 0.000278 requests/s if they are s"),
        ("".join(f"{i / 1e6},5,5\n" for i in range(50)), "1e+06 requests/s if they are s"),
        ("7,5,5\n7,5,5\n", "v.csv: all 2 rows have one time: everything is sent at once"),
    ],
)
def test_what_is_odd_about_times_is_said(tmp_path: Path, rows: str, told: str) -> None:
    (notice,) = load(put(tmp_path / "v.csv", VIDUR + rows)).source["notices"]
    assert told in notice


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            "TIMESTAMP,ContextTokens,Generated\n2023-11-16 18:17:03,1,2\n",
            "no column GeneratedTokens (did you mean Generated?): found TIMESTAMP, ContextTokens, Generated; "
            "format azure needs TIMESTAMP, ContextTokens, GeneratedTokens",
        ),
        (BURST_1.replace("Timestamp", "time"), "no column Timestamp"),
        (
            "num_prefill_tokens,decode\n1,2\n",
            "no column num_decode_tokens (did you mean decode?): found num_prefill_tokens, decode; format vidur needs",
        ),
        ("a,b\n1,2\n", "format not recognised: its first line is 'a, b'; known are jsonl, parquet, azure"),
        (VIDUR, "has a header and no row"),
        (VIDUR + "\n\n", "has a header and no row"),
        (VIDUR.strip(), "has a header and no row"),
        (f"{VIDUR}0,1,2\n1,3\n", "row 3: 2 values ('1,3'), the header has 3: is the file cut off?"),
        (
            f"{VIDUR}0,1,2\n\n1,3,4,5\n",
            "row 4: 4 values ('1,3,4,5'), the header has 3: a value with a comma needs quotes",
        ),
        (f"{VIDUR}0,1,2\n1,x,4\n", "row 3: num_prefill_tokens is 'x', not a whole number"),
        (f"{VIDUR}0,1,2\n\n1,-4,4\n", "row 4: num_prefill_tokens is '-4', not a whole number"),
        (f"{VIDUR}0,1,2.5\n", "row 2: num_decode_tokens is '2.5', not a whole number"),
        (f"{VIDUR}0,1,\n", "row 2: num_decode_tokens is '', not a whole number"),
        (f"{VIDUR}0,1,9999999999\n", "row 2: num_decode_tokens is '9999999999', above 1000000000"),
        (f"{VIDUR}nan,1,2\n", "row 2: arrived_at is 'nan', not a number of s"),
        (f"{VIDUR}1e12,1,2\n", "row 2: arrived_at is '1e12', beyond ±9e+09 s: say unit=ms"),
        ("num_prefill_tokens,num_prefill_tokens,num_decode_tokens\n1,2,3\n", "num_prefill_tokens stands there 2 times"),
        (f"{AZURE}yesterday,1,2\n", "row 2: TIMESTAMP is 'yesterday', not a date such as"),
        (f"{AZURE}1700000000,1,2\n", "row 2: TIMESTAMP is '1700000000', not a date such as"),
        (f"{AZURE}2023-02-30 00:00:00,1,2\n", "row 2: TIMESTAMP is '2023-02-30 00:00:00': no such date"),
        (f"{AZURE}2023-11-16 18:17:03,1,2\n2023-11-16 18:17:04Z,1,2\n", "with a time zone, other than the first row"),
        (f"{AZURE}2023-11-16 18:17:03Z,1,2\n2023-11-16 18:17:04,1,2\n", "with no time zone, other than the first row"),
        (f"{AZURE}2023-11-16 18:17:03,1,2\n2023-11-16 18:17", "row 3: 1 values"),
        ('{"timestamp": 0, "input_length": 5, "output": 6}', "row 1: no output_length (did you mean output?): found"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 6}\n{"timest', "row 2: not JSON"),
        ('{"timestamp": "0", "input_length": 5, "output_length": 6}', "row 1: timestamp is '0', not a number of mill"),
        ('{"timestamp": 0, "input_length": -5, "output_length": 6}', "row 1: input_length is -5"),
        (
            '{"timestamp": 0, "input_length": 5, "output_length": 6, "hash_ids": [1, 2]}',
            "row 1: 2 hash_ids, but a prompt of 5 tokens has 1 blocks of 512",
        ),
        ('{"timestamp": 0, "input_length": 5, "output_length": 6, "hash_ids": [-1]}', "is not between 0 and"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 6, "hash_ids": "0"}', "hash_ids is '0', not a list"),
        (
            '{"timestamp": 0, "input_length": 5, "output_length": 6, "hash_ids": [1]}\n'
            '{"timestamp": 0, "input_length": 5, "output_length": 6}',
            "row 2: lacks hash_ids, other than the rows before",
        ),
        ("\x1f\x8b\x08\x00", "is packed (gzip): unpack it first"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content.encode("latin-1") if content.startswith("\x1f") else content.encode())
    line = refusal(path)
    assert "t.csv" in line
    assert told in line


def test_a_cut_off_line_says_so(tmp_path: Path) -> None:
    path = put(tmp_path / "m.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 6}\n{"timestamp": 1, "inp')
    assert refusal(path).endswith("is the file cut off? fetch it again")


def test_the_format_can_be_given(tmp_path: Path) -> None:
    path = put(tmp_path / "t.csv", f"{VIDUR}0,1,2\n")
    assert len(load(path, format="vidur")) == 1
    assert "no column TIMESTAMP" in refusal(path, format="azure")
    for name in ("parquet", "mooncake", "jsonl", "burstgpt"):
        refusal(path, format=name)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(VIDUR.encode() + b"0,\xff,2\n")
    assert re.search(r"t\.csv.*(UTF8|not a whole number)", refusal(path))
    path.write_bytes(VIDUR.encode() + b'0,"1,2\n3,4,5\n')
    refusal(path)


def test_a_million_rows_load(tmp_path: Path) -> None:
    rows: Any = "\n".join(f"{i / 8},{i % 97 + 1},{i % 31 + 1}" for i in range(1_000_000))
    trace = load(put(tmp_path / "v.csv", VIDUR + rows))
    assert len(trace) == 1_000_000
    assert times(trace.take(np.array([0, 999_999]))) == [0.0, 999_999 / 8]
