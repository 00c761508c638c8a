"""ShareGPT: human→gpt pairs of the real file, counted with a tokenizer.

A pair is a human turn whose next turn is the model's, by role and not by position; system turns between
are skipped. Each pair stands alone: its own text, no chat template, no history (the published protocol
sends every pair as a single turn).
"""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workloads import cache
from workloads.datasets.json_array import TruncatedFileError, read_array
from workloads.errors import WorkloadError
from workloads.reading import open_regular, shown
from workloads.tokenizer import build, digest_of, tokenizer_json
from workloads.trace import Ints, Trace

HUB_DATASET = "anon8231489123/ShareGPT_Vicuna_unfiltered"
HUB_FILE = "ShareGPT_V3_unfiltered_cleaned_split.json"
HUMAN = frozenset({"human", "user"})
MODEL = frozenset({"gpt", "chatgpt", "assistant", "bing", "bard", "model"})
SYSTEM = frozenset({"system"})
# Enough text for one call of the tokenizer to be worth it, little enough to hold.
BATCH_CHARACTERS = 1 << 20
_KEPT = ("prompt_tokens", "output_tokens", "session", "turn")


class Pair(NamedTuple):
    """One request's text: conversation number and pair number in it, both from 0."""

    session: int
    turn: int
    prompt: str
    answer: str


@dataclass(slots=True)
class Reading:
    """What a pass over the file leaves besides the pairs: names, what was skipped, where it was cut off."""

    names: dict[int, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    truncated: dict[str, int] | None = None


def _fault(prompt: Any, answer: Any) -> str | None:
    """Why a pair cannot be used, None where it can."""
    for what, text in (("prompt", prompt), ("answer", answer)):
        if not isinstance(text, str):
            return f"{what} without text"
        if not text.strip():
            return f"empty {what}"
        try:
            text.encode()
        except UnicodeEncodeError:
            return f"{what} is not valid Unicode"
    return None


def conversation_pairs(record: Any, skipped: Counter[str]) -> Iterator[tuple[str, str]]:
    """The usable (prompt, answer) pairs of one record, in order; what is not usable is counted by reason."""
    turns = record.get("conversations") if isinstance(record, dict) else None
    if not isinstance(turns, list):
        skipped["record without a list of conversations"] += 1
        return
    prompt: Any = None
    waiting = False
    for turn in turns:
        role = turn.get("from") if isinstance(turn, dict) else None
        role = role.strip().lower() if isinstance(role, str) else None
        if role in SYSTEM:
            continue
        if role in MODEL and waiting:
            if reason := _fault(prompt, turn.get("value")):
                skipped[reason] += 1
            else:
                yield prompt, turn["value"]
            waiting = False
            continue
        if waiting:
            skipped["prompt without an answer"] += 1
        waiting = role in HUMAN
        if waiting:
            prompt = turn.get("value")
        else:
            skipped["answer without a prompt" if role in MODEL else "turn of an unknown role"] += 1
    if waiting:
        skipped["prompt without an answer"] += 1


def read_pairs(path: Path, reading: Reading, allow_truncated: bool = False) -> Iterator[Pair]:
    """Every usable pair in file order, filling `reading` on the way.

    Raises WorkloadError where the file is corrupt, or cut off and `allow_truncated` is not set.
    """
    taken: set[str] = set()
    try:
        for record in read_array(path):
            session = record.number - 1
            pairs = conversation_pairs(record.value, reading.skipped)
            turn = -1
            for turn, (prompt, answer) in enumerate(pairs):
                yield Pair(session, turn, prompt, answer)
            if turn >= 0:
                name = record.value.get("id")
                usable = isinstance(name, str) and name != "" and name.isprintable()
                name = name if usable else f"conversation-{session}"
                # The wild file has ids twice: the conversation's number sets them apart.
                while name in taken:
                    name = f"{name}#{session}"
                taken.add(name)
                reading.names[session] = name
    except TruncatedFileError as cut:
        if not allow_truncated:
            raise
        reading.truncated = {"last_whole_record": cut.last_whole_record, "byte": cut.byte}


def _batches(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    batch: list[Pair] = []
    held = 0
    for pair in pairs:
        batch.append(pair)
        held += len(pair.prompt) + len(pair.answer)
        if held >= BATCH_CHARACTERS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _check_end(path: Path) -> None:
    """Raise for a file that does not end as an array does, before anything is tokenized."""
    with open_regular(path) as file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - 4096))
        if not file.read().rstrip().endswith(b"]"):
            for _ in read_array(path):
                pass


def count(
    path: Path, tokenizer_content: bytes, tokenizer_name: str, *, allow_truncated: bool, asked: str = ""
) -> Trace:
    """Prompt and answer lengths of every pair, uncapped and unfiltered; costs a minute for the whole file."""
    tokenizer = build(tokenizer_content, tokenizer_name, asked)
    if not allow_truncated:
        _check_end(path)
    reading = Reading()
    rows: list[Ints] = []
    for batch in _batches(read_pairs(path, reading, allow_truncated)):
        texts = list(itertools.chain.from_iterable((pair.prompt, pair.answer) for pair in batch))
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        tokens = np.array([len(one) for one in encoded], dtype=np.int64).reshape(-1, 2)
        where = np.array([pair[:2] for pair in batch], dtype=np.int64)
        rows.append(np.hstack([where, tokens]))
    table = np.concatenate(rows) if rows else np.empty((0, 4), dtype=np.int64)
    whole = (table[:, 2:] > 0).all(axis=1)
    if not whole.all():
        reading.skipped["no tokens"] += int((~whole).sum())
    if not whole.any():
        raise WorkloadError(
            f"{shown(path)}: holds no human→gpt pair: nothing to replay (skipped: {dict(reading.skipped)})"
        )
    session, turn, prompt, output = np.ascontiguousarray(table[whole].T)
    source: dict[str, Any] = {"skipped": dict(sorted(reading.skipped.items()))}
    if reading.truncated:
        source["truncated"] = reading.truncated
    ids = tuple(f"{reading.names[int(s)]}-{int(t)}" for s, t in zip(session, turn, strict=True))
    return Trace("sharegpt", prompt, output, source, session=session, turn=turn, ids=ids)


def _usable(columns: dict[str, Ints], meta: dict[str, Any]) -> bool:
    """Whether what the cache tells is what `count` can have made."""
    rows = len(columns["prompt_tokens"])
    if not rows or min(int(columns[name].min()) for name in ("prompt_tokens", "output_tokens")) < 1:
        return False
    source, ids = meta.get("source"), meta.get("ids")
    if not isinstance(source, dict) or not source.keys() <= {"skipped", "truncated"}:
        return False
    skipped, cut = source.get("skipped"), source.get("truncated", {"last_whole_record": 0, "byte": 0})
    return (
        isinstance(ids, list)
        and len(ids) == rows
        and all(isinstance(name, str) for name in ids)
        and len(set(ids)) == rows
        and isinstance(skipped, dict)
        and all(type(one) is int for one in skipped.values())
        and isinstance(cut, dict)
        and cut.keys() == {"last_whole_record", "byte"}
        and all(type(one) is int for one in cut.values())
    )


def load(path: Path, *, tokenizer: str, model: str, allow_truncated: bool, asked: str = "sharegpt:path=FILE,") -> Trace:
    """Every pair of the file with its lengths, uncapped, from the cache where they were counted before.

    `asked` is how the options before `tokenizer` were written, for errors to say.
    Raises WorkloadError for a file or tokenizer that is missing, corrupt, or cut off (unless allowed).
    """
    file_sha = cache.file_digest(path)
    content = tokenizer_json(tokenizer, model, asked)
    tokenizer_sha = digest_of(content)
    kept = cache.lengths_path(file_sha, tokenizer_sha)
    notices: list[str | None] = [cache.homeless()]
    found = cache.load(kept, _KEPT)
    if isinstance(found, tuple) and not _usable(*found):
        found = f"{shown(kept)} was corrupt: counted again and written anew"
    if isinstance(found, tuple):
        columns, meta = found
        if (cut := meta["source"].get("truncated")) and not allow_truncated:
            raise TruncatedFileError(path, cut["last_whole_record"], cut["byte"])
    else:
        trace = count(path, content, tokenizer or model, allow_truncated=allow_truncated, asked=asked)
        columns = {name: getattr(trace, name) for name in _KEPT}
        meta = {"source": trace.source, "ids": trace.ids}
        notices += [found, cache.save(kept, columns, meta)]
    source = {
        "kind": "real",
        "data_set": HUB_DATASET,
        "file": shown(path.name),
        "file_sha256": file_sha,
        "tokenizer": tokenizer or model,
        "tokenizer_sha256": tokenizer_sha,
        "pairs_in_file": len(meta["ids"]),
        **meta["source"],
    }
    if any(notices):
        source["notices"] = [notice for notice in notices if notice]
    prompt, output, session, turn = (columns[name] for name in _KEPT)
    return Trace("sharegpt", prompt, output, source, session=session, turn=turn, ids=tuple(meta["ids"]))
