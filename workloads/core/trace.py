"""A trace: what is asked for, request by request, before anyone says when."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.core.blocks import Blocks
from workloads.core.errors import WorkloadError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
# The key of a trace's source that asks for the unit of its times, as long as only the user knows it.
UNIT_QUESTION = "unit_question"


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in their order, with where they come from.

    `prompt_tokens` and `output_tokens` have one entry a request, in tokens, each at least 1.
    `timestamp_s`, where the source has one, is seconds from the first request, ascending.
    `session` groups the turns of one conversation, `turn` counts from 0; None where every request is alone.
    `ids` is None where the row number serves as id. `hint_low` and `hint_high`, where the source has them, bound the
    output that its sender expects, tokens. `blocks` says which prompts share a prefix, where the source does
    (`hash_ids`). `source` says what the data is (kind `real`, `twin`,
    `synthetic` or `file`, data set, digests, tokenizer, filters, what was skipped and why): it goes into
    the run's manifest as it is, so it holds JSON values only. Of a drift trace its `phases` mark where each phase
    begins: name, first_row, and start_s where that is known beforehand.
    """

    name: str
    prompt_tokens: Ints
    output_tokens: Ints
    source: dict[str, Any] = field(default_factory=dict)
    timestamp_s: Floats | None = None
    session: Ints | None = None
    turn: Ints | None = None
    ids: tuple[str, ...] | None = None
    hint_low: Ints | None = None
    hint_high: Ints | None = None
    blocks: Blocks | None = None

    def __post_init__(self) -> None:
        n = len(self.prompt_tokens)
        for column in ("output_tokens", "timestamp_s", "session", "turn", "ids", "hint_low", "hint_high"):
            values = getattr(self, column)
            if values is not None and len(values) != n:
                raise WorkloadError(f"{self.name}: {column} has {len(values)} rows, prompt_tokens has {n}")
        if n == 0:
            raise WorkloadError(f"{self.name}: the trace is empty: nothing to replay")
        if self.blocks is not None and len(self.blocks.ids) != n:
            raise WorkloadError(f"{self.name}: hash_ids has {len(self.blocks.ids)} rows, prompt_tokens has {n}")
        for column in ("prompt_tokens", "output_tokens"):
            values = getattr(self, column)
            if int(values.min()) < 1:
                row = int(np.argmin(values))
                raise WorkloadError(f"{self.name}, row {row}: {column} is {int(values[row])}; it must be at least 1")

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def id_of(self, row: int) -> str:
        """The id of a row, its number where the source gives none."""
        return self.ids[row] if self.ids is not None else str(row)

    @property
    def label(self) -> str:
        """The name to show: a twin never passes for the data set it stands for, a shuffle not for a drift."""
        if self.source.get("drift") and self.source.get("order") == "paper":
            return f"{self.name} (paper order)"
        return f"{self.name} (twin)" if self.source.get("kind") == "twin" else self.name

    @property
    def mean_prompt_tokens(self) -> float:
        """μ_L, tokens."""
        return float(self.prompt_tokens.mean())

    @property
    def mean_output_tokens(self) -> float:
        """μ_O, tokens."""
        return float(self.output_tokens.mean())

    @property
    def digest(self) -> str:
        """sha256 (hex) of what is asked for: every column, and nothing of where it came from."""
        sha = hashlib.sha256()
        for column in ("prompt_tokens", "output_tokens", "timestamp_s", "session", "turn"):
            values = getattr(self, column)
            sha.update(column.encode())
            if values is not None:
                kind = "<f8" if column == "timestamp_s" else "<i8"
                sha.update(np.ascontiguousarray(values, dtype=kind).tobytes())
        sha.update(json.dumps(self.ids).encode() if self.ids is not None else b"row numbers")
        if self.hint_low is not None and self.hint_high is not None:
            sha.update(b"hints" + np.stack((self.hint_low, self.hint_high)).astype("<i8").tobytes())
        if self.blocks is not None:
            sha.update(self.blocks.canonical)
        return sha.hexdigest()

    def take(self, rows: Ints) -> Trace:
        """The rows named, in the order named; where one is named twice, row numbers serve as ids."""

        def pick(values: Any) -> Any:
            return None if values is None else values[rows]

        # Counting is ten times as fast as np.unique on a million rows.
        repeated = len(rows) > 0 and int(np.bincount(rows).max()) > 1
        ids = None if self.ids is None or repeated else tuple(self.ids[int(row)] for row in rows)
        return Trace(
            name=self.name,
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            source=_marked(self.source, rows),
            timestamp_s=None if repeated else pick(self.timestamp_s),
            session=None if repeated else pick(self.session),
            turn=None if repeated else pick(self.turn),
            ids=ids,
            hint_low=pick(self.hint_low),
            hint_high=pick(self.hint_high),
            blocks=None if self.blocks is None else self.blocks.take(rows.tolist()),
        )


def _marked(source: dict[str, Any], rows: Ints) -> dict[str, Any]:
    """The source with its phases' marks where they are among the rows taken; without, where those do not ascend."""
    if "phases" not in source:
        return source
    if len(rows) > 1 and int(np.diff(rows).min()) < 1:
        return {key: value for key, value in source.items() if key != "phases"}
    marks = []
    for mark, after in zip(source["phases"], [*source["phases"][1:], None], strict=True):
        first = int(np.searchsorted(rows, mark["first_row"]))
        last = len(rows) if after is None else int(np.searchsorted(rows, after["first_row"]))
        if first < last:
            # Times count from the first row taken: only where that is the trace's own does a start stand.
            start = {} if rows[0] == 0 else {"start_s": None}
            marks.append({**mark, "first_row": first, **start})
    return {**source, "phases": marks}


def passing(broken: Mapping[str, Bools], skipped: dict[str, int]) -> Bools:
    """The rows that break no rule; each that does is added to `skipped` under the first reason that it breaks.

    `broken` says of every reason which rows it leaves out.
    """
    keep = ~np.zeros_like(next(iter(broken.values())))
    for reason, rows in broken.items():
        count = int((keep & rows).sum())
        if count:
            skipped[reason] = skipped.get(reason, 0) + count
        keep &= ~rows
    return keep
