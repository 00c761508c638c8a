"""Whatever bytes a data set's file holds, it is read or refused in one line."""

import base64
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import dataset_files as made
from workloads.catalog import load_workload
from workloads.core.errors import WorkloadError
from workloads.text import qwen_vocabulary

Case = tuple[str, Path, dict[str, str]]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Case]]:
    folder = tmp_path_factory.mktemp("sets")
    lines = [base64.b64encode(bytes([byte])) + f" {byte}".encode() for byte in range(256)]
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_bytes(qwen_vocabulary.convert(b"\n".join(lines)))
    draw = random.Random(1)
    chats = list(made.lmsys_rows(20, seed=1))
    parquet = made.write_parquet(folder / "l.parquet", made.lmsys_schema(), chats, 10)
    json_lines = folder / "l.jsonl"
    json_lines.write_bytes(made.json_lines(chats[:4]))
    talks = [[turn | {"timestamp": 10**15 + i} for turn in made.chat(draw, 3, 5)] for i in range(10)]
    rows = [made.wildchat_row(i, talk) for i, talk in enumerate(talks)]
    wild = made.write_parquet(folder / "w.parquet", made.wildchat_schema(), rows, 5)
    tasks = {"a": [made.longbench_v1_row(i, "a", made.words(draw, 9, 30), "why?", ["so"]) for i in range(9)]}
    archive = made.write_longbench_zip(folder / "data.zip", tasks)
    options = {"tokenizer": str(tokenizer), "allow_truncated": "true"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("BENCH_CACHE", str(folder / "cache"))
        yield [
            ("lmsys", parquet, options),
            ("lmsys", json_lines, options),
            ("wildchat", wild, options | {"min_turns": "0", "order": "time"}),
            ("longbench", archive, options | {"chunk_max": "0"}),
        ]


@settings(max_examples=120, deadline=None)
@given(
    which=st.integers(0, 3),
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20), st.binary(max_size=6)), min_size=1, max_size=8),
)
def test_edited_files_are_read_or_refused(cases: list[Case], which: int, edits: list[tuple[float, int, bytes]]) -> None:
    name, path, options = cases[which]
    content = bytearray(path.read_bytes())
    for where, gone, new in edits:
        at = round(where * len(content))
        content[at : at + gone] = new
    edited = path.with_name(f"edited{path.suffix}")
    edited.write_bytes(content)
    told = "read"
    try:
        trace = load_workload(name, options | {"path": str(edited)}, requests=None, seed=0, model="")
        assert int(trace.prompt_tokens.min()) >= 1
    except WorkloadError as error:
        told = str(error)
    assert told.isprintable()
