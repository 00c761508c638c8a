"""What a run hands over as it goes: a row a request and a row a step, integers in nanoseconds and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np

from policies.core import PolicyState
from policies.step_log import STEP_COLUMNS
from workloads.trace import Ints

REQUEST_FIELDS = ("row", "due", "sent", "first", "last", "done", "output_tokens", "preemptions", "finish")
# Places in harness.records.FINISHES.
FINISH_LENGTH = 0
FINISH_TOO_LONG = 2

# An array takes an iterable's numbers one by one, which costs four times as much.
pack_request = Struct(f"{len(REQUEST_FIELDS)}q").pack
pack_step = Struct(f"{len(STEP_COLUMNS)}q").pack


@dataclass(slots=True)
class Chunk:
    """Rows since the last one, and the gaps of requests that were preempted."""

    requests: Ints  # (rows, len(REQUEST_FIELDS))
    steps: Ints  # (rows, len(STEP_COLUMNS))
    gaps: dict[int, Ints]  # stream row -> gaps between its tokens
    states: list[PolicyState]  # all so far; a step's `state` is an index, -1 where the policy has none
    now_ns: int
    finished: int
    found: list[int | None] | None = None  # of each request row the prompt tokens that a prefix cache had


class Log:
    """The rows that no chunk has yet, packed one after the other, and the states that the steps point to."""

    def __init__(self) -> None:
        self.requests = bytearray()
        self.steps = bytearray()
        self.states: list[PolicyState] = []
        self.held: PolicyState | None = None  # the policy's state, and its place among them
        self.state = -1

    def hold(self, state: PolicyState | None) -> None:
        """What the policy holds to be true from the next step on."""
        self.held = state
        self.state = -1
        if state is not None:
            self.state = len(self.states)
            self.states.append(state)

    def drain(self) -> tuple[Ints, Ints]:
        """The rows of requests and of steps since the last call."""
        requests = np.frombuffer(self.requests, dtype=np.int64).reshape(-1, len(REQUEST_FIELDS))
        steps = np.frombuffer(self.steps, dtype=np.int64).reshape(-1, len(STEP_COLUMNS))
        self.requests, self.steps = bytearray(), bytearray()
        return requests, steps
