"""What the batch loop hands over as it goes, and the columns that everything downstream reads.

A row a request and a row a step: integers, in nanoseconds and tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.records import FINISHES, REQUESTS, STEPS, step_columns, to_batch, to_names
from harness.simulate.limits import EngineLimits
from policies.core import STEP_COLUMNS, PolicyState
from workloads.core.trace import Ints, Trace

REQUEST_FIELDS = ("row", "due", "sent", "first", "last", "done", "output_tokens", "preemptions", "finish")
# Places in harness.core.records.FINISHES.
FINISH_LENGTH = 0
FINISH_TOO_LONG = 2

# An array takes an iterable's numbers one by one, which costs four times as much.
pack_request = Struct(f"{len(REQUEST_FIELDS)}q").pack
pack_step = Struct(f"{len(STEP_COLUMNS)}q").pack


@dataclass(slots=True)
class Rows:
    """Rows of requests and steps since those handed over before, and the gaps of requests that were preempted."""

    requests: Ints  # (rows, len(REQUEST_FIELDS))
    steps: Ints  # (rows, len(STEP_COLUMNS))
    gaps: dict[int, Ints]  # stream row -> gaps between its tokens
    states: list[PolicyState]  # all so far; a step's `state` is an index, -1 where the policy has none
    now_ns: int
    finished: int
    cached_tokens: list[int | None] | None = None  # a prefix cache's of each request; None of one never admitted
    request_replicas: Ints | None = None  # of several replicas the one that each request and each step was of
    step_replicas: Ints | None = None

    def request_column(self, name: str) -> Ints:
        """A column of the request rows by its name in REQUEST_FIELDS."""
        return self.requests[:, REQUEST_FIELDS.index(name)]

    def step_column(self, name: str) -> Ints:
        """A column of the step rows by its name in STEP_COLUMNS."""
        return self.steps[:, STEP_COLUMNS.index(name)]


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of a whole replay from those that were handed over as it went."""
    last = parts[-1]
    return Rows(
        requests=np.concatenate([rows.requests for rows in parts]),
        steps=np.concatenate([rows.steps for rows in parts]),
        gaps={row: gaps for rows in parts for row, gaps in rows.gaps.items()},
        states=last.states,
        now_ns=last.now_ns,
        finished=last.finished,
        cached_tokens=None if last.cached_tokens is None else [n for rows in parts for n in rows.cached_tokens or ()],
    )


class RowLog:
    """The rows that were not handed over yet, packed one after the other, and the states that the steps point to."""

    def __init__(self, states: list[PolicyState] | None = None) -> None:
        self.requests = bytearray()
        self.steps = bytearray()
        self.states = [] if states is None else states
        self.policy_state: PolicyState | None = None
        self.state_index = -1  # its place among the states

    def set_state(self, policy_state: PolicyState | None) -> None:
        """What the policy holds to be true from the next step on."""
        self.policy_state = policy_state
        self.state_index = -1
        if policy_state is not None:
            self.state_index = len(self.states)
            self.states.append(policy_state)

    def drain(self) -> tuple[Ints, Ints]:
        """The rows of requests and of steps since the last call."""
        requests = np.frombuffer(self.requests, dtype=np.int64).reshape(-1, len(REQUEST_FIELDS))
        steps = np.frombuffer(self.steps, dtype=np.int64).reshape(-1, len(STEP_COLUMNS))
        self.requests, self.steps = bytearray(), bytearray()
        return requests, steps


def request_batch(rows: Rows, trace: Trace, limits: EngineLimits) -> pa.RecordBatch:
    """The request rows with what the trace asked for, times in seconds."""
    column = {name: rows.requests[:, i] for i, name in enumerate(REQUEST_FIELDS)}
    trace_rows = column["row"]
    too_long = column["finish"] == FINISHES.index("too_long")
    values = trace_columns(trace, trace_rows) | {
        "due_s": column["due"] / 1e9,
        "sent_s": column["sent"] / 1e9,
        "first_token_s": pa.array(column["first"] / 1e9, mask=too_long),
        "last_token_s": pa.array(column["last"] / 1e9, mask=too_long),
        "done_s": column["done"] / 1e9,
        "output_tokens": column["output_tokens"],
        "preemptions": column["preemptions"],
        "cached_tokens": rows.cached_tokens,
        "token_gaps_s": _token_gaps_s(rows.gaps, trace_rows),
        "event_tokens": None,  # nothing is streamed here
        "finish": to_names(column["finish"], FINISHES),
        "error": _errors(trace_rows, too_long, trace, limits),
        "replica": rows.request_replicas,
    }
    return to_batch(values, REQUESTS, len(trace_rows))


def trace_columns(trace: Trace, rows: Ints) -> dict[str, Any]:
    """What a trace says of these of its rows, under the names of REQUESTS."""
    return {
        "id": [trace.id_of(row) for row in rows.tolist()],
        "row": rows,
        "session": None if trace.session is None else trace.session[rows],
        "turn": None if trace.turn is None else trace.turn[rows],
        "prompt_tokens": trace.prompt_tokens[rows],
        "expected_output_tokens": trace.output_tokens[rows],
    }


def step_batch(rows: Rows) -> pa.RecordBatch:
    """The step rows with the policy's state, times in seconds."""
    column = {name: rows.steps[:, i] for i, name in enumerate(STEP_COLUMNS)}
    values = step_columns(column, rows.states) | {"replica": rows.step_replicas}
    return to_batch(values, STEPS, len(rows.steps))


def _token_gaps_s(gaps_ns: dict[int, Ints], trace_rows: Ints) -> pa.Array:
    """The gaps of each request that has them, s; null where they follow from the steps."""
    if not gaps_ns:
        return pa.nulls(len(trace_rows), pa.list_(pa.float64()))
    lists = [gaps_ns[row] / 1e9 if row in gaps_ns else None for row in trace_rows.tolist()]
    return pa.array(lists, pa.list_(pa.float64()))


def _errors(trace_rows: Ints, too_long: npt.NDArray[np.bool_], trace: Trace, limits: EngineLimits) -> pa.Array:
    """Why each request that is too long was refused; null of all others."""
    if not too_long.any():
        return pa.nulls(len(trace_rows), pa.string())
    reasons: list[str | None] = [None] * len(trace_rows)
    for i in np.flatnonzero(too_long).tolist():
        row = int(trace_rows[i])
        asked = f"{trace.prompt_tokens[row]} prompt + {trace.output_tokens[row]} output tokens"
        reasons[i] = (
            f"request {trace.id_of(row)}: {asked} exceed the KV cache of {limits.cache_tokens}"
            if limits.cache_tokens < limits.max_model_len
            else f"request {trace.id_of(row)}: {asked} exceed max_model_len {limits.max_model_len}"
        )
    return pa.array(reasons, pa.string())
