"""Results of driving processes as the rows of a run directory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from harness.core.records import REQUESTS, to_batch
from harness.drive.plan import NONE, Plan
from harness.drive.settings import Result


def request_batch(results: Sequence[Result], plan: Plan, t0_ns: int) -> pa.RecordBatch:
    """Rows in the columns of REQUESTS, seconds from `t0_ns`.

    A gap lies between two events that carry tokens: a server that puts several tokens into an event has
    fewer gaps than tokens, and `event_tokens` says how many each held where that is known and not one each.
    `prompt_tokens` is the server's count, the plan's where it gave none.
    """
    places = np.array([result.place for result in results], dtype=np.int64)
    counts = np.array([len(result.stamps) for result in results], dtype=np.int64)
    stamps = np.concatenate([np.asarray(result.stamps, dtype=np.int64) for result in results])
    starts = np.concatenate(([0], np.cumsum(counts)))
    has_tokens = counts > 0
    first = np.where(has_tokens, stamps[np.minimum(starts[:-1], max(len(stamps) - 1, 0))] if len(stamps) else 0, 0)
    last = np.where(has_tokens, stamps[np.maximum(starts[1:] - 1, 0)] if len(stamps) else 0, 0)
    # The differences across requests go; a request of n stamps keeps n − 1 gaps.
    inside = np.ones(len(stamps), dtype=np.bool_)
    inside[starts[:-1][has_tokens]] = False
    gaps = np.diff(stamps, prepend=0)[inside]
    gap_starts = np.concatenate(([0], np.cumsum(np.maximum(counts - 1, 0))))

    def seconds(values: np.ndarray, known: np.ndarray) -> pa.Array:
        return pa.array((values - t0_ns) / 1e9, pa.float64(), mask=~known)

    def of_results(name: str) -> pa.Array:
        values = [getattr(result, name) for result in results]
        known = np.array([value is not None for value in values])
        return seconds(np.array([value or 0 for value in values], dtype=np.int64), known)

    def of_plan(name: str) -> pa.Array:
        values = np.frombuffer(plan.columns[name], dtype=np.int64)[places]
        return pa.array(values, pa.int64(), mask=values == NONE)

    planned = plan.columns["prompt_tokens"]
    columns = {
        "id": pa.array([plan.id(result.place) for result in results], pa.string()),
        "row": of_plan("row"),
        "session": of_plan("session"),
        "turn": of_plan("turn"),
        "prompt_tokens": pa.array(
            [planned[result.place] if result.prompt_tokens is None else result.prompt_tokens for result in results],
            pa.int64(),
        ),
        "expected_output_tokens": of_plan("expected_output_tokens"),
        "due_s": of_results("due_ns"),
        "sent_s": of_results("sent_ns"),
        "first_token_s": seconds(first, has_tokens),
        "last_token_s": seconds(last, has_tokens),
        "done_s": of_results("done_ns"),
        "output_tokens": pa.array([result.output_tokens for result in results], pa.int64()),
        "preemptions": None,
        "token_gaps_s": pa.ListArray.from_arrays(pa.array(gap_starts, pa.int32()), pa.array(gaps / 1e9)),
        "event_tokens": pa.array([result.tokens for result in results], REQUESTS.field("event_tokens").type),
        "finish": pa.array([result.finish for result in results], pa.string()).cast(REQUESTS.field("finish").type),
        "error": pa.array([result.error for result in results], pa.string()),
    }
    return to_batch(columns, REQUESTS, len(results))
