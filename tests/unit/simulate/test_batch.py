"""The batch loop on traces small enough to work out by hand, and its rows as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from harness.core.records import REQUESTS, STEPS
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import REQUEST_FIELDS, Rows, request_batch, step_batch
from policies.catalog import make_policy
from policies.core import STEP_COLUMNS, Phase, Policy, PolicyState, StepPlan, View
from policies.online.mixed import Mixed
from workloads.core.arrivals import Closed, Poisson
from workloads.core.stream import Stream
from workloads.core.trace import Trace

MS = 1_000_000


class Millisecond:
    """Every step takes a millisecond."""

    name: ClassVar[str] = "millisecond"

    def seconds(
        self, prefill_tokens: int, prefill_work: float, decodes: int, decode_context: int, longest: int
    ) -> float:
        return 0.001

    def decode_seconds(self, decodes: int, decode_context: int, longest: int, steps: int) -> npt.NDArray[np.float64]:
        return np.full(steps, 0.001)

    def parameters(self) -> dict[str, float]:
        return {}


def stream_of(lengths: Iterable[tuple[int, int]], due_ns: list[int] | int) -> Stream:
    """Requests of (prompt, output) tokens at these times, or in a closed loop of this many."""
    prompts, outputs = zip(*lengths, strict=True)
    trace = Trace("by hand", np.array(prompts, np.int64), np.array(outputs, np.int64))
    if isinstance(due_ns, int):
        return Stream(trace, Closed(due_ns), None)
    return Stream(trace, Poisson(1.0), np.array(due_ns, np.int64))


def chunks_of(loop: BatchLoop) -> list[Rows]:
    """All that a run hands over."""
    chunks: list[Rows] = []

    def sink(chunk: Rows) -> bool:
        chunks.append(chunk)
        return True

    assert loop.run(sink)
    return chunks


def run(
    lengths: list[tuple[int, int]],
    policy: Policy | str = "v1",
    due_ns: list[int] | int | None = None,
    max_duration_s: float | None = None,
    **limits: Any,
) -> tuple[list[dict[str, int]], list[dict[str, int]], dict[int, list[int]]]:
    """Request rows, step rows and gaps; all requests come at once unless told otherwise."""
    stream = stream_of(lengths, [0] * len(lengths) if due_ns is None else due_ns)
    given = EngineLimits(**({"slots": 4, "token_budget": 64, "kv_blocks": 101} | limits))
    if isinstance(policy, str):
        name, _, k = policy.partition(":k=")
        policy = make_policy(name, {"k": k} if k else {}, given.slots, None)
    (chunk,) = chunks_of(BatchLoop(stream, policy, Millisecond(), given, max_duration_s=max_duration_s))
    requests = [dict(zip(REQUEST_FIELDS, row, strict=True)) for row in chunk.requests.tolist()]
    steps = [dict(zip(STEP_COLUMNS, row, strict=True)) for row in chunk.steps.tolist()]
    return requests, steps, {row: gaps.tolist() for row, gaps in chunk.gaps.items()}


def columns(rows: list[dict[str, int]], *names: str) -> list[tuple[int, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_a_prompt_is_computed_in_chunks_of_the_budget_and_its_last_step_gives_a_token() -> None:
    requests, steps, gaps = run([(20, 3)], token_budget=8)
    assert columns(steps, "prefill_tokens", "decode_requests", "producing", "generated_sum", "footprint_sum") == [
        (8, 0, 0, 0, 0),
        (8, 0, 0, 0, 0),
        (4, 0, 1, 1, 21),
        (0, 1, 1, 2, 22),
        (0, 1, 1, 3, 23),
    ]
    assert columns(requests, "sent", "first", "last", "done") == [(0, 3 * MS, 5 * MS, 5 * MS)]
    assert gaps == {}


def test_blocks_are_held_for_what_is_computed() -> None:
    _, steps, _ = run([(15, 4)])
    # 15, 16, 17 and 18 tokens are computed; the fourth token is never read.
    assert columns(steps, "kv_tokens") == [(16,), (16,), (32,), (32,)]


def test_one_block_of_the_pool_is_the_null_block() -> None:
    requests, steps, _ = run([(16, 16), (16, 17)], kv_blocks=3)
    assert columns(requests, "row", "finish", "output_tokens", "done") == [(1, 2, 0, 0), (0, 0, 16, 16 * MS)]
    assert max(step["kv_tokens"] for step in steps) == 32


@pytest.mark.parametrize(("total", "finish"), [(100, 0), (101, 2)])
def test_prompt_and_asked_output_together_may_reach_max_model_len(total: int, finish: int) -> None:
    requests, _, _ = run([(50, total - 50)], max_model_len=100)
    assert requests[0]["finish"] == finish


def test_the_newest_gives_way_and_comes_back_first_with_its_output_to_compute_again() -> None:
    # Four blocks: both hold 16 tokens and need a second block at the first decode, a third 16 steps later.
    requests, steps, gaps = run([(16, 20), (16, 20), (1, 1)], kv_blocks=5, slots=2)
    assert columns(steps, "prefill_tokens", "decode_requests", "running", "waiting", "preempted")[16:20] == [
        (0, 2, 2, 1, 0),
        (0, 1, 1, 2, 1),  # the 17th decode: no block; a step that preempted admits nobody
        (0, 1, 1, 2, 0),  # 33 tokens need three blocks, one is free
        (0, 1, 1, 2, 0),
    ]
    # Once the first has gone: 16 + 17 tokens again, then one more a step. The third came behind it.
    assert columns(steps, "prefill_tokens", "decode_requests", "running")[20:] == [(34, 0, 2), (0, 1, 1), (0, 1, 1)]
    assert columns(requests, "row", "done", "preemptions") == [(0, 20 * MS, 0), (2, 21 * MS, 0), (1, 23 * MS, 1)]
    assert gaps == {1: [MS] * 16 + [4 * MS, MS, MS]}


def test_the_watermark_holds_back_admission_only_while_something_runs() -> None:
    # 20 blocks and a watermark of 4: 16 + 4 fit an idle engine, then the second waits for the first.
    requests, steps, _ = run([(256, 2), (1, 1)], kv_blocks=21, watermark=0.2, token_budget=300, slots=2)
    assert columns(steps, "prefill_tokens", "running", "waiting") == [(256, 1, 1), (0, 1, 1), (1, 1, 0)]
    assert columns(requests, "row", "done") == [(0, 2 * MS), (1, 3 * MS)]


def test_admission_asks_for_the_whole_prompts_blocks_even_where_only_a_chunk_is_computed() -> None:
    _, steps, _ = run([(32, 4), (40, 1)], kv_blocks=5, token_budget=40)
    # Two of four blocks are free; the second needs three although 8 tokens fit the budget.
    assert columns(steps, "prefill_tokens", "kv_tokens")[:2] == [(32, 32), (0, 48)]


def test_a_chunk_that_finds_no_block_gives_its_slot_back() -> None:
    requests, steps, gaps = run([(32, 4), (40, 1)], kv_blocks=6, token_budget=40)
    # Three of five blocks free at first: it enters with 8 tokens. Then the first takes one and 32 more need two.
    assert columns(steps, "prefill_tokens", "decode_requests", "kv_tokens", "preempted", "waiting") == [
        (40, 0, 48, 0, 0),
        (0, 1, 48, 1, 1),
        (0, 1, 48, 0, 1),
        (0, 1, 48, 0, 1),
        (40, 0, 48, 0, 0),
    ]
    assert columns(requests, "row", "preemptions", "first") == [(0, 0, MS), (1, 1, 5 * MS)]
    assert gaps == {}  # it had no token yet


def test_exclusive_batching_waits_for_k_free_slots_and_mixes_nothing() -> None:
    lengths = [(4, 2), (4, 3), (4, 4), (4, 5)]
    _, steps, _ = run(lengths, "eb:k=2", slots=2)
    assert columns(steps, "prefill_tokens", "decode_requests") == [(8, 0), (0, 2), (0, 1), (8, 0)] + [
        (0, n) for n in (2, 2, 2, 1)
    ]
    _, steps, _ = run(lengths, "v0", slots=2)
    assert columns(steps, "prefill_tokens", "decode_requests")[:4] == [(8, 0), (0, 2), (4, 0), (0, 2)]


def test_a_closed_loop_sends_when_a_slot_of_it_becomes_free_and_what_is_refused_takes_none() -> None:
    requests, _, _ = run([(4, 2), (4, 3), (4000, 1), (4, 1)], due_ns=2)
    assert columns(requests, "row", "due", "sent", "done", "finish") == [
        (0, 0, 0, 2 * MS, 0),
        (2, 2 * MS, 2 * MS, 2 * MS, 2),
        (1, 0, 0, 3 * MS, 0),
        (3, 2 * MS, 2 * MS, 3 * MS, 0),
    ]


def test_an_idle_engine_jumps_to_the_next_request() -> None:
    _, steps, _ = run([(4, 2), (4, 1)], due_ns=[5, 7 * MS])
    assert columns(steps, "t", "duration") == [(5, MS), (5 + MS, MS), (7 * MS, MS)]


def test_a_request_that_comes_during_a_step_is_seen_after_it_and_counts_from_when_it_was_due() -> None:
    requests, steps, _ = run([(4, 20), (4, 1)], due_ns=[0, 12 * MS + 1])
    assert columns(requests, "row", "due", "sent", "first") == [
        (1, 12 * MS + 1, 12 * MS + 1, 14 * MS),
        (0, 0, 0, MS),
    ]
    assert [step["t"] for step in steps if step["prefill_tokens"]] == [0, 13 * MS]


@pytest.mark.parametrize("due_ns", [1 << 62, 9 * 10**18 - 1])
def test_no_due_time_is_too_late_to_be_sent(due_ns: int) -> None:
    requests, _, _ = run([(4, 1), (4, 1)], due_ns=[0, due_ns])
    assert columns(requests, "due", "done") == [(0, MS), (due_ns, due_ns + MS)]


def test_after_the_longest_duration_nothing_is_sent_and_what_is_in_flight_ends() -> None:
    due_ns = [0, 2 * MS, 2 * MS + 1]
    requests, _, _ = run([(4, 9)] * 3, due_ns=due_ns, max_duration_s=0.002)
    assert columns(requests, "row", "done") == [(0, 9 * MS), (1, 11 * MS)]
    requests, _, _ = run([(4, 2)] * 9, due_ns=1, max_duration_s=0.004)
    assert columns(requests, "row", "sent") == [(0, 0), (1, 2 * MS), (2, 4 * MS)]


def test_a_sink_that_says_stop_ends_the_run_between_steps() -> None:
    policy = make_policy("v1", {}, 4, None)
    loop = BatchLoop(stream_of([(4, 50)] * 9, 2), policy, Millisecond(), EngineLimits(4, 64, 100))
    taken: list[int] = []

    def sink(chunk: Rows) -> bool:
        taken.append(len(chunk.steps))
        return len(taken) < 2

    assert not loop.run(sink, every=10)
    assert not loop.whole
    assert len(taken) == 2


class Silent(Mixed):
    """Has no state to log for its first asks, nor again once something finished."""

    __slots__ = ("asked", "finished", "kept")

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.finished = 0
        self.kept = PolicyState(k=7, mode="MB")

    def plan(self, view: View) -> StepPlan:
        self.asked += 1
        return StepPlan(Phase.MIXED, 1)

    def on_finish(self, output_tokens: int) -> None:
        self.finished += 1

    def state(self) -> PolicyState | None:  # type: ignore[override]
        return self.kept if self.asked > 1 and not self.finished else None


def test_steps_of_a_policy_without_state_have_none() -> None:
    stream = stream_of([(4, 2), (4, 2)], [0, 0])
    (chunk,) = chunks_of(BatchLoop(stream, Silent(), Millisecond(), EngineLimits(4, 64, 100)))
    table = step_batch(chunk)
    assert table.schema == STEPS
    assert table["policy_k"].to_pylist() == [None, 7, None]
    assert table["policy_mode"].to_pylist() == [None, "MB", None]


def test_the_rows_become_the_columns_of_the_records() -> None:
    lengths = [(16, 20), (16, 20), (1, 1), (60, 9)]
    stream = stream_of(lengths, [0, 0, 0, 0])
    limits = EngineLimits(slots=2, token_budget=64, kv_blocks=5)
    (chunk,) = chunks_of(BatchLoop(stream, make_policy("v1", {}, 2, None), Millisecond(), limits))
    table = request_batch(chunk, stream.trace, limits)
    assert table.schema == REQUESTS
    rows = {row["row"]: row for row in table.to_pylist()}
    assert rows[3]["finish"] == "too_long"
    assert rows[3]["first_token_s"] is rows[3]["last_token_s"] is rows[3]["token_gaps_s"] is None
    assert (rows[3]["done_s"], rows[3]["output_tokens"], rows[3]["expected_output_tokens"]) == (0.0, 0, 9)
    assert rows[3]["error"] == "request 3: 60 prompt + 9 output tokens exceed the KV cache of 64"
    assert rows[1]["token_gaps_s"] == pytest.approx([0.001] * 16 + [0.004, 0.001, 0.001])
    assert (rows[1]["preemptions"], rows[1]["error"]) == (1, None)
    assert rows[0]["token_gaps_s"] is None
    assert (rows[0]["finish"], rows[0]["first_token_s"], rows[0]["done_s"]) == ("length", 0.001, 0.02)
    assert rows[0]["session"] is rows[0]["turn"] is None

    steps = step_batch(chunk)
    assert steps.schema == STEPS
    last = steps.to_pylist()[-3:]
    assert [row["phase"] for row in last] == ["prefill", "decode", "decode"]
    assert [row["policy_mode"] for row in last] == ["MB"] * 3
    assert last[0] | {"t_s": 0.02, "duration_s": 0.001, "prefill_tokens": 34, "producing": 2, "running": 2} == last[0]


def test_the_error_names_the_model_length_where_that_is_the_limit() -> None:
    stream = stream_of([(60, 9)], [0])
    limits = EngineLimits(slots=2, token_budget=64, kv_blocks=50, max_model_len=68)
    (chunk,) = chunks_of(BatchLoop(stream, make_policy("v1", {}, 2, None), Millisecond(), limits))
    (row,) = request_batch(chunk, stream.trace, limits).to_pylist()
    assert row["error"] == "request 0: 60 prompt + 9 output tokens exceed max_model_len 68"
