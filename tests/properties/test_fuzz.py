"""Every parser of what strangers write ends well or with an error of the user's family, whatever the bytes.

BENCH_FUZZ_INPUTS gives each parser so many inputs (`make soak`: together a million), BENCH_FUZZ_SEED other ones.
"""

from __future__ import annotations

import os
import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import httptools
import pyarrow as pa
import pytest

from harness.core.errors import USER_ERRORS
from harness.core.host import read_host
from harness.core.masking import mask
from harness.core.records import REQUESTS
from harness.drive.conclude import conclude
from harness.drive.openai_stream import Answer
from harness.drive.retry_after import wait_s
from harness.drive.server_said import said_by
from harness.engines.serving.scraper import samples_of
from harness.profiles.files import load_gpu
from harness.report.document import runs_document
from harness.report.tables import show_table
from harness.runs.append_log import AppendLog, whole_batches
from harness.runs.run import load_run
from harness.runs.step_log import read_engine_log, read_step_log, unfinished
from harness.runs.tables import read_table
from harness.runs.writer import recover
from policies.catalog import canonical_policy, read_policy
from policies.core import STEP_COLUMNS, PolicyState
from policies.plugin.step_log import FINISH, StepLog
from tests.support.console import rendered
from tests.support.fuzz import spoilt, spoilt_json
from tests.support.models import write_bytes_tokenizer
from tests.support.runfactory import batch_of, request, write_toy
from workloads.catalog import load_workload
from workloads.core import options
from workloads.core.arrivals import parse_arrival

INPUTS = int(os.environ.get("BENCH_FUZZ_INPUTS", "25"))
SEED = int(os.environ.get("BENCH_FUZZ_SEED", "1"))
EVENT = b'data: {"id":"c","choices":[{"index":0,"text":" the","finish_reason":null,"token_ids":[7]}]}\n\n'
END = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":32,"completion_tokens":3}}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nRetry-After: 3\r\n\r\n"
ROW = b'{"id":"a","prompt_tokens":12,"output_tokens":5,"arrival_s":0.5,"session":"s","turn":0}\n'
TALK = b'[{"id":"x","conversations":[{"from":"human","value":"a b"},{"from":"gpt","value":"c"}]}]'
CSV = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.99,396,109\n"
MOONCAKE = b'{"timestamp":27482,"input_length":6955,"output_length":52,"hash_ids":[46,47,48]}\n'

Parser = Callable[[bytes, Path], object]


def answer(data: bytes, _: Path) -> None:
    read = Answer(4, told=True)
    for at in range(0, len(data), 50):
        read.feed(data[at : at + 50], at)
    read.end(len(data))
    assert read.output_tokens >= 0
    conclude(read, 4, True)
    said_by(data)


def http(data: bytes, _: Path) -> None:
    parser = httptools.HttpResponseParser(object())
    try:
        parser.feed_data(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return


def told_by_servers(data: bytes, _: Path) -> None:
    assert 0 <= wait_s(data, b"Sun, 06 Nov 1994 08:49:37 GMT", data, 1e9) < 1e9
    samples_of(data.decode(errors="replace"))
    mask(data.decode(errors="replace"))


def shown_run(path: Path) -> None:
    run = load_run(path)
    rendered(show_table(run))
    runs_document([run])


def run_json(data: bytes, path: Path) -> None:
    (path / "run.json").write_bytes(data)
    shown_run(path)


def summary_json(data: bytes, path: Path) -> None:
    (path / "summary.json").write_bytes(data)
    shown_run(path)


def table(data: bytes, path: Path) -> None:
    (path / "requests.parquet").write_bytes(data)
    read_table(path, "requests")


def log(data: bytes, path: Path) -> None:
    (path / "requests.arrows").write_bytes(data)
    try:
        for batch in whole_batches(path / "requests.arrows", 1000):
            batch.to_pylist()
    except (pa.ArrowException, UnicodeDecodeError):
        return


def step_log(data: bytes, path: Path) -> None:
    """What recovery makes of a log; of some, the recovery as well."""
    (path / "steps.log").write_bytes(data)
    unfinished(path / "steps.log")
    tables = read_engine_log(path, {"clock": {"origin_ns": 0}})
    if tables is not None:
        rows = batch_of(REQUESTS, [request(row, preemptions=None) for row in range(5)])
        assert sum(batch.num_rows for batch in tables["requests"](iter([rows]))) == 5
        list(tables["steps"](iter([])))
    if zlib.crc32(data) % 20 == 0:
        left = path.with_name("left.partial")
        shutil.copytree(path, left)
        done, _ = recover(left)
        assert load_run(done).requests().num_rows == 5
        shutil.rmtree(done)


def trace(data: bytes, path: Path, name: str = "t.jsonl", more: str = "") -> None:
    (path / name).write_bytes(data)
    named, given = options.split(f"file:{path / name}{more}")
    load_workload(named, given, requests=None, seed=1, model="Qwen/Qwen3-8B")


def conversations(data: bytes, path: Path) -> None:
    tokenizer = path / "tokenizer.json"
    if not tokenizer.exists():
        write_bytes_tokenizer(tokenizer)
    trace(data, path, "t.json", f",tokenizer={tokenizer}")


def gpu(data: bytes, path: Path) -> None:
    (path / "gpu.toml").write_bytes(data)
    load_gpu(str(path / "gpu.toml"))


def words(data: bytes, _: Path) -> None:
    text = data.decode(errors="replace")
    for parse in (
        parse_arrival,
        read_host,
        options.split,
        lambda one: canonical_policy(*read_policy(one)),
    ):
        try:
            parse(text)
        except USER_ERRORS:
            continue


SHIPPED = Path(__file__).parents[2] / "harness/profiles/gpus/l40s.toml"
CASES: dict[str, tuple[Parser, list[bytes]]] = {
    "answer": (answer, [EVENT * 3 + END, EVENT + b": ping\n\n" + END, b'{"error":{"message":"no"}}']),
    "http": (http, [HEAD + b"5\r\nabcde\r\n0\r\n\r\n", b"HTTP/1.1 429 No\r\nContent-Length: 2\r\n\r\n{}"]),
    "told by servers": (told_by_servers, [b"3", b"Sun, 06 Nov 1994 08:49:37 GMT", b'vllm:x{a="b"} 1\nb 2\n', b"key=a b://c"]),
    "trace": (trace, [ROW * 3, b"prompt_tokens,output_tokens\n1,2\n3,4\n"]),
    "conversations": (conversations, [TALK]),
    "azure": (lambda data, path: trace(data, path, "t.csv"), [CSV]),
    "mooncake": (lambda data, path: trace(data, path, "m.jsonl"), [MOONCAKE * 3]),
    "gpu": (gpu, [SHIPPED.read_bytes()]),
    "words": (words, [b"poisson:rate=3", b"closed:concurrency=8", b"t0=1ms,h=5us", b"eb:k=4", b"phases:10x5,20x3"]),
}  # fmt: skip


def try_all(name: str, parse: Parser, seeds: list[bytes], place: Path, spoil: Callable[..., bytes] = spoilt) -> None:
    rng = random.Random(f"{SEED} {name}")
    for i in range(INPUTS):
        data = spoil(rng.choice(seeds), rng)
        try:
            parse(data, place)
        except USER_ERRORS as error:
            line = str(error)
            assert line.splitlines() == [line]
        except Exception as error:
            pytest.fail(f"input {i} of {name}, seed {SEED}: {type(error).__name__}: {error}\n{data[:600]!r}")


@pytest.mark.parametrize("name", CASES)
def test_no_bytes_bring_a_parser_down(name: str, tmp_path: Path) -> None:
    try_all(name, *CASES[name], tmp_path)


@pytest.mark.parametrize(
    ("parse", "file", "spoil"),
    [
        (run_json, "run.json", spoilt_json),
        (run_json, "run.json", spoilt),
        (summary_json, "summary.json", spoilt_json),
        (table, "requests.parquet", spoilt),
    ],
)
def test_no_file_of_a_run_brings_its_reader_down(
    parse: Parser, file: str, spoil: Callable[..., bytes], tmp_path: Path
) -> None:
    path = write_toy(tmp_path / "runs", n=10)
    try_all(f"{file} {spoil.__name__}", parse, [(path / file).read_bytes()], path, spoil)


def test_no_log_brings_its_reader_down(tmp_path: Path) -> None:
    written = AppendLog(tmp_path / "x", REQUESTS)
    for some in (3, 2):
        written.add(batch_of(REQUESTS, [request(row) for row in range(some)]))
    written.close()
    try_all("log", log, [(tmp_path / "x").read_bytes()], tmp_path)


def test_no_step_log_costs_the_requests(tmp_path: Path) -> None:
    from harness.runs.writer import RunWriter
    from tests.support.runfactory import SPEC

    writer = RunWriter.create(tmp_path / "runs", SPEC, kind="measured", provenance={}, planned_requests=5)
    writer.learn(clock={"origin_ns": 0})
    writer.add_requests(batch_of(REQUESTS, [request(row, preemptions=None) for row in range(5)]))
    writer.close()
    killed = writer.partial.rename(tmp_path / "killed.partial")
    made = StepLog(tmp_path / "steps.log", {"policy": "v1"})
    made.state(PolicyState(k=3, mode="MB"))
    for t in range(4):
        made.step(tuple((dict.fromkeys(STEP_COLUMNS, 0) | {"t": 1000 * t, "phase": 1, "state": 0}).values()))
    made.event(FINISH, 5, 1, 2, 0, "cmpl-r-0-0-0123abcd")
    made.close()
    assert len(read_step_log(tmp_path / "steps.log", 0).rows) == 4
    try_all("step log", step_log, [(tmp_path / "steps.log").read_bytes()], killed)
