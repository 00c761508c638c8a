"""Whether answers reached the client as the engine made them, or bunched by whoever stood between."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.measure.columns import MISSING, Bools, Requests, integers, nanoseconds
from harness.measure.statistics import Ints

# Shorter than this is the resolution of a busy machine, not a bunch.
FLOOR_NS = 5_000_000
# Of the shorter of a request's TTFT and its decode time: what bends both by more than they are told apart by.
SHARE = 0.1
# Steps by which a stamp may come after its tokens without a clock being wrong.
GRACE = 2


def first_token_lag(requests: Requests, steps: Any) -> Ints:
    """How long after the engine made it each completed request's first token came to the client, at least, ns.

    A request gains at most one token a step. Its last token was made no later than the last step that ended before
    the client had it, so its first no later than as many steps earlier as tokens lie between. A step's stamp and the
    leaving of its tokens may lie milliseconds apart, so it is the next step's end that counts. Preemptions and pauses
    between the request's steps make the bound lower, never higher.
    """
    ends, first_steps = _first_token_steps(requests, steps)
    if not len(ends):
        return np.zeros(len(first_steps), dtype=np.int64)
    next_ends = ends[np.clip(first_steps + 1, 0, len(ends) - 1)]
    lag: Ints = np.maximum(requests.first[_timed(requests)] - next_ends, 0)
    return lag


def impossible(requests: Requests, steps: Any) -> int:
    """How many answers came before the engine can have made them: the clocks of the two tables differ."""
    _, first_steps = _first_token_steps(requests, steps)
    return int(np.count_nonzero(first_steps < -GRACE))


def _timed(requests: Requests) -> Bools:
    """Which requests were completed and have the times of their first and last token."""
    timed: Bools = requests.completed & (requests.first != MISSING) & (requests.last != MISSING)
    return timed


def _first_token_steps(requests: Requests, steps: Any) -> tuple[Ints, Ints]:
    """The ends of the steps that gave tokens, ns, and by which of them each completed request had its first."""
    timed = _timed(requests)
    producing = integers(steps.column("producing")) > 0
    ends = np.sort((nanoseconds(steps.column("t_s")) + nanoseconds(steps.column("duration_s")))[producing])
    last_steps = np.searchsorted(ends, requests.last[timed], side="right") - 1
    return ends, last_steps - (requests.output_tokens[timed] - 1)


def bunched(requests: Requests, steps: Any) -> float | str:
    """The share of completed requests, %, whose first token came late enough to bend their TTFT or TPOT by SHARE.

    Text where the steps cannot tell.
    """
    timed = _timed(requests)
    if not timed.any():
        return "no request was completed"
    producing = steps.column("producing")
    if producing.null_count:
        return "the step log does not say which requests produce tokens"
    if int(integers(producing).sum()) < int(requests.output_tokens[timed].sum()):
        return "a step gave a request more than one token"
    lag = first_token_lag(requests, steps)
    first, last, sent = requests.first[timed], requests.last[timed], requests.sent[timed]
    decode = np.where(requests.output_tokens[timed] > 1, last - first + lag, np.iinfo(np.int64).max)
    late = (lag > FLOOR_NS) & (lag > SHARE * np.minimum(first - sent, decode))
    return 100 * float(np.mean(late))
