"""The request table as arrays, in the order of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.core.records import COMPLETED

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NANOSECONDS = 1_000_000_000

# Nanoseconds in 64 bits end at 9.2e9 s: what lies beyond is no time of a run.
LONGEST_S = 9e9

# A time that is not there.
MISSING = int(np.iinfo(np.int64).min)


def nanoseconds(column: Any) -> Ints:
    """A column of seconds as whole nanoseconds, MISSING where it is null; differences of them are exact."""
    seconds = np.asarray(column.to_numpy(), dtype=np.float64)
    finite = np.isfinite(seconds)
    times = np.full(len(seconds), MISSING, dtype=np.int64)
    times[finite] = np.rint(seconds[finite] * NANOSECONDS).astype(np.int64)
    return times


def integers(column: Any) -> Ints:
    """A column of integers, 0 where it is null."""
    return np.asarray(column.fill_null(0).to_numpy(), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Requests:
    """The request table as arrays of one entry an attempt, times in nanoseconds, in ascending `row`.

    `order` is each entry's place in the table; `completed` marks what counts in every rate and latency.
    """

    order: Ints
    row: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    due: Ints
    sent: Ints
    first: Ints
    last: Ints
    done: Ints
    completed: Bools

    @classmethod
    def of(cls, table: Any) -> Requests:
        """The arrays of a table with the columns of `records.REQUESTS`."""
        row = integers(table.column("row"))
        order = np.argsort(row, kind="stable")
        return cls(
            order=order,
            row=row[order],
            prompt_tokens=integers(table.column("prompt_tokens"))[order],
            output_tokens=integers(table.column("output_tokens"))[order],
            due=nanoseconds(table.column("due_s"))[order],
            sent=nanoseconds(table.column("sent_s"))[order],
            first=nanoseconds(table.column("first_token_s"))[order],
            last=nanoseconds(table.column("last_token_s"))[order],
            done=nanoseconds(table.column("done_s"))[order],
            completed=one_of(table.column("finish"), COMPLETED)[order],
        )

    def __len__(self) -> int:
        return len(self.row)


def one_of(column: Any, names: tuple[str, ...]) -> Bools:
    """Where a column of names holds one of `names`; a null is none of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_in = pc.is_in(column.cast(pa.string()), value_set=pa.array(names, pa.string()))
    return np.asarray(is_in.to_numpy(), dtype=np.bool_)
