"""The columns that everything downstream of an engine reads: a row a request attempt, a row an engine step.

Seconds count from the run's start. In a virtual run they are whole nanoseconds, so that adding steps up
gives the same times however they were taken.
"""

from __future__ import annotations

import pyarrow as pa

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
        ("finish", NAMES),
        ("error", pa.string()),
    ]
)

# Columns that older runs do not have: null in them.
LATER = frozenset({"cached_tokens"})

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
    ]
)
