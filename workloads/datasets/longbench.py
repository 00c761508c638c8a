"""LongBench v1 and v2: long contexts with a question, whole or in pieces as the published protocol sends them.

Counted and kept are the tokens of each record's context, question and answer; pieces are cut from those numbers,
so that another cut costs nothing. A piece is a run of the context's tokens, followed by the question.
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
from workloads.core.reading import spelled
from workloads.core.seeds import generator
from workloads.core.trace import Ints, Trace
from workloads.datasets import parquet
from workloads.datasets.counting import (
    Columns,
    Meta,
    Reading,
    TextRow,
    count_rows,
    counted,
    drop_empty,
    fault,
    usable_source,
)
from workloads.datasets.json_array import TruncatedFileError
from workloads.datasets.json_rows import read_json, stems
from workloads.datasets.shards import Layout, Shards
from workloads.text.tokenizer import build, digest_of, tokenizer_json

V1, V2 = "THUDM/LongBench", "THUDM/LongBench-v2"
LICENCES = {V1: "MIT, its repository's", V2: "Apache-2.0"}
_V1_KEYS = ("input", "context", "answers")
_V2_KEYS = ("question", "choice_A", "choice_B", "choice_C", "choice_D", "answer", "context")
# Only the context is in both.
LAYOUT = Layout(
    {"context": (), **dict.fromkeys((f"{key}?" for key in (*_V1_KEYS, *_V2_KEYS, "_id") if key != "context"), ())},
    (V2, V1),
)
KEPT = ("record", "context_tokens", "question_tokens", "output_tokens")
FACTS = frozenset({"records_read", "ids_that_occur_again"})
_SPLIT = re.compile(r"(train|test|validation)-\d{5}-of-\d{5}")
# Of a piece's tokens at least so many are context: a longer question leaves its record out, as published.
LEAST_CONTEXT = 100


@dataclass(frozen=True, slots=True)
class Pieces:
    """Prompts of `low` to `high` tokens, question included, cut from each context by `seed`; high 0: contexts whole."""

    low: int
    high: int
    seed: int


def _version(path: Path, where: str, keys: list[str]) -> str:
    """Which LongBench a record's keys tell."""
    for data_set, needed in ((V2, _V2_KEYS), (V1, _V1_KEYS)):
        if set(needed) <= set(keys):
            return data_set
    listed = ", ".join(spelled(key, 40) for key in keys[:20]) or "none"
    raise WorkloadError(
        f"{where}: neither LongBench v1 ({', '.join(_V1_KEYS)}) nor v2 ({', '.join(_V2_KEYS)}): found are {listed}"
    )


def texts_of(data_set: str, record: dict[str, Any]) -> tuple[Any, Any, Any]:
    """(context, what follows it in the prompt, answer) of a record.

    v2: the question and its four choices; v1: the input. v1's task instructions lie outside the data set and are
    not added; its answer is the first of those that count as right.
    """
    if data_set == V2:
        question, options = record["question"], [record[f"choice_{letter}"] for letter in "ABCD"]
        if not all(isinstance(text, str) for text in (question, *options)):
            return record["context"], None, record["answer"]
        choices = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCD", options, strict=True))
        return record["context"], f"\n\nQuestion: {question}\n\n{choices}\n\nAnswer:", record["answer"]
    answers = record["answers"]
    if isinstance(answers, list) and answers:
        answers = answers[0]
    answer = answers if isinstance(answers, str) else None
    # Some tasks (summaries) have a context and no input.
    question = "" if record["input"] in (None, "") else f"\n\n{record['input']}"
    return record["context"], f"{question}\n\nAnswer:", answer


# Which LongBench, the record (None where it lacks its keys), and where it stands.
LongBenchRecord = tuple[str, dict[str, Any] | None, str]


def _from_parquet(path: Path) -> Iterator[LongBenchRecord]:
    names = parquet.column_names(path)
    data_set = _version(path, spelled(path), names)
    keys = _V2_KEYS if data_set == V2 else _V1_KEYS
    for first, batch in parquet.read_batches(path, dict.fromkeys((*keys, "_id?"), ()), 16):
        columns = {name: parquet.strings(batch.column(name)) for name in batch.schema.names}
        for i in range(batch.num_rows):
            yield (
                data_set,
                {name: values[i] for name, values in columns.items()},
                f"{spelled(path)}, row {first + i + 1}",
            )


def _from_json(path: Path, only: frozenset[str]) -> Iterator[LongBenchRecord]:
    data_set = ""
    for row in read_json(path, only):
        record = row.value if isinstance(row.value, dict) else {}
        data_set = data_set or _version(path, row.where, list(record))
        keys = _V2_KEYS if data_set == V2 else _V1_KEYS
        yield data_set, record if set(keys) <= record.keys() else None, row.where


def _records(
    shards: Shards, only: frozenset[str], reading: Reading, allow_truncated: bool
) -> Iterator[LongBenchRecord]:
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


def _rows(shards: Shards, only: frozenset[str], reading: Reading, allow_truncated: bool) -> Iterator[TextRow]:
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
            reason = fault(what, text)
            if reason:
                reading.skipped[reason] += 1
                break
        else:
            yield TextRow((number, int(data_set == V2)), (context, follows, answer))


def _stems(path: Path) -> list[str]:
    # Mirrors keep a task in a folder of its name, in which every file is called the same.
    return [path.parent.name] if _SPLIT.match(path.name) else stems(path)


def _chosen(shards: Shards, tasks: str) -> tuple[Shards, frozenset[str]]:
    """The files and zip members of the tasks asked for.

    By default all but LongBench-E's, which repeat the others, where there are others.
    """
    task_of = [(path, stem) for path in shards.files for stem in _stems(path)]
    names = sorted({task for _, task in task_of})
    wanted = frozenset(tasks.split("/") if tasks else [task for task in names if not task.endswith("_e")] or names)
    unknown = sorted(wanted - set(names))
    if unknown:
        raise WorkloadError(f"longbench: there is no task {spelled(unknown[0], 40)}: found are {', '.join(names)}")
    files = tuple(dict.fromkeys(path for path, task in task_of if task in wanted))
    return dataclasses.replace(shards, files=files), wanted


def cut(context: int, question: int, pieces: Pieces, record: int) -> tuple[list[tuple[int, int]], str | None]:
    """(first token, tokens) of each piece of a context, and why something of it is left out, if so.

    A record's cuts depend on the seed and its number only. With `high` 0 the one piece is the whole context.
    """
    if not pieces.high:
        return [(0, context)], None
    low, high = pieces.low - question, pieces.high - question
    if low < LEAST_CONTEXT:
        return [], f"question that leaves no {LEAST_CONTEXT} tokens of context"
    draw = generator(pieces.seed, "pieces", record)
    made: list[tuple[int, int]] = []
    at = 0
    while at < context:
        size = min(int(draw.integers(low, high + 1)), context - at)
        if size < low:
            return made, "last piece of a context, too short"
        made.append((at, size))
        at += size
    return made, None


def texts(
    shards: Shards, tasks: str, pieces: Pieces, *, tokenizer: str, model: str, allow_truncated: bool, before: str
) -> Iterator[tuple[tuple[int, int], str]]:
    """(record, piece) and prompt of every request that `load` makes, in its order.

    A piece's text is cut at its tokens' edges; counted again with the question behind it, it may have a token or two
    more or fewer than the trace says.
    """
    shards, only = _chosen(shards, tasks)
    counting = build(tokenizer_json(tokenizer, model, before), tokenizer or model, before)
    for row in _rows(shards, only, Reading(), allow_truncated):
        record, (context, follows, _) = row.numbers[0], row.texts
        whole = counting.encode(context, add_special_tokens=False)
        question = len(counting.encode(follows, add_special_tokens=False))
        for number, (at, size) in enumerate(cut(len(whole), question, pieces, record)[0]):
            start, end = whole.offsets[at][0], whole.offsets[at + size - 1][1]
            yield (record, number), (context[start:end] if pieces.high else context) + follows


def _usable(columns: Columns, meta: Meta) -> bool:
    """Whether what the cache holds is what counting can have made."""
    smallest = min(int(columns[name].min()) for name in KEPT[1:]) if len(columns["record"]) else 0
    return smallest > 0 and meta.get("data_set") in LICENCES and usable_source(meta.get("source"), FACTS)


def load(
    shards: Shards, tasks: str, pieces: Pieces, *, tokenizer: str, model: str, allow_truncated: bool, before: str
) -> Trace:
    """The pieces (or whole contexts) of every record, answers uncapped, from the cache where they were counted before.

    `tasks` are names of v1's files between slashes, "" for all. Every request stands alone; its id is
    `RECORD-PIECE`, both from 0. Raises WorkloadError for what the user can mend.
    """
    shards, only = _chosen(shards, tasks)
    files = shards.source()
    content = tokenizer_json(tokenizer, model, before)
    tokenizer_sha = digest_of(content)
    kept = cache.lengths_path(
        str(files["file_sha256"]), tokenizer_sha, f"longbench 1 {'/'.join(sorted(only))} {allow_truncated}"
    )

    def anew() -> tuple[Columns, Meta]:
        reading = Reading()
        rows = _rows(shards, only, reading, allow_truncated)
        table = drop_empty(count_rows(rows, build(content, tokenizer or model, before), len(KEPT) + 1), 2, reading)
        if not len(table):
            raise WorkloadError(
                f"{spelled(shards.files[0].name)}: no record with context, question and answer "
                f"(skipped: {dict(reading.skipped)})"
            )
        record, version, *lengths = np.ascontiguousarray(table.T)
        meta = {"source": reading.as_source(), "data_set": V2 if version[0] else V1}
        return dict(zip(KEPT, (record, *lengths), strict=True)), meta

    columns, meta, notices = counted(kept, KEPT, _usable, anew)
    skipped = Counter(meta["source"]["skipped"])
    rows, prompt, ids = _cut_all(columns, pieces, skipped)
    source: dict[str, Any] = {
        "kind": "real",
        "data_set": meta["data_set"],
        "licence": LICENCES[meta["data_set"]],
        **files,
        "tokenizer": tokenizer or model,
        "tokenizer_sha256": tokenizer_sha,
        "records": len(columns["record"]),
        "chunks": dataclasses.asdict(pieces) if pieces.high else "whole contexts",
        **meta["source"],
        "skipped": dict(skipped),
    }
    if tasks:
        source["tasks"] = sorted(only)
    notices = [*shards.notices, *notices]
    if notices:
        source["notices"] = notices
    return Trace("longbench", prompt, columns["output_tokens"][rows], source, ids=ids)


def _cut_all(columns: Columns, pieces: Pieces, skipped: Counter[str]) -> tuple[list[int], Ints, tuple[str, ...]]:
    """Of every piece of every record the record's row, the prompt's tokens and the id; what is left out is counted.

    WorkloadError where no piece is left.
    """
    rows: list[int] = []
    prompt: list[int] = []
    ids: list[str] = []
    sizes = (columns[name].tolist() for name in KEPT[:3])
    for row, (record, context, question) in enumerate(zip(*sizes, strict=True)):
        made, left_out = cut(context, question, pieces, record)
        skipped.update([left_out] if left_out else [])
        for number, (_, size) in enumerate(made):
            rows.append(row)
            prompt.append(size + question)
            ids.append(f"{record}-{number}")
    if not rows:
        raise WorkloadError(
            f"longbench: no context has {pieces.low} tokens (skipped: {dict(skipped)}): lower chunk_min, or chunk_max=0"
        )
    return rows, np.array(prompt, np.int64), tuple(ids)
