"""From the batch loop's integers to the columns that everything downstream reads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.records import FINISHES, MODES, PHASES, REQUESTS, STEPS
from harness.simulate.chunk import REQUEST_FIELDS, Chunk
from harness.simulate.limits import EngineLimits
from policies.core import PolicyState
from policies.step_log import STEP_COLUMNS
from workloads.trace import Trace

Ints = npt.NDArray[np.int64]


def request_batch(chunk: Chunk, trace: Trace, limits: EngineLimits) -> pa.RecordBatch:
    """The chunk's request rows with what the trace asked for, times in seconds."""
    column = {name: chunk.requests[:, i] for i, name in enumerate(REQUEST_FIELDS)}
    rows = column["row"]
    too_long = column["finish"] == FINISHES.index("too_long")
    values = {
        "id": [trace.id_of(row) for row in rows.tolist()],
        "row": rows,
        "session": None if trace.session is None else trace.session[rows],
        "turn": None if trace.turn is None else trace.turn[rows],
        "prompt_tokens": trace.prompt_tokens[rows],
        "expected_output_tokens": trace.output_tokens[rows],
        "due_s": column["due"] / 1e9,
        "sent_s": column["sent"] / 1e9,
        "first_token_s": pa.array(column["first"] / 1e9, mask=too_long),
        "last_token_s": pa.array(column["last"] / 1e9, mask=too_long),
        "done_s": column["done"] / 1e9,
        "output_tokens": column["output_tokens"],
        "preemptions": column["preemptions"],
        "cached_tokens": chunk.found,
        "token_gaps_s": _gaps(chunk, rows),
        "finish": to_names(column["finish"], FINISHES),
        "error": _errors(rows, too_long, trace, limits),
    }
    return to_batch(values, REQUESTS, len(rows))


def step_batch(chunk: Chunk) -> pa.RecordBatch:
    """The chunk's step rows with the policy's state, times in seconds."""
    column = {name: chunk.steps[:, i] for i, name in enumerate(STEP_COLUMNS)}
    return to_batch(step_columns(column, chunk.states), STEPS, len(chunk.steps))


def step_columns(column: dict[str, Ints], states: list[PolicyState]) -> dict[str, object]:
    """The columns of STEPS from a step's integers (STEP_COLUMNS) and the policy states that they point to."""
    values: dict[str, object] = dict(column)
    del values["t"], values["duration"], values["state"]
    values["t_s"] = column["t"] / 1e9
    values["duration_s"] = column["duration"] / 1e9
    values["phase"] = to_names(column["phase"], PHASES)
    values.update(_states(column["state"], states))
    return values


def _states(which: Ints, states: list[PolicyState]) -> dict[str, object]:
    # A chunk names few of the states, so only those are made into columns.
    named, place = np.unique(which, return_inverse=True)
    held = [states[i] if i >= 0 else PolicyState() for i in named.tolist()]
    columns: dict[str, object] = {}
    for name, kind in (
        ("k", pa.int64()),
        ("n", pa.int64()),
        ("theta", pa.float64()),
        ("p0", pa.float64()),
        ("eta", pa.float64()),
        ("mu_l", pa.float64()),
        ("n_obs", pa.float64()),
    ):
        columns[f"policy_{name}"] = pa.array([getattr(state, name) for state in held], kind).take(pa.array(place))
    for name, kind in (
        ("crossover_left", pa.float64()),
        ("crossover_right", pa.float64()),
        ("correction_capped", pa.bool_()),
    ):
        columns[name] = pa.array([getattr(state, name) for state in held], kind).take(pa.array(place))
    modes = pa.array([None if state.mode is None else MODES.index(state.mode) for state in held], pa.int8())
    columns["policy_mode"] = pa.DictionaryArray.from_arrays(modes.take(pa.array(place)), pa.array(MODES))
    return columns


def to_names(codes: Ints, names: tuple[str, ...]) -> pa.DictionaryArray:
    """Places in `names` as a column of names."""
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(names))


def _gaps(chunk: Chunk, rows: Ints) -> pa.Array:
    if not chunk.gaps:
        return pa.nulls(len(rows), pa.list_(pa.float64()))
    lists = [None if (gaps := chunk.gaps.get(row)) is None else gaps / 1e9 for row in rows.tolist()]
    return pa.array(lists, pa.list_(pa.float64()))


def _errors(rows: Ints, too_long: npt.NDArray[np.bool_], trace: Trace, limits: EngineLimits) -> pa.Array:
    if not too_long.any():
        return pa.nulls(len(rows), pa.string())
    reasons: list[str | None] = [None] * len(rows)
    for i in np.flatnonzero(too_long).tolist():
        row = int(rows[i])
        asked = f"{trace.prompt_tokens[row]} prompt + {trace.output_tokens[row]} output tokens"
        reasons[i] = (
            f"request {trace.id_of(row)}: {asked} exceed the KV cache of {limits.cache_tokens}"
            if limits.cache_tokens < limits.max_model_len
            else f"request {trace.id_of(row)}: {asked} exceed max_model_len {limits.max_model_len}"
        )
    return pa.array(reasons, pa.string())


def to_batch(values: dict[str, object], schema: pa.Schema, length: int) -> pa.RecordBatch:
    """Columns by name, None for all null, as a batch of the schema."""
    arrays = []
    for column in schema:
        value = values[column.name]
        if value is None:
            arrays.append(pa.nulls(length, column.type))
        elif isinstance(value, pa.Array):
            arrays.append(value)
        else:
            arrays.append(pa.array(value, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
