"""Runs of several replicas, and one of them alone with what it was given."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness.core.routers import LEAST_LOADED
from harness.engines.pools import prompts_alone
from harness.simulate.arrivals import NEVER, Arrivals
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import too_long
from harness.simulate.pools import Pools
from harness.simulate.replicas import Replicas
from harness.simulate.router import Desk, Router
from harness.simulate.rows import REQUEST_FIELDS, Rows
from policies.core import STEP_COLUMNS, Policy, PolicyState
from tests.support.batch_cases import Case
from workloads.core.stream import Stream

Ints = npt.NDArray[np.int64]


@dataclass
class Together:
    """What replicas did together, their chunks put together."""

    replicas: Replicas
    chunks: list[Rows] = field(default_factory=list)
    states: list[PolicyState] = field(default_factory=list)

    @property
    def requests(self) -> Ints:
        return np.concatenate([chunk.requests for chunk in self.chunks])

    @property
    def steps(self) -> Ints:
        return np.concatenate([chunk.steps for chunk in self.chunks])

    @property
    def of_requests(self) -> Ints:
        return np.concatenate([chunk.request_replicas for chunk in self.chunks if chunk.request_replicas is not None])

    @property
    def of_steps(self) -> Ints:
        return np.concatenate([chunk.step_replicas for chunk in self.chunks if chunk.step_replicas is not None])

    @property
    def gaps(self) -> dict[int, list[int]]:
        return {row: gaps.tolist() for chunk in self.chunks for row, gaps in chunk.gaps.items()}

    def request_column(self, name: str) -> Ints:
        return self.requests[:, REQUEST_FIELDS.index(name)]

    def step_column(self, name: str) -> Ints:
        return self.steps[:, STEP_COLUMNS.index(name)]

    def held(self, which: npt.NDArray[np.bool_]) -> list[PolicyState | None]:
        """What the policy held at these steps."""
        return [self.states[i] if i >= 0 else None for i in self.step_column("state")[which].tolist()]


def loop_of(
    case: Case,
    policy: Policy,
    desk: Desk,
    states: list[PolicyState],
    stream: Stream | None = None,
    computed: bool = False,
) -> BatchLoop:
    limit, stream = case.max_duration_s, stream or case.stream
    loop = BatchLoop(
        stream, policy, case.model, case.limits, True, limit, case.hints, case.cache(), desk=desk, states=states
    )
    loop.state.prompts_come_computed = computed
    return loop


def play_together(case: Case, replicas: int, rule: str = LEAST_LOADED) -> Together:
    refused = too_long(case.stream.trace, case.limits)
    limit = NEVER if case.max_duration_s is None else round(case.max_duration_s * 1e9)
    states: list[PolicyState] = []
    together = Together(
        Replicas(
            Arrivals(case.stream, limit, refused),
            refused,
            Router(rule, replicas),
            [lambda desk: loop_of(case, case.new_policy(), desk, states)] * replicas,
            case.due_ns is None or case.talks is not None,
        ),
        states=states,
    )

    return _run(together, case)


def play_pools(case: Case, prefill: int, decode: int, transfers_ns: list[int], rule: str = LEAST_LOADED) -> Together:
    refused = too_long(case.stream.trace, case.limits)
    states: list[PolicyState] = []
    prompts = prompts_alone(case.stream)
    makers = [lambda desk: loop_of(case, case.new_policy(), desk, states, prompts)] * prefill
    makers += [lambda desk: loop_of(case, case.new_policy(), desk, states, computed=True)] * decode
    pools = Pools(Arrivals(case.stream, NEVER, refused), refused, rule, prefill, makers, transfers_ns)
    return _run(Together(pools, states=states), case)


def _run(together: Together, case: Case) -> Together:
    def sink(chunk: Rows) -> bool:
        together.chunks.append(chunk)
        return True

    assert together.replicas.run(sink, case.every)
    assert together.replicas.whole
    return together


class Script(Desk):
    """Lays rows here when they are due, as if nobody else were there."""

    def __init__(self, due: list[int], rows: list[int], ready: dict[int, int] | None = None) -> None:
        super().__init__(due)
        self._ready = {row: due[row] for row in rows} if ready is None else ready
        # Of equal times those given first.
        self._left = sorted(rows if ready is None else ready, key=self._ready.__getitem__)
        self._look()

    def _look(self) -> None:
        self.next_due = self.horizon = self._ready[self._left[0]] if self._left else NEVER

    def take(self, now: int) -> list[int]:
        """Those that are due by `now`."""
        ready = sum(self._ready[row] <= now for row in self._left)
        rows, self._left = self._left[:ready], self._left[ready:]
        self._look()
        return rows


def play_alone(case: Case, due: list[int], rows: list[int]) -> Rows:
    """One engine that gets these rows when they are due."""
    return _alone(loop_of(case, case.new_policy(), Script(due, sorted(rows)), []))


def play_prompts(case: Case, due: list[int], rows: list[int]) -> Rows:
    """One engine that computes the prompts of these rows when they are due, and gives one token each."""
    return _alone(loop_of(case, case.new_policy(), Script(due, sorted(rows)), [], prompts_alone(case.stream)))


def play_decodes(case: Case, due: list[int], ready: dict[int, int]) -> Rows:
    """One engine that gets prompts computed, each at its time."""
    return _alone(loop_of(case, case.new_policy(), Script(due, [], ready), [], computed=True))


def _alone(loop: BatchLoop) -> Rows:
    kept: list[Rows] = []

    def sink(chunk: Rows) -> bool:
        kept.append(chunk)
        return True

    assert loop.run(sink, 1 << 40)
    (whole,) = kept
    return whole
