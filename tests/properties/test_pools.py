"""Prefill and decode apart: each engine does what it would alone, and every token is given once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.core.records import PRODUCED
from harness.core.routers import ROUTERS
from harness.simulate.rows import Rows
from policies.core import STEP_COLUMNS
from tests.properties.test_replicas import few_cases
from tests.support.batch_cases import Case, cases, phased_cases, talking_cases
from tests.support.oracle_rows import LENGTH
from tests.support.replicas_played import Together, play_decodes, play_pools, play_prompts

TRANSFERS = st.sampled_from([0, 1, 10**6, 3 * 10**7])
_OTHERS = [i for i, name in enumerate(STEP_COLUMNS) if name not in (*PRODUCED, "state")]
_ALL = list(range(len(STEP_COLUMNS) - 1))


def dues_of(together: Together, count: int) -> list[int]:
    due = [0] * count
    for row, at in zip(together.request_column("row").tolist(), together.request_column("due").tolist(), strict=True):
        due[row] = at
    return due


def arrivals_of(prompts: Rows, transfers_ns: list[int]) -> dict[int, int]:
    """When each KV cache is there: one after the other over one link."""
    ready: dict[int, int] = {}
    free = 0
    for row, done in zip(prompts.request_column("row").tolist(), prompts.request_column("done").tolist(), strict=True):
        free = ready[row] = max(free, done) + transfers_ns[row]
    return ready


@few_cases
@given(cases(), TRANSFERS)
def test_one_of_each_are_two_engines_and_a_link(case: Case, transfer_ns: int) -> None:
    transfers_ns = [transfer_ns * (1 + row % 3) for row in range(len(case.prompts))]
    together = play_pools(case, 1, 1, transfers_ns)
    ran = [row for row in range(len(case.prompts)) if case.fits(row)]
    due = dues_of(together, len(case.prompts))
    prompts = play_prompts(case, due, ran)
    decodes = play_decodes(case, due, arrivals_of(prompts, transfers_ns))
    finished = together.request_column("finish") == LENGTH
    np.testing.assert_array_equal(together.requests[finished], decodes.requests)
    for replica, alone, columns in ((0, prompts, _OTHERS), (1, decodes, _ALL)):
        mine = together.of_steps == replica
        np.testing.assert_array_equal(together.steps[mine][:, columns], alone.steps[:, columns])
    assert together.gaps == {row: gaps.tolist() for row, gaps in decodes.gaps.items()}


@few_cases
@given(st.one_of(cases(), phased_cases(), talking_cases()), st.integers(1, 3), st.integers(1, 3), TRANSFERS)
def test_every_token_is_given_once_by_an_engine_that_decodes(
    case: Case, prefill: int, decode: int, transfer_ns: int
) -> None:
    together = play_pools(case, prefill, decode, [transfer_ns] * len(case.prompts), ROUTERS[prefill % 2])
    assert sorted(together.request_column("row").tolist()) == list(range(len(case.prompts)))
    assert (together.of_requests >= prefill).all()
    outputs = together.request_column("output_tokens")
    ran = together.request_column("finish") == LENGTH
    there = together.of_steps < prefill
    produced = together.step_column("producing")
    assert produced[there].sum() == 0
    assert produced.sum() == outputs.sum()
    assert together.step_column("generated_sum").sum() == sum(o * (o + 1) // 2 for o in outputs.tolist())
    # Who computes prompts never decodes, and computes each that fits, more than once only after a preemption.
    assert not together.step_column("decode_requests")[there].any()
    computed = together.step_column("prefill_tokens")[there].sum()
    prompts = sum(case.prompts[row] for row in together.request_column("row")[ran].tolist())
    assert computed >= prompts
    assert computed == prompts or together.step_column("preempted")[there].any()
    waited = together.request_column("first")[ran] - together.request_column("due")[ran]
    assert (waited > transfer_ns).all()
