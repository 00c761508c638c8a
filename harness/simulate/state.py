"""The engine between two steps: who runs, who waits, and what a policy may see of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sized

from harness.simulate.decode_batch import DecodeBatch
from harness.simulate.limits import EngineLimits
from policies.core import Order, PartialPrefill, WaitingRequest
from workloads.core.trace import Trace
from workloads.lengths.hints import Hints


class State:
    """Requests by their row in the trace; a policy looks at it as its View."""

    def __init__(self, trace: Trace, limits: EngineLimits, order: Order | None, hints: Hints | None) -> None:
        self.slots = limits.slots
        self.token_budget = limits.token_budget
        self.block_size = limits.block_size
        self.total_blocks = self.free_blocks = limits.kv_blocks - 1
        self.watermark_blocks = int(limits.watermark * limits.kv_blocks)
        self.waiting = self.prefilling = self.decoding = 0
        self.prompt: list[int] = trace.prompt_tokens.tolist()
        self.output: list[int] = trace.output_tokens.tolist()
        self.preemptions: dict[int, int] = {}  # of those that were preempted, how often
        self.had: dict[int, int] = {}  # and the tokens that they had, where they had any
        self.running: dict[int, None] = {}  # in order of admission
        self.partial = -1  # the one of them whose prompt is only partly computed
        self.partial_done = 0
        self.batch = DecodeBatch(self.prompt, self.output, limits.block_size)
        self.order = order
        self.queue: deque[int] = deque()  # all that wait, where the policy has no order
        self.line: Sized = self.queue if order is None else order
        self._low: list[int] | None = None if hints is None else hints.low.tolist()
        self._high: list[int] | None = None if hints is None else hints.high.tolist()

    # What a policy may read besides the counts.

    def waiting_tokens(self) -> Iterator[int]:
        """Tokens to prefill of each waiting request, in order."""
        if self.order is not None:
            return (request.num_prompt_tokens + request.num_output_tokens for request in self.order)
        if not self.had:
            return map(self.prompt.__getitem__, self.queue)
        return map(self.to_compute, self.queue)

    def num_output_tokens(self) -> list[int]:
        """Output tokens so far of each decoding request, descending."""
        clock = self.batch.clock
        return [clock - birth for birth in self.batch.births]

    def footprints(self) -> list[int]:
        """Prompt plus output tokens so far of each decoding request, descending."""
        clock = self.batch.clock
        return [clock - shift for shift in self.batch.shifts]

    def partial_prefills(self) -> list[PartialPrefill]:
        """The one request whose prompt is only partly computed, if there is one."""
        request = self.partial
        if request < 0:
            return []
        left = self.to_compute(request) - self.partial_done
        return [PartialPrefill(left, self.prompt[request], self.had.get(request, 0))]

    # What the engine does with those that wait.

    def to_compute(self, request: int) -> int:
        """Tokens that its prefill computes: a preempted request's output again."""
        return self.prompt[request] + self.had.get(request, 0)

    def push(self, came: list[int]) -> None:
        """These have arrived."""
        if self.order is None:
            self.queue.extend(came)
        else:
            for request in came:
                self.order.push(self._as_waiting(request))

    def push_front(self, request: int) -> None:
        """It was preempted."""
        if self.order is None:
            self.queue.appendleft(request)
        else:
            self.order.push_front(self._as_waiting(request))

    def _as_waiting(self, request: int) -> WaitingRequest:
        low = None if self._low is None else self._low[request]
        high = None if self._high is None else self._high[request]
        return WaitingRequest(request, self.prompt[request], self.had.get(request, 0), low, high)
