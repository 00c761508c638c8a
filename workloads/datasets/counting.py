"""From texts to lengths: a batch of rows at a time through the tokenizer, and what was counted kept in the cache."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workloads.core import cache
from workloads.core.reading import spelled
from workloads.core.trace import Ints

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Enough text for one call of the tokenizer to be worth it, little enough to hold.
BATCH_CHARACTERS = 1 << 20

Columns = dict[str, Ints]
Meta = dict[str, Any]


class TextRow(NamedTuple):
    """What becomes a row of a table: whole numbers as they are, then one token count for each text."""

    numbers: tuple[int, ...]
    texts: tuple[str, ...]


@dataclass(slots=True)
class Reading:
    """What a pass over a data set leaves besides its rows.

    `skipped` counts by reason; `truncated` says where a file was cut off; `facts` are whole numbers worth telling
    (conversations read, ids that occur twice); `names` are the ids of conversations where they are kept.
    """

    skipped: Counter[str] = field(default_factory=Counter)
    truncated: dict[str, int] | None = None
    facts: Counter[str] = field(default_factory=Counter)
    names: dict[int, str] = field(default_factory=dict)

    def as_source(self) -> Meta:
        """The JSON object that the cache keeps and a trace's source shows."""
        source: Meta = {"skipped": dict(sorted(self.skipped.items())), **self.facts}
        return source | ({"truncated": self.truncated} if self.truncated else {})


def fault(what: str, text: Any) -> str | None:
    """Why a text cannot be counted, None where it can; `what` it is opens the reason."""
    if not isinstance(text, str):
        return f"{what} without text"
    if not text or text.isspace():
        return f"empty {what}"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return f"{what} is not valid Unicode"
    return None


def _batches(rows: Iterable[TextRow]) -> Iterator[list[TextRow]]:
    batch: list[TextRow] = []
    held = 0
    for row in rows:
        batch.append(row)
        held += sum(map(len, row.texts))
        if held >= BATCH_CHARACTERS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def count_rows(rows: Iterable[TextRow], tokenizer: Tokenizer, width: int) -> Ints:
    """One line a row and `width` columns: its numbers, then the tokens of its texts, without special tokens.

    While the tokenizer works on one batch, the next one is read: two batches are held, never the data set.
    """

    def encode(batch: list[TextRow]) -> Ints:
        texts = list(itertools.chain.from_iterable(row.texts for row in batch))
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        tokens = np.array([len(encoding) for encoding in encoded], dtype=np.int64).reshape(len(batch), -1)
        numbers = np.array([row.numbers for row in batch], dtype=np.int64).reshape(len(batch), -1)
        return np.hstack([numbers, tokens])

    parts: list[Ints] = [np.empty((0, width), dtype=np.int64)]
    with ThreadPoolExecutor(1) as pool:
        ahead: Future[Ints] | None = None
        for batch in _batches(rows):
            following = pool.submit(encode, batch)
            if ahead is not None:
                parts.append(ahead.result())
            ahead = following
        if ahead is not None:
            parts.append(ahead.result())
    return np.concatenate(parts)


def drop_empty(table: Ints, first: int, reading: Reading) -> Ints:
    """The rows whose counts, from column `first` on, are all above 0; the others are counted as skipped."""
    whole = (table[:, first:] > 0).all(axis=1)
    dropped = int((~whole).sum())
    if dropped:
        reading.skipped["no tokens"] += dropped
    return table[whole]


def usable_source(source: Any, facts: frozenset[str] = frozenset()) -> bool:
    """Whether what the cache tells of a reading is what `Reading.as_source` can have made with these facts."""
    if not isinstance(source, dict) or not source.keys() <= {"skipped", "truncated"} | facts:
        return False
    skipped, cut = source.get("skipped"), source.get("truncated", {"last_whole_record": 0, "byte": 0})
    return (
        isinstance(skipped, dict)
        and all(type(count) is int for count in skipped.values())
        and all(type(source[name]) is int for name in facts & source.keys())
        and isinstance(cut, dict)
        and cut.keys() == {"last_whole_record", "byte"}
        and all(type(place) is int for place in cut.values())
    )


def counted(
    kept: Path,
    names: tuple[str, ...],
    usable: Callable[[Columns, Meta], bool],
    count: Callable[[], tuple[Columns, Meta]],
) -> tuple[Columns, Meta, list[str]]:
    """Columns and meta from the cache, or from `count` and then kept; and the notices to show."""
    notices: list[str | None] = [cache.homeless()]
    stored = cache.load(kept, names)
    if isinstance(stored, tuple) and not usable(*stored):
        stored = f"{spelled(kept)} was corrupt: counted again and written anew"
    if isinstance(stored, tuple):
        columns, meta = stored
    else:
        columns, meta = count()
        notices += [stored, cache.save(kept, columns, meta)]
    return columns, meta, [notice for notice in notices if notice]
