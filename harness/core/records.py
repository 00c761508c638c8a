"""The columns that everything downstream of an engine reads: a row a request attempt, a row an engine step.

Seconds count from the run's start. In a virtual run they are whole nanoseconds, so that adding steps up
gives the same times however they were taken.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from harness.core.arrow import without_pandas
from policies.core import PolicyState
from workloads.core.trace import Ints

# Before the first list.
without_pandas()


# How a request attempt ended. Only `length` and `stop` are completions.
FINISHES = ("length", "stop", "too_long", "timeout", "error", "short", "cancelled", "interrupted")
COMPLETED = ("length", "stop")

# What a step did, by its content: a step with prefill tokens and decodes is mixed, whatever was planned.
PHASES = ("mixed", "prefill", "decode")

# Which regime the policy was in: mixed batching or exclusive batching.
MODES = ("MB", "EB")

# Who produces a token in a step, and how many each then has: what fairness is made of.
PRODUCED = (
    "producing",
    "generated_sum",
    "generated_min",
    "generated_max",
    "footprint_sum",
    "footprint_min",
    "footprint_max",
)

NAMES = pa.dictionary(pa.int8(), pa.string())

REQUESTS = pa.schema(
    [
        ("id", pa.string()),
        ("row", pa.int64()),  # place in the stream: what pairs the arms of a comparison
        ("session", pa.int64()),
        ("turn", pa.int64()),
        ("prompt_tokens", pa.int64()),
        ("expected_output_tokens", pa.int64()),
        ("due_s", pa.float64()),
        ("sent_s", pa.float64()),
        ("first_token_s", pa.float64()),
        ("last_token_s", pa.float64()),
        ("done_s", pa.float64()),
        ("output_tokens", pa.int64()),
        ("preemptions", pa.int64()),
        # Prompt tokens that the prefix cache had when the request was first admitted; null where there is none.
        ("cached_tokens", pa.int64()),
        # Null in a virtual run for a request that was never preempted: its gaps follow from the steps.
        ("token_gaps_s", pa.list_(pa.float64())),
        # Tokens of each event that brought any, one more than there are gaps; null where they are one each, or where
        # nobody said: then `output_tokens` are spread evenly over the events.
        ("event_tokens", pa.list_(pa.int64())),
        ("finish", NAMES),
        ("error", pa.string()),
        ("replica", pa.int64()),  # which of several served it, from 0; null where there is one
    ]
)

# Columns that older runs do not have: null in them.
LATER = frozenset(
    {"cached_tokens", "event_tokens", "policy_own", "replica"}
    | {"cost_mixed_s", "cost_exclusive_s", "policy_z", "policy_probes", "policy_budget"}
)

STEPS = pa.schema(
    [
        ("t_s", pa.float64()),  # start of the step
        ("duration_s", pa.float64()),
        ("phase", NAMES),
        ("prefill_tokens", pa.int64()),
        ("decode_requests", pa.int64()),
        ("running", pa.int64()),  # holding a slot during the step, prefilling ones included
        ("waiting", pa.int64()),  # still queued after the step's admissions
        ("preempted", pa.int64()),
        ("kv_tokens", pa.int64()),  # KV blocks held during the step times the block size
        # Requests that produce a token in this step, and their counts after it (resource-fair.md §4).
        *((name, pa.int64()) for name in PRODUCED),
        # What the policy held to be true; null where the policy has no such thing.
        ("policy_k", pa.int64()),
        ("policy_n", pa.int64()),
        ("policy_mode", NAMES),
        ("policy_theta", pa.float64()),
        ("policy_p0", pa.float64()),
        ("policy_eta", pa.float64()),
        ("policy_mu_l", pa.float64()),
        ("policy_n_obs", pa.float64()),
        ("crossover_left", pa.float64()),
        ("crossover_right", pa.float64()),
        ("correction_capped", pa.bool_()),
        ("cost_mixed_s", pa.float64()),
        ("cost_exclusive_s", pa.float64()),
        ("policy_z", pa.float64()),
        ("policy_probes", pa.int64()),
        ("policy_budget", pa.int64()),
        # Of a user's own policy: the columns that it declares, their names in the manifest (provenance.policy_columns).
        ("policy_own", pa.list_(pa.float64())),
        ("replica", pa.int64()),  # whose step it is, as in REQUESTS
    ]
)


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
        ("z", pa.float64()),
        ("probes", pa.int64()),
        ("budget", pa.int64()),
    ):
        columns[f"policy_{name}"] = pa.array([getattr(state, name) for state in held], kind).take(pa.array(place))
    for name, kind in (
        ("crossover_left", pa.float64()),
        ("crossover_right", pa.float64()),
        ("correction_capped", pa.bool_()),
        ("cost_mixed_s", pa.float64()),
        ("cost_exclusive_s", pa.float64()),
        ("policy_own", pa.list_(pa.float64())),
    ):
        columns[name] = pa.array([getattr(state, name.removeprefix("policy_")) for state in held], kind).take(
            pa.array(place)
        )
    modes = pa.array([None if state.mode is None else MODES.index(state.mode) for state in held], pa.int8())
    columns["policy_mode"] = pa.DictionaryArray.from_arrays(modes.take(pa.array(place)), pa.array(MODES))
    return columns


def to_names(codes: Ints, names: tuple[str, ...]) -> pa.DictionaryArray:
    """Places in `names` as a column of names."""
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(names))


def to_batch(values: dict[str, object], schema: pa.Schema, length: int) -> pa.RecordBatch:
    """Columns by name, None for all null, as a batch of the schema; a column that came later need not be there."""
    arrays = []
    for column in schema:
        value = values.get(column.name) if column.name in LATER else values[column.name]
        if value is None:
            arrays.append(pa.nulls(length, column.type))
        elif isinstance(value, pa.Array):
            arrays.append(value)
        else:
            arrays.append(pa.array(value, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
