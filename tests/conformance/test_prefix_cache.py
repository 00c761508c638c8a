"""The virtual-time engine's prefix cache and vLLM's own: the same steps, and the same tokens found at each admission.

vLLM gets the tokens of every prompt one by one, hashes them itself, and its model answers what the next turn of the
conversation goes on from. BENCH_CONFORMANCE_TRACES sets how many random traces are replayed.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.prefix_cache import PrefixCache
from harness.simulate.rows import Rows
from policies.core import StepCosts
from tests.support.conformance_cases import (
    TRACES,
    WITHOUT_STATE,
    Case,
    Told,
    check_requests,
    check_states,
    check_steps,
    random_policy,
    told_ns,
)
from tests.support.contents import tokens_of
from tests.support.emulated_engine import EmulatedEngine
from tests.support.oracle import Oracle
from workloads.core.arrivals import Arrival, Closed, Constant
from workloads.core.blocks import Blocks
from workloads.core.sessions import turns_of
from workloads.core.stream import Stream
from workloads.core.trace import Trace
from workloads.lengths.filters import with_history
from workloads.prompts.content import Content

RULES = ("hits", "own_hits", "whole_hits", "evictions", "duplicates", "preemptions", "chunked")


class Watched(PrefixCache):
    """Keeps what each admission found."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.admissions: list[tuple[int, int]] = []

    def admit(self, request: int, found: list[int], blocks: int, computed: int) -> int:
        self.admissions.append((request, len(found) * self._size))
        return super().admit(request, found, blocks, computed)


def random_trace(rng: random.Random, kind: str) -> Trace:
    n = rng.randint(20, 70)
    longest_prompt, longest_output = rng.choice([(20, 60), (120, 40), (300, 60), (60, 150)])
    prompts = np.array([rng.randint(1, longest_prompt) for _ in range(n)])
    outputs = np.array([rng.randint(1, longest_output) for _ in range(n)])
    trace = Trace("random", prompts, outputs)
    if kind == "conversations":
        session = np.array([rng.randint(1, max(1, n // rng.choice([2, 4, 8]))) for _ in range(n)])
        turn = np.array([row if rng.random() < 0.9 else rng.randint(0, 3) for row in range(n)])
        return with_history(dataclasses.replace(trace, session=session, turn=turn))
    if kind == "blocks":
        size, known = rng.choice([8, 16, 24, 64]), rng.randint(1, 3)
        # Prompts of whole blocks are found whole, and their last block is then computed again.
        whole = np.array([rng.random() < 0.5 for _ in prompts])
        prompts = np.where(whole, -(-prompts // size) * size, prompts)
        trace = dataclasses.replace(trace, prompt_tokens=prompts)
        ids = [
            [rng.randint(1, known) + 10 * place for place in range(rng.choice([0, 1, 1, 1]) * -(-prompt // size))]
            for prompt in prompts.tolist()
        ]
        return dataclasses.replace(trace, blocks=Blocks(ids, size))
    return trace


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    kind = rng.choice(["conversations", "conversations", "blocks", "blocks", "alone"])
    trace = random_trace(rng, kind)
    totals = (trace.prompt_tokens + trace.output_tokens).tolist()
    slots = rng.choice([2, 5, 16, 40])
    block_size = rng.choice([4, 16])
    tokens = rng.choice([max(totals), max(totals) * 2, sum(totals) // 4, sum(totals) // 2, 2 * sum(totals)])
    limits = EngineLimits(
        slots=slots,
        token_budget=max(slots, rng.choice([slots, 48, 128, 1024])),
        kv_blocks=2 + max(-(-tokens // block_size), -(-max(totals) // block_size) * rng.choice([0, 1])),
        block_size=block_size,
        max_model_len=1 << 16,
        watermark=rng.choice([0.0, 0.0, 0.05]),
    )
    think_ns = rng.choice([0, 1, 5000, 10**6]) if kind == "conversations" else None
    arrival: Arrival = Closed(rng.randint(1, 2 * slots))
    due = None
    if rng.random() < 0.6:
        arrival, gap = Constant(1.0), rng.choice([0.0, 0.5, 3.0, 12.0]) * 500
        due = np.cumsum([round(rng.expovariate(1) * gap) for _ in totals]).astype(np.int64)
    name, options = random_policy(rng, slots)
    ratio = rng.choice([1e-2, 1e-3])
    costs = StepCosts(ratio, 1e-4, ratio, 1e-4, ratio, rng.choice([1e-4, 1e-3]), 1e-4, 0.0)
    return Case(seed, Stream(trace, arrival, due, think_ns), limits, name, options, costs)


def job_of(case: Case, tokens: list[list[int]]) -> dict[str, Any]:
    job = case.job("due_ns", late=False, cost="ask") | {"tokens": tokens}
    if case.stream.think_ns is None:
        return job
    after = turns_of(case.stream.trace).after
    rows = range(len(case.stream.trace))
    return job | {"next_turn": [after.get(row, -1) for row in rows], "think_ns": case.stream.think_ns}


@pytest.mark.timeout(100_000)
def test_the_virtual_engines_prefix_cache_is_vllms(engine: EmulatedEngine) -> None:
    counts: Counter[str] = Counter()
    for seed in range(300_000, 300_000 + TRACES):
        case = random_case(seed)
        sessions = case.stream.think_ns is not None
        tokens = tokens_of(case.stream.trace, sessions)
        content = Content(case.stream.trace, case.limits.block_size, sessions)
        cache = Watched(content, case.limits.kv_blocks - 1, case.limits.block_size)
        chunks: list[Rows] = []
        loop = BatchLoop(case.stream, case.policy(), Told(), case.limits, cache=cache)
        assert loop.run(lambda chunk, kept=chunks: kept.append(chunk) is None)  # type: ignore[misc] # a default in a lambda
        steps = np.concatenate([chunk.steps for chunk in chunks])
        requests = np.concatenate([chunk.requests for chunk in chunks])

        replayed = engine.run(job_of(case, tokens), told_ns)
        check_steps(case, steps[:, WITHOUT_STATE], replayed.log.rows[:, WITHOUT_STATE])
        check_states(case, steps, chunks[-1].states, replayed)
        check_requests(case, requests, replayed)
        events = replayed.log.events.to_pylist()
        found = [(int(one["engine_request"]), one["tokens"]) for one in events if one["event"] == "admission"]
        assert cache.admissions == found, str(case)

        seen = Oracle(case.stream, case.policy(), Told(), case.limits, contents=tokens).run().counts
        assert cache.evictions == seen.evictions, str(case)
        counts["traces"] += 1
        counts["traces of conversations"] += sessions
        counts["traces with hash_ids"] += case.stream.trace.blocks is not None
        counts["steps"] += len(steps)
        counts["admissions"] += len(found)
        counts["tokens found"] += sum(tokens for _, tokens in found)
        counts["prefill tokens"] += int(steps[:, 3].sum())
        counts += Counter({rule: getattr(seen, rule) for rule in RULES})
    print("\nprefix cache = vLLM's:", ", ".join(f"{n:,} {what}" for what, n in sorted(counts.items())))
    for rule in RULES:
        assert counts[rule] > 20, f"{rule}: {counts[rule]}: too few to show anything"
