"""The virtual-time engine: the stream replayed by the batch loop against a cost model."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Protocol

from harness.simulate.batch import BatchLoop, Chunk, EngineLimits
from harness.simulate.cost import CostModel
from harness.simulate.rows import request_batch, step_batch
from harness.store import RunWriter
from policies.core import Policy
from workloads.arrivals import Stream


class Progress(Protocol):
    """Is told how far a run has come."""

    def __call__(self, finished: int, now_s: float, output_tokens: int) -> None:
        """`finished` requests have ended by virtual time `now_s`; they gave `output_tokens`."""


def simulate(
    stream: Stream,
    policy: Policy,
    cost: CostModel,
    limits: EngineLimits,
    writer: RunWriter,
    progress: Progress,
    stopped: Callable[[], bool],
    max_duration_s: float | None = None,
) -> tuple[bool, int]:
    """Replays the stream into the run directory; whether all of it ran, and how many requests were sent.

    After `max_duration_s` of virtual time nothing more is sent and what is in flight ends. `stopped` is asked
    between chunks; True leaves the rest unsent and what is in flight without a row.
    """
    output_tokens = 0

    def sink(chunk: Chunk) -> bool:
        nonlocal output_tokens
        if len(chunk.requests):
            writer.add_requests(request_batch(chunk, stream.trace, limits))
            output_tokens += int(chunk.requests[:, 6].sum())
        if len(chunk.steps):
            writer.add_steps(step_batch(chunk))
        progress(chunk.finished, chunk.now_ns / 1e9, output_tokens)
        return not stopped()

    loop = replay(stream, policy, cost, limits, sink, max_duration_s)
    return loop.whole, loop.sent


def replay(
    stream: Stream,
    policy: Policy,
    cost: CostModel,
    limits: EngineLimits,
    sink: Callable[[Chunk], bool],
    max_duration_s: float | None = None,
) -> BatchLoop:
    """Runs the batch loop to its end, handing its rows to `sink`; returns the loop as it then is."""
    loop = BatchLoop(stream, policy, cost, limits, max_duration_s=max_duration_s)
    # The loop makes no cycles; the collector would walk its long lists again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        loop.run(sink)
    finally:
        if collecting:
            gc.enable()
    return loop
