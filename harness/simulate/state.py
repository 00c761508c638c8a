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

    def __init__(
        self,
        trace: Trace,
        limits: EngineLimits,
        order: Order | None,
        hints: Hints | None,
        due_ns: list[int],
        ttft_s: float | None = None,
    ) -> None:
        self.now_ns = 0
        self.slots = limits.slots
        self.token_budget = limits.token_budget
        self.block_size = limits.block_size
        self.total_blocks = self.free_blocks = limits.kv_blocks - 1
        self.watermark_blocks = int(limits.watermark * limits.kv_blocks)
        self.waiting = self.prefilling = self.decoding = 0
        self.num_prompt_tokens: list[int] = trace.prompt_tokens.tolist()
        self.max_tokens: list[int] = trace.output_tokens.tolist()
        self.preemptions: dict[int, int] = {}  # of those that were preempted, how often
        self.preempted_output_tokens: dict[int, int] = {}  # and the output tokens that they had, where they had any
        self.running: dict[int, None] = {}  # in order of admission
        self.partial = -1  # the one of them whose prompt is only partly computed
        self.num_computed_tokens = 0  # of its prompt
        self.batch = DecodeBatch(self.num_prompt_tokens, self.max_tokens, limits.block_size)
        self.prompts_come_computed = False  # with the KV cache that another engine made of them
        self.order = order
        self.fcfs_queue: deque[int] = deque()  # all that wait, where the policy has no order
        self.waiting_queue: Sized = self.fcfs_queue if order is None else order
        self._low: list[int] | None = None if hints is None else hints.low.tolist()
        self._high: list[int] | None = None if hints is None else hints.high.tolist()
        self._due_ns = due_ns
        self._ttft_s = ttft_s

    # What a policy may read besides the counts.

    @property
    def now_s(self) -> float:
        """Virtual time before the coming step, s."""
        return self.now_ns / 1e9

    def waiting_requests(self) -> Iterator[WaitingRequest]:
        """The requests in the queue, in its order."""
        return iter(self.order) if self.order is not None else map(self._as_waiting, self.fcfs_queue)

    def waiting_tokens(self) -> Iterator[int]:
        """Tokens to prefill of each waiting request, in order."""
        if self.order is not None:
            return (waiting.num_prompt_tokens + waiting.num_output_tokens for waiting in self.order)
        if not self.preempted_output_tokens:
            return map(self.num_prompt_tokens.__getitem__, self.fcfs_queue)
        return map(self.num_tokens, self.fcfs_queue)

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
        left = self.num_tokens(request) - self.num_computed_tokens
        return [PartialPrefill(left, self.num_prompt_tokens[request], self.preempted_output_tokens.get(request, 0))]

    # What the engine does with those that wait.

    def num_tokens(self, request: int) -> int:
        """Tokens that a waiting request's prefill computes: a preempted one's output again."""
        return self.num_prompt_tokens[request] + self.preempted_output_tokens.get(request, 0)

    def push(self, arrived: list[int]) -> None:
        """Queue requests that have arrived."""
        if self.order is None:
            self.fcfs_queue.extend(arrived)
        else:
            for request in arrived:
                self.order.push(self._as_waiting(request))

    def push_front(self, request: int) -> None:
        """Queue a preempted request ahead of all that have never run."""
        if self.order is None:
            self.fcfs_queue.appendleft(request)
        else:
            self.order.push_front(self._as_waiting(request))

    def _as_waiting(self, request: int) -> WaitingRequest:
        low = None if self._low is None else self._low[request]
        high = None if self._high is None else self._high[request]
        prompt, output = self.num_prompt_tokens[request], self.preempted_output_tokens.get(request, 0)
        arrival_s = self._due_ns[request] / 1e9
        deadline_s = None if self._ttft_s is None else arrival_s + self._ttft_s
        return WaitingRequest(request, prompt, output, low, high, arrival_s, deadline_s)
