"""The steps in which requests only grow, taken at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.profiles.cost import CostModel
from harness.simulate.state import State
from policies.core import STEP_COLUMNS, Phase, StepPlan
from workloads.core.trace import Ints

# An enum's members cost a look-up each time.
MIXED, PREFILL, _ = Phase
# Below this many steps the numpy calls of a leap cost more than taking the steps.
SHORTEST = 8
LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Leap:
    """Steps of decodes alone: their rows but for the policy's state, when each ends, ns, and the blocks they take."""

    rows: Ints  # (steps, len(STEP_COLUMNS))
    ends: Ints  # (steps,)
    blocks: int


def leap_ahead(state: State, plan: StepPlan, most: int, cost: CostModel, now: int, until: int) -> Leap | None:
    """The steps before the next completion or block shortage, up to the one in which `until` falls (ns).

    There are at most `most` of them. None where there is none to take, or someone may start in them.
    """
    batch = state.batch
    if most < SHORTEST or not state.decoding or state.partial >= 0 or plan.phase is PREFILL:
        return None
    if state.order is not None and state.waiting_queue:
        return None
    ends_at, clock = batch.ends_at, batch.clock
    steps = 0
    longest = min(most, LONGEST)
    while steps < longest and clock + steps + 1 not in ends_at:
        steps += 1
    if steps < SHORTEST or (plan.phase is MIXED and _can_admit(state)):
        return None
    ahead = np.arange(1, steps + 1, dtype=np.int64)
    needing = np.array([len(requests) for requests in batch.needs_at], dtype=np.int64)
    blocks = needing[(clock + ahead) % state.block_size].cumsum()
    steps = int(np.searchsorted(blocks, state.free_blocks, side="right"))
    if not steps:
        return None
    n = state.decoding
    seconds = cost.decode_seconds(n, *batch.context(), steps)
    durations = np.rint(seconds * 1e9).astype(np.int64)
    ends = now + durations.cumsum()
    steps = min(steps, int(np.searchsorted(ends, until, side="left")) + 1)
    ends, durations, clocks, blocks = ends[:steps], durations[:steps], clock + ahead[:steps], blocks[:steps]
    kv_tokens = (state.total_blocks - state.free_blocks + blocks) * state.block_size
    rows = np.zeros((steps, len(STEP_COLUMNS)), dtype=np.int64)
    # The last of STEP_COLUMNS, the policy's state, is known to the log.
    columns = (ends - durations, durations, 2, 0, n, n, len(state.waiting_queue), 0, kv_tokens, *batch.produced(clocks))
    for i, values in enumerate(columns):
        rows[:, i] = values
    return Leap(rows, ends, int(blocks[-1]))


def _can_admit(state: State) -> bool:
    """Whether a mixed step would start the first that waits, first come first served."""
    if not state.fcfs_queue or len(state.running) >= state.slots or state.token_budget <= state.decoding:
        return False
    blocks = -(-state.num_tokens(state.fcfs_queue[0]) // state.block_size)
    return blocks + state.watermark_blocks <= state.free_blocks
