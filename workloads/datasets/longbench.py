"""LongBench v1 and v2: long contexts with a question, whole or in chunks as the published protocol sends them.

Counted and kept are the tokens of each record's context, question and answer; chunks are cut from those numbers,
so that another chunking costs nothing. A chunk is a run of the context's tokens, followed by the question.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.reading import shown
from workloads.core.seeds import generator
from workloads.core.trace import Trace
from workloads.datasets import parquet
from workloads.datasets.counting import (
    Columns,
    Meta,
    Reading,
    Row,
    count_rows,
    counted,
    drop_empty,
    fault,
    usable_source,
)
from workloads.datasets.json_array import TruncatedFileError
from workloads.datasets.json_rows import read_json, stems
from workloads.datasets.shards import Shards
from workloads.text.tokenizer import build, digest_of, tokenizer_json

V1, V2 = "THUDM/LongBench", "THUDM/LongBench-v2"
LICENCES = {V1: "MIT, its repository's", V2: "Apache-2.0"}
_V1_KEYS = ("input", "context", "answers")
_V2_KEYS = ("question", "choice_A", "choice_B", "choice_C", "choice_D", "answer", "context")
KEPT = ("record", "context_tokens", "question_tokens", "output_tokens")
FACTS = frozenset({"records_read", "ids_that_occur_again"})
_SPLIT = re.compile(r"(train|test|validation)-\d{5}-of-\d{5}")
# Of a chunk's tokens at least so many are context: a longer question leaves its record out, as published.
LEAST_CONTEXT = 100


@dataclass(frozen=True, slots=True)
class Chunks:
    """Prompts of `low` to `high` tokens, question included, cut from each context by `seed`; high 0: contexts whole."""

    low: int
    high: int
    seed: int


def _version(path: Path, where: str, found: list[str]) -> str:
    """Which LongBench a record's keys tell."""
    for data_set, keys in ((V2, _V2_KEYS), (V1, _V1_KEYS)):
        if set(keys) <= set(found):
            return data_set
    listed = ", ".join(shown(name, 40) for name in found[:20]) or "none"
    raise WorkloadError(
        f"{where}: neither LongBench v1 ({', '.join(_V1_KEYS)}) nor v2 ({', '.join(_V2_KEYS)}): found are {listed}"
    )


def texts_of(data_set: str, record: dict[str, Any]) -> tuple[Any, Any, Any]:
    """(context, what follows it in the prompt, answer) of a record.

    v2: the question and its four choices; v1: the input. v1's task instructions lie outside the data set and are
    not added; its answer is the first of those that count as right.
    """
    if data_set == V2:
        asked = [record["question"], *(record[f"choice_{letter}"] for letter in "ABCD")]
        if not all(isinstance(one, str) for one in asked):
            return record["context"], None, record["answer"]
        choices = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCD", asked[1:], strict=True))
        return record["context"], f"\n\nQuestion: {asked[0]}\n\n{choices}\n\nAnswer:", record["answer"]
    answers = record["answers"]
    answer = answers[0] if isinstance(answers, list) and answers else answers if isinstance(answers, str) else None
    follows = record["input"]
    # Some tasks (summaries) have a context and no input.
    asked_for = "" if follows is None or follows == "" else f"\n\n{follows}"
    return record["context"], f"{asked_for}\n\nAnswer:", answer


# Which LongBench, the record (None where it lacks its keys), and where it stands.
Record = tuple[str, dict[str, Any] | None, str]


def _from_parquet(path: Path) -> Iterator[Record]:
    names = parquet.column_names(path)
    data_set = _version(path, shown(path), names)
    keys = _V2_KEYS if data_set == V2 else _V1_KEYS
    for first, batch in parquet.read_batches(path, dict.fromkeys((*keys, "_id?"), ()), 16):
        columns = {name: parquet.strings(batch.column(name)) for name in batch.schema.names}
        for i in range(batch.num_rows):
            yield data_set, {name: values[i] for name, values in columns.items()}, f"{shown(path)}, row {first + i + 1}"


def _from_json(path: Path, only: frozenset[str]) -> Iterator[Record]:
    data_set = ""
    for row in read_json(path, only):
        found = row.value if isinstance(row.value, dict) else {}
        data_set = data_set or _version(path, row.where, list(found))
        keys = _V2_KEYS if data_set == V2 else _V1_KEYS
        yield data_set, found if set(keys) <= found.keys() else None, row.where


def _records(shards: Shards, only: frozenset[str], reading: Reading, allow_truncated: bool) -> Iterator[Record]:
    for path in shards.files:
        if path.suffix.lower() == ".parquet":
            yield from _from_parquet(path)
            continue
        try:
            yield from _from_json(path, only)
        except TruncatedFileError as cut:
            if not allow_truncated:
                raise
            reading.truncated = {"last_whole_record": cut.last_whole_record, "byte": cut.byte}


def _rows(shards: Shards, only: frozenset[str], reading: Reading, allow_truncated: bool) -> Iterator[Row]:
    data_sets: set[str] = set()
    seen: set[str] = set()
    for number, (data_set, record, where) in enumerate(_records(shards, only, reading, allow_truncated)):
        data_sets.add(data_set)
        if len(data_sets) > 1:
            raise WorkloadError(f"{where}: LongBench v1 and v2 side by side: give one of them")
        reading.facts["records_read"] = number + 1
        if record is None:
            reading.skipped["record without its keys"] += 1
            continue
        key = record.get("_id")
        if isinstance(key, str):
            reading.facts["ids_that_occur_again"] += key in seen
            seen.add(key)
        context, follows, answer = texts_of(data_set, record)
        for what, text in (("context", context), ("question", follows), ("answer", answer)):
            if reason := fault(what, text):
                reading.skipped[reason] += 1
                break
        else:
            yield Row((number, int(data_set == V2)), (context, follows, answer))


def _stems(path: Path) -> list[str]:
    # Mirrors keep a task in a folder of its name, in which every file is called the same.
    return [path.parent.name] if _SPLIT.match(path.name) else stems(path)


def _chosen(shards: Shards, tasks: str) -> tuple[Shards, frozenset[str]]:
    """The files and zip members of the tasks asked for; by default all but LongBench-E's, which repeat the others."""
    found = [(path, stem) for path in shards.files for stem in _stems(path)]
    names = sorted({stem for _, stem in found})
    asked = frozenset(tasks.split("/")) if tasks else frozenset(one for one in names if not one.endswith("_e"))
    if unknown := sorted(asked - set(names)):
        raise WorkloadError(f"longbench: there is no task {shown(unknown[0], 40)}: found are {', '.join(names)}")
    files = tuple(dict.fromkeys(path for path, stem in found if stem in asked))
    return dataclasses.replace(shards, files=files), asked


def pieces(context: int, question: int, chunks: Chunks, record: int) -> tuple[list[tuple[int, int]], str | None]:
    """(first token, tokens) of each chunk of a context, and why something of it is left out, if so.

    A record's cuts depend on the seed and its number only. Without chunking the one piece is the whole context.
    """
    if not chunks.high:
        return [(0, context)], None
    low, high = chunks.low - question, chunks.high - question
    if low < LEAST_CONTEXT:
        return [], f"question that leaves no {LEAST_CONTEXT} tokens of context"
    draw = generator(chunks.seed, "chunks", record)
    found: list[tuple[int, int]] = []
    at = 0
    while at < context:
        size = min(int(draw.integers(low, high + 1)), context - at)
        if size < low:
            return found, "last piece of a context, too short"
        found.append((at, size))
        at += size
    return found, None


def texts(
    shards: Shards, tasks: str, chunks: Chunks, *, tokenizer: str, model: str, allow_truncated: bool, asked: str
) -> Iterator[tuple[tuple[int, int], str]]:
    """(record, chunk) and prompt of every request that `load` makes, in its order.

    A chunk's text is cut at its tokens' edges; counted again with the question behind it, it may have a token or two
    more or fewer than the trace says.
    """
    shards, only = _chosen(shards, tasks)
    count = build(tokenizer_json(tokenizer, model, asked), tokenizer or model, asked)
    for row in _rows(shards, only, Reading(), allow_truncated):
        record, (context, follows, _) = row.numbers[0], row.texts
        whole = count.encode(context, add_special_tokens=False)
        question = len(count.encode(follows, add_special_tokens=False))
        for number, (at, size) in enumerate(pieces(len(whole), question, chunks, record)[0]):
            start, end = whole.offsets[at][0], whole.offsets[at + size - 1][1]
            yield (record, number), (context[start:end] if chunks.high else context) + follows


def _usable(columns: Columns, meta: Meta) -> bool:
    smallest = min((int(columns[name].min()) for name in KEPT[1:]), default=0) if len(columns["record"]) else 0
    return smallest > 0 and meta.get("data_set") in LICENCES and usable_source(meta.get("source"), FACTS)


def load(
    shards: Shards, tasks: str, chunks: Chunks, *, tokenizer: str, model: str, allow_truncated: bool, asked: str
) -> Trace:
    """The chunks (or whole contexts) of every record, answers uncapped, from the cache where they were counted before.

    `tasks` are names of v1's files between slashes, "" for all. Every request stands alone; its id is
    `RECORD-CHUNK`, both from 0. Raises WorkloadError for what the user can mend.
    """
    shards, only = _chosen(shards, tasks)
    files = shards.source()
    content = tokenizer_json(tokenizer, model, asked)
    tokenizer_sha = digest_of(content)
    kept = cache.lengths_path(
        str(files["file_sha256"]), tokenizer_sha, f"longbench 1 {'/'.join(sorted(only))} {allow_truncated}"
    )

    def anew() -> tuple[Columns, Meta]:
        reading = Reading()
        rows = _rows(shards, only, reading, allow_truncated)
        table = drop_empty(count_rows(rows, build(content, tokenizer or model, asked), len(KEPT) + 1), 2, reading)
        if not len(table):
            told = shown(shards.files[0].name)
            raise WorkloadError(
                f"{told}: no record with context, question and answer (skipped: {dict(reading.skipped)})"
            )
        record, version, *lengths = np.ascontiguousarray(table.T)
        meta = {"source": reading.told(), "data_set": V2 if version[0] else V1}
        return dict(zip(KEPT, (record, *lengths), strict=True)), meta

    columns, meta, notices = counted(kept, KEPT, _usable, anew)
    record, context, question, output = (columns[name] for name in KEPT)
    skipped = Counter(meta["source"]["skipped"])
    rows: list[int] = []
    prompt: list[int] = []
    ids: list[str] = []
    for row, sizes in enumerate(zip(record.tolist(), context.tolist(), question.tolist(), strict=True)):
        found, left_out = pieces(sizes[1], sizes[2], chunks, sizes[0])
        skipped.update([left_out] if left_out else [])
        for number, (_, size) in enumerate(found):
            rows.append(row)
            prompt.append(size + sizes[2])
            ids.append(f"{sizes[0]}-{number}")
    if not rows:
        raise WorkloadError(
            f"longbench: no context has {chunks.low} tokens (skipped: {dict(skipped)}): lower chunk_min, or chunk_max=0"
        )
    source: dict[str, Any] = {
        "kind": "real",
        "data_set": meta["data_set"],
        "licence": LICENCES[meta["data_set"]],
        **files,
        "tokenizer": tokenizer or model,
        "tokenizer_sha256": tokenizer_sha,
        "records": len(record),
        "chunks": {"low": chunks.low, "high": chunks.high, "seed": chunks.seed} if chunks.high else "whole contexts",
        **meta["source"],
        "skipped": dict(skipped),
    }
    if tasks:
        source["tasks"] = sorted(only)
    if notices := [*shards.notices, *notices]:
        source["notices"] = notices
    return Trace("longbench", np.array(prompt, np.int64), output[rows], source, ids=tuple(ids))
