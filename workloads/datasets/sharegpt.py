"""ShareGPT, V3 and V4.3: human→gpt pairs of the real file, counted with a tokenizer.

A pair is a human turn whose next turn is the model's, by role and not by position; system turns between
are skipped. Each pair stands alone: its own text, no chat template, no history (the published protocol
sends every pair as a single turn).
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.reading import open_regular, spelled
from workloads.core.trace import Trace
from workloads.datasets import parquet
from workloads.datasets.chat import pairs_of
from workloads.datasets.counting import Columns, Meta, Reading, TextRow, count_rows, counted, drop_empty, usable_source
from workloads.datasets.json_array import TruncatedFileError, read_array
from workloads.datasets.json_rows import read_json
from workloads.datasets.shards import Layout
from workloads.text.tokenizer import build, digest_of, tokenizer_json

HUB_DATASET = "anon8231489123/ShareGPT_Vicuna_unfiltered"
HUB_FILE = "ShareGPT_V3_unfiltered_cleaned_split.json"
# V4.3 is V3 cleaned further, in the same form.
HUB_DATASET_V43 = "Aeala/ShareGPT_Vicuna_unfiltered"
HUB_FILES = re.compile(r"^ShareGPT_V(3|4\.3)_unfiltered_cleaned_split\.json$")
DATA_SETS = (HUB_DATASET, HUB_DATASET_V43)
AGAIN = "ids_that_occur_again"
_KEPT = ("prompt_tokens", "output_tokens", "session", "turn")
# Where a record keeps its turns, and a turn its role and text, by who wrote the file.
TURNS = ("conversations", "messages", "conversation")
_ROLE_AND_TEXT = (("from", "value"), ("role", "content"))
_FIELDS = tuple(f"{field}?" for fields in _ROLE_AND_TEXT for field in fields)
LAYOUT = Layout({**dict.fromkeys((f"{name}?" for name in TURNS), _FIELDS), "id?": ()}, DATA_SETS, HUB_FILES)


class ShareGptPair(NamedTuple):
    """One request's text: conversation number and pair number in it, both from 0."""

    session: int
    turn: int
    prompt: str
    answer: str


def conversation_pairs(record: Any, skipped: Counter[str]) -> Iterator[tuple[str, str]]:
    """The usable (prompt, answer) pairs of one record, in order; what is not usable is counted by reason."""
    turns = turns_of(record)
    if turns is None:
        skipped["record without a list of conversations"] += 1
        return
    if not turns:
        skipped["empty conversation"] += 1
    for pair in pairs_of(map(_role_and_text, turns), skipped):
        yield pair.prompt, pair.answer


def turns_of(record: Any) -> list[Any] | None:
    """The turns of a record, under whichever of their names it has a list; None where it has none."""
    lists = (record.get(name) for name in TURNS) if isinstance(record, dict) else ()
    return next((turns for turns in lists if isinstance(turns, list)), None)


def _role_and_text(turn: Any) -> tuple[Any, Any]:
    """A turn's role and text, each None where it has none; parts of text are put together."""
    if not isinstance(turn, dict):
        return None, None
    role, text = next(((turn.get(who), turn.get(what)) for who, what in _ROLE_AND_TEXT if who in turn), (None, None))
    if isinstance(text, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in text]
        texts = [part for part in parts if isinstance(part, str)]
        return role, "".join(texts) if texts and len(texts) == len(parts) else None
    return role, text


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    """The records of a JSON array, of JSON lines, or of a parquet file, with their numbers from 0.

    Raises TruncatedFileError where JSON ends inside a record, and WorkloadError where the file is corrupt.
    """
    with open_regular(path) as file:
        packed = file.read(4) == b"PAR1"
    if packed:
        names = [name for name in parquet.column_names(path) if name in (*TURNS, "id")]
        for first, batch in parquet.read_batches(path, dict.fromkeys(names, ())):
            yield from enumerate(batch.to_pylist(), first)
        return
    for row in read_json(path):
        yield row.number - 1, row.value


def read_pairs(path: Path, reading: Reading, allow_truncated: bool) -> Iterator[ShareGptPair]:
    """Every usable pair in file order, filling `reading` on the way.

    Raises WorkloadError where the file is corrupt, or cut off and `allow_truncated` is not set.
    """
    taken: set[str] = set()
    try:
        for session, record in _records(path):
            pairs = conversation_pairs(record, reading.skipped)
            turn = -1
            for turn, (prompt, answer) in enumerate(pairs):
                yield ShareGptPair(session, turn, prompt, answer)
            if turn >= 0:
                reading.names[session] = _own_name(record.get("id"), session, taken, reading)
    except TruncatedFileError as cut:
        if not allow_truncated:
            raise
        reading.truncated = {"last_whole_record": cut.last_whole_record, "byte": cut.byte}


def _own_name(id_: Any, session: int, taken: set[str], reading: Reading) -> str:
    """The conversation's id where it can serve as a name, and one that no other has: then it is `taken`."""
    usable = isinstance(id_, str) and id_ != "" and id_.isprintable()
    name = str(id_) if usable else f"conversation-{session}"
    # The wild file has ids twice: the conversation's number sets them apart.
    if name in taken:
        reading.facts[AGAIN] += 1
    while name in taken:
        name = f"{name}#{session}"
    taken.add(name)
    return name


def _check_end(path: Path) -> None:
    """Raise for an array that does not end as one does, before anything is tokenized."""
    with open_regular(path) as file:
        if not file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
            return
        file.seek(max(0, file.seek(0, io.SEEK_END) - 4096))
        if not file.read().rstrip().endswith(b"]"):
            for _ in read_array(path):
                pass


def count(
    path: Path, tokenizer_content: bytes, tokenizer_name: str, *, allow_truncated: bool, before: str = ""
) -> Trace:
    """Prompt and answer lengths of every pair, uncapped and unfiltered; costs a minute for the whole file."""
    tokenizer = build(tokenizer_content, tokenizer_name, before)
    if not allow_truncated:
        _check_end(path)
    reading = Reading()
    pairs = read_pairs(path, reading, allow_truncated)
    table = count_rows((TextRow(pair[:2], pair[2:]) for pair in pairs), tokenizer, len(_KEPT))
    table = drop_empty(table, 2, reading)
    if not len(table) and not reading.skipped:
        raise WorkloadError(f"{spelled(path)} is empty: nothing to replay")
    if not len(table):
        raise WorkloadError(
            f"{spelled(path)}: holds no human→gpt pair: nothing to replay (skipped: {dict(reading.skipped)})"
        )
    session, turn, prompt, output = np.ascontiguousarray(table.T)
    ids = tuple(f"{reading.names[int(s)]}-{int(t)}" for s, t in zip(session, turn, strict=True))
    return Trace("sharegpt", prompt, output, reading.as_source(), session=session, turn=turn, ids=ids)


def _usable(columns: Columns, meta: Meta) -> bool:
    """Whether what the cache holds is what `count` can have made."""
    rows = len(columns["prompt_tokens"])
    if not rows or min(int(columns[name].min()) for name in ("prompt_tokens", "output_tokens")) < 1:
        return False
    ids = meta.get("ids")
    return (
        usable_source(meta.get("source"), frozenset({AGAIN}))
        and isinstance(ids, list)
        and len(ids) == rows
        and all(isinstance(name, str) for name in ids)
        and len(set(ids)) == rows
    )


def load(
    path: Path, *, tokenizer: str, model: str, allow_truncated: bool, before: str = "sharegpt:path=FILE,"
) -> Trace:
    """Every pair of the file with its lengths, uncapped, from the cache where they were counted before.

    `before` is how the options before `tokenizer` were written, for errors to say.
    Raises WorkloadError for a file or tokenizer that is missing, corrupt, or cut off (unless allowed).
    """
    file_sha = cache.file_digest(path)
    content = tokenizer_json(tokenizer, model, before)
    tokenizer_sha = digest_of(content)
    kept = cache.lengths_path(file_sha, tokenizer_sha, "turns of from or role")

    def anew() -> tuple[Columns, Meta]:
        trace = count(path, content, tokenizer or model, allow_truncated=allow_truncated, before=before)
        return {name: getattr(trace, name) for name in _KEPT}, {"source": trace.source, "ids": trace.ids}

    columns, meta, notices = counted(kept, _KEPT, _usable, anew)
    cut = meta["source"].get("truncated")
    if cut and not allow_truncated:
        raise TruncatedFileError(path, cut["last_whole_record"], cut["byte"])
    source = {
        "kind": "real",
        "data_set": HUB_DATASET_V43 if "V4.3" in path.name else HUB_DATASET,
        "licence": "see the data set's page: conversations that people shared in public",
        "file": spelled(path.name),
        "file_sha256": file_sha,
        "tokenizer": tokenizer or model,
        "tokenizer_sha256": tokenizer_sha,
        "pairs_in_file": len(meta["ids"]),
        **meta["source"],
    }
    if notices:
        source["notices"] = notices
    prompt, output, session, turn = (columns[name] for name in _KEPT)
    return Trace("sharegpt", prompt, output, source, session=session, turn=turn, ids=tuple(meta["ids"]))
