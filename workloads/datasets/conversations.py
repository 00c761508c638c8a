"""Chat data sets of (role, content) turns, one conversation a row: WildChat, LMSYS-Chat-1M, NuminaMath.

Every usable pair of turns becomes one request, counted by its own text: no chat template, no system turn, no
history (`filters.with_history` puts that before it, as it was replayed).
"""

from __future__ import annotations

import dataclasses
import json
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.reading import spelled
from workloads.core.trace import Ints, Trace
from workloads.datasets import parquet
from workloads.datasets.chat import ChatPair, pairs_of
from workloads.datasets.counting import Columns, Meta, Reading, TextRow, count_rows, counted, drop_empty, usable_source
from workloads.datasets.json_array import TruncatedFileError
from workloads.datasets.json_rows import JsonRow, read_json
from workloads.datasets.shards import Layout, Shards
from workloads.text.tokenizer import build, digest_of, tokenizer_json

KEPT = ("session", "turn", "stamp_us", "prompt_tokens", "output_tokens")
NO_STAMP = -(1 << 63)
# Beyond the year 2255 lies garbage, or another unit.
LARGEST_STAMP_US = 9 * 10**15
# Requests a second; outside, the times are questioned.
LEAST_RATE, LARGEST_RATE = 1e-3, 1e4
FACTS = frozenset(
    {"conversations_read", "conversations_taken", "ids_that_occur_again", "turns_without_time", "times_put_in_order"}
)
RENDERING = "each turn's own text: no chat template, no system turns; history=true puts earlier turns before it"


@dataclass(frozen=True, slots=True)
class ChatForm:
    """Where a data set keeps its conversations: `column` of role and content, `id_column` ("": none), times or not."""

    workload: str
    data_set: str
    licence: str
    column: str
    id_column: str
    stamped: bool = False


WILDCHAT = ChatForm("wildchat", "allenai/WildChat-1M", "ODC-BY", "conversation", "conversation_hash", stamped=True)
NUMINAMATH = ChatForm("numinamath", "AI-MO/NuminaMath-CoT", "Apache-2.0", "messages", "")
LMSYS = ChatForm(
    "lmsys", "lmsys/lmsys-chat-1m", "LMSYS-Chat-1M Dataset License Agreement", "conversation", "conversation_id"
)
# What the published protocol puts after every problem (eb-vllm's export).
STEP_BY_STEP = "\n\nPlease think step by step."


@dataclass(frozen=True, slots=True)
class ChatPart:
    """Which conversations are read: the first `conversations` (0: all) of at least `min_turns` pairs.

    Longer ones are cut after `max_turns` pairs (0: never). `suffix` is put at each prompt's end.
    """

    conversations: int = 0
    min_turns: int = 0
    max_turns: int = 0
    suffix: str = ""


class Conversation(NamedTuple):
    """One row: its id, and role, text and time (µs since 1970, None where there is none) of each turn.

    `fault` says why a row has no turns where it is not simply empty.
    """

    key: Any
    roles: list[Any]
    texts: list[Any]
    stamps: list[int | None] | None
    fault: str | None = None


def layout(form: ChatForm) -> Layout:
    """What is read of such a data set: role and content of its turns, their times where it has them, and the id."""
    columns: dict[str, tuple[str, ...]] = {form.column: ("role", "content", *(("timestamp?",) if form.stamped else ()))}
    if form.id_column:
        columns[f"{form.id_column}?"] = ()
    return Layout(columns, (form.data_set,))


def microseconds(given: Any) -> int | None:
    """A time from JSON text, ISO 8601, as µs since 1970; without a zone it is UTC. None for anything else."""
    if not isinstance(given, str):
        return None
    try:
        time = datetime.fromisoformat(given)
    except ValueError:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    whole = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (whole.days * 86_400 + whole.seconds) * 1_000_000 + whole.microseconds


def _stamps(turns: Any, index: int) -> list[int | None] | None:
    """The times of a batch's turns; parquet keeps the instant, whatever time zone is written beside it."""
    import pyarrow as pa

    if index < 0:
        return None
    column = turns.flatten()[index]
    if not pa.types.is_timestamp(column.type):
        return [microseconds(text) for text in column.to_pylist()]
    return list(column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64()).to_pylist())


def _from_parquet(path: Path, form: ChatForm) -> Iterator[Conversation]:
    import pyarrow as pa

    for _, batch in parquet.read_batches(path, layout(form).columns):
        column = batch.column(form.column)
        listed = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        if not (listed and pa.types.is_struct(column.type.value_type)):
            raise WorkloadError(
                f"{spelled(path)}: column {form.column} is {spelled(column.type, 80)}, "
                "not a list of turns (role, content)"
            )
        turns = column.flatten()
        field = turns.type.get_field_index
        roles, texts = (parquet.strings(turns.flatten()[field(name)]) for name in ("role", "content"))
        stamps = _stamps(turns, field("timestamp")) if form.stamped else None
        has_keys = form.id_column in batch.schema.names
        keys = parquet.strings(batch.column(form.id_column)) if has_keys else [None] * batch.num_rows
        at = 0
        for key, length in zip(keys, column.value_lengths().fill_null(0).to_pylist(), strict=True):
            to = at + length
            yield Conversation(key, roles[at:to], texts[at:to], None if stamps is None else stamps[at:to])
            at = to


def _from_json(path: Path, form: ChatForm) -> Iterator[Conversation]:
    for number, row in enumerate(read_json(path)):
        turns = row.value.get(form.column) if isinstance(row.value, dict) else None
        if isinstance(turns, list):
            yield _conversation(row.value, turns, form)
        elif number:
            yield Conversation(None, [], [], None, f"record without a list {form.column}")
        else:
            raise _no_turns(row, form)


def _conversation(record: dict[str, Any], turns: list[Any], form: ChatForm) -> Conversation:
    """A record's turns; one that is no object has neither role nor text."""
    turns = [turn if isinstance(turn, dict) else {} for turn in turns]
    stamps = [microseconds(turn.get("timestamp")) for turn in turns] if form.stamped else None
    key = record.get(form.id_column) if form.id_column else None
    return Conversation(key, [turn.get("role") for turn in turns], [turn.get("content") for turn in turns], stamps)


def _no_turns(first: JsonRow, form: ChatForm) -> WorkloadError:
    """What to say of a file whose first record has no turns where they should be."""
    keys = "it is no object"
    if isinstance(first.value, dict):
        keys = f"found are {', '.join(spelled(key, 40) for key in [*first.value][:20]) or 'none'}"
    return WorkloadError(f"{first.where}: no list {form.column}: {keys}; is it the right data set?")


def read(shards: Shards, form: ChatForm, reading: Reading, allow_truncated: bool) -> Iterator[Conversation]:
    """Every conversation of the files, in order; raises WorkloadError where one is cut off (unless allowed) or corrupt.

    A parquet file that is cut off has no rows at all: its directory stands at its end.
    """
    for path in shards.files:
        if path.suffix.lower() == ".parquet":
            yield from _from_parquet(path, form)
            continue
        try:
            yield from _from_json(path, form)
        except TruncatedFileError as cut:
            if not allow_truncated:
                raise
            reading.truncated = {"last_whole_record": cut.last_whole_record, "byte": cut.byte}


def _times(stamps: list[int | None] | None, pairs: list[ChatPair], reading: Reading) -> list[int]:
    """A time for each pair, never falling: the prompt's, else the answer's, else `NO_STAMP`."""
    if stamps is None:
        return [NO_STAMP] * len(pairs)
    times = []
    latest = NO_STAMP
    for pair in pairs:
        asked, answered = (stamps[at] for at in pair.at)
        stamp = answered if asked is None else asked
        if stamp is None or abs(stamp) > LARGEST_STAMP_US:
            reading.facts["turns_without_time"] += 1
            times.append(NO_STAMP)
            continue
        if stamp < latest:
            reading.facts["times_put_in_order"] += 1
        latest = max(latest, stamp)
        times.append(latest)
    return times


def taken(
    shards: Shards, form: ChatForm, part: ChatPart, reading: Reading, allow_truncated: bool
) -> Iterator[tuple[int, list[ChatPair], list[int]]]:
    """The conversations that `part` takes: number among all that are read (from 0), pairs, times of the pairs."""
    count = 0
    keys = array("q")
    for session, conversation in enumerate(read(shards, form, reading, allow_truncated)):
        reading.facts["conversations_read"] = session + 1
        if isinstance(conversation.key, str):
            # Python's own hash, whose 64 bits are enough to count by.
            keys.append(hash(conversation.key))
        if not conversation.texts:
            reading.skipped[conversation.fault or "empty conversation"] += 1
            continue
        pairs = list(pairs_of(zip(conversation.roles, conversation.texts, strict=True), reading.skipped))
        if len(pairs) < part.min_turns:
            reading.skipped[f"conversation of fewer than {part.min_turns} turns"] += 1
            continue
        if part.max_turns and len(pairs) > part.max_turns:
            reading.skipped[f"turn after the first {part.max_turns} of its conversation"] += len(pairs) - part.max_turns
            del pairs[part.max_turns :]
        if pairs:
            yield session, pairs, _times(conversation.stamps, pairs, reading)
            count += 1
        if count == part.conversations > 0:
            break
    reading.facts["conversations_taken"] = count
    again = len(keys) - len(np.unique(np.array(keys, dtype=np.int64)))
    if again:
        reading.facts["ids_that_occur_again"] = again


def _rows(shards: Shards, form: ChatForm, part: ChatPart, reading: Reading, allow_truncated: bool) -> Iterator[TextRow]:
    for session, pairs, times in taken(shards, form, part, reading, allow_truncated):
        for turn, (pair, stamp) in enumerate(zip(pairs, times, strict=True)):
            yield TextRow((session, turn, stamp), (pair.prompt + part.suffix, pair.answer))


def _usable(columns: Columns, meta: Meta) -> bool:
    """Whether what the cache holds is what counting can have made."""
    prompt, output = columns["prompt_tokens"], columns["output_tokens"]
    counted_all = len(prompt) > 0 and int(prompt.min()) > 0 and int(output.min()) > 0
    return counted_all and usable_source(meta.get("source"), FACTS)


def load(
    shards: Shards,
    form: ChatForm,
    part: ChatPart,
    *,
    tokenizer: str,
    model: str,
    allow_truncated: bool,
    by_time: bool,
    before: str,
) -> Trace:
    """Every pair that `part` takes with its lengths, uncapped, from the cache where they were counted before.

    `by_time` sorts them by their times, which then are the trace's timestamps; rows without one are left out.
    `before` is how the options before `tokenizer` were written, for errors to say.
    """
    files = shards.source()
    content = tokenizer_json(tokenizer, model, before)
    tokenizer_sha = digest_of(content)
    # Another FORMAT of cache.py would be for all data sets; the number here is for these.
    what = json.dumps(["conversations 1", form.column, form.stamped, asdict(part), allow_truncated], sort_keys=True)
    kept = cache.lengths_path(str(files["file_sha256"]), tokenizer_sha, what)

    def anew() -> tuple[Columns, Meta]:
        reading = Reading()
        rows = _rows(shards, form, part, reading, allow_truncated)
        table = drop_empty(count_rows(rows, build(content, tokenizer or model, before), len(KEPT)), 3, reading)
        if not len(table):
            where = spelled(shards.files[0]) if len(shards.files) == 1 else f"{len(shards.files)} files"
            raise WorkloadError(f"{where}: no pair of turns to replay (skipped: {dict(reading.skipped)})")
        return dict(zip(KEPT, np.ascontiguousarray(table.T), strict=True)), {"source": reading.as_source()}

    columns, meta, notices = counted(kept, KEPT, _usable, anew)
    source: dict[str, Any] = {
        "kind": "real",
        "data_set": form.data_set,
        "licence": form.licence,
        **files,
        "tokenizer": tokenizer or model,
        "tokenizer_sha256": tokenizer_sha,
        "part": {name: value for name, value in asdict(part).items() if value},
        "rendering": RENDERING,
        "pairs": len(columns["session"]),
        **meta["source"],
    }
    notices = [*shards.notices, *notices]
    if notices:
        source["notices"] = notices
    session, turn, stamp, prompt, output = (columns[name] for name in KEPT)
    trace = Trace(form.workload, prompt, output, source, session=session, turn=turn)
    return _by_time(trace, stamp) if by_time else trace


def _odd_rate(sorted_us: Ints) -> list[str]:
    """A notice where the times make a rate that no users make: written in another unit, perhaps."""
    seconds = int(sorted_us[-1] - sorted_us[0]) / 1e6
    rate = len(sorted_us) / seconds if seconds else 0.0
    if not seconds or LEAST_RATE <= rate <= LARGEST_RATE:
        return []
    return [f"{len(sorted_us)} requests in {seconds:g} s are {rate:.3g}/s: are the timestamps in the right unit?"]


def _by_time(trace: Trace, stamp: Ints) -> Trace:
    """The rows with a time in its order, seconds from the first as timestamps."""
    timed = np.flatnonzero(stamp != NO_STAMP)
    if not len(timed):
        raise WorkloadError(f"{trace.name}: no turn has a timestamp: leave out order=time")
    rows = timed[np.argsort(stamp[timed], kind="stable")]
    sorted_us = stamp[rows]
    first = datetime.fromtimestamp(int(sorted_us[0]) // 1_000_000, tz=UTC).isoformat()
    skipped = dict(trace.source["skipped"])
    notices = [*trace.source.get("notices", []), *_odd_rate(sorted_us)]
    dropped = len(stamp) - len(rows)
    if dropped:
        skipped["turn without a timestamp"] = dropped
    source = {
        **trace.source,
        "skipped": skipped,
        "timestamps": f"when the answer was complete, as far as the data set tells; the first is {first}",
    }
    if notices:
        source["notices"] = notices
    return dataclasses.replace(trace.take(rows), source=source, timestamp_s=(sorted_us - sorted_us[0]) / 1e6)
