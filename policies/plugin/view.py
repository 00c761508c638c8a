"""What a policy sees of vLLM's scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from policies.core import PartialPrefill, WaitingRequest
from policies.plugin.queue import as_waiting
from policies.plugin.requirements import other_queue
from policies.plugin.step_rows import StepRows


class EngineView:
    """The policy's View of the scheduler: counts as of the step's start, free blocks as they are.

    It looks at single requests only where a policy asks for them.
    """

    __slots__ = (
        "_other_name",
        "_rows",
        "_scheduler",
        "_ttft_s",
        "arrived_ns",
        "block_size",
        "count_free",
        "decoding",
        "now_ns",
        "partly_prefilled",
        "prefilling",
        "slots",
        "token_budget",
        "total_blocks",
        "waiting",
        "watermark_blocks",
    )

    def __init__(self, scheduler: Any, slots: int, rows: StepRows, ttft_s: float | None = None) -> None:
        manager = scheduler.kv_cache_manager
        self._scheduler = scheduler
        self.count_free: Callable[[], int] = manager.block_pool.get_num_free_blocks
        self._other_name = other_queue(scheduler)
        self._rows = rows
        self.partly_prefilled: dict[str, Any] = {}  # by request id, in order of admission
        self.slots = slots
        self.token_budget: int = scheduler.max_num_scheduled_tokens
        self.block_size: int = scheduler.block_size
        self.total_blocks: int = manager.block_pool.num_gpu_blocks - 1  # one is the null block
        self.watermark_blocks: int = getattr(manager, "watermark_blocks", 0)
        self.waiting = self.prefilling = self.decoding = 0
        self.arrived_ns: dict[str, int] = {}  # of each request that has not ended, on the clock of `now_ns`
        self.now_ns = 0
        self._ttft_s = ttft_s

    def look(self, held: int, now_ns: int = 0) -> None:
        """Counts before a step at `now_ns`, in which `held` requests hold a slot."""
        self.now_ns = now_ns
        self.waiting = _length(self._scheduler.waiting) + _length(self._others())
        self.prefilling = len(self.partly_prefilled)
        self.decoding = held - self.prefilling

    def _others(self) -> Any:
        """Waiting requests that vLLM keeps apart: those that were skipped, or hold KV blocks."""
        return getattr(self._scheduler, self._other_name) if self._other_name else ()

    @property
    def now_s(self) -> float:
        """The engine's clock when this step was scheduled, s."""
        return self.now_ns / 1e9

    def times(self, request_id: str) -> tuple[float, float | None]:
        """When a request came and by when it should have its first token, s."""
        arrival_s = self.arrived_ns.get(request_id, 0) / 1e9
        return arrival_s, None if self._ttft_s is None else arrival_s + self._ttft_s

    def waiting_requests(self) -> Iterator[WaitingRequest]:
        """The requests in the queue, in its order."""
        for queue in (self._others(), self._scheduler.waiting):
            for request in queue:
                yield as_waiting(request, None, *self.times(request.request_id))

    @property
    def free_blocks(self) -> int:
        """KV blocks that are free at this moment."""
        return self.count_free()

    def waiting_tokens(self) -> Iterator[int]:
        """Tokens to prefill of each waiting request, first come first."""
        for queue in (self._others(), self._scheduler.waiting):
            for request in queue:
                yield request.num_tokens

    def num_output_tokens(self) -> list[int]:
        """Output tokens so far of each decoding request, descending; those in flight count."""
        self._rows.catch_up()
        return self._rows.progress.num_output_tokens()

    def footprints(self) -> list[int]:
        """Prompt plus output tokens so far of each decoding request, descending."""
        self._rows.catch_up()
        return self._rows.progress.footprints()

    def partial_prefills(self) -> list[PartialPrefill]:
        """The requests whose prompts are partly computed, in order of admission."""
        return [_as_partial_prefill(request) for request in self.partly_prefilled.values()]


def _as_partial_prefill(request: Any) -> PartialPrefill:
    tokens_left = request.num_tokens - request.num_computed_tokens
    return PartialPrefill(tokens_left, request.num_prompt_tokens, len(request._output_token_ids))


def _length(queue: Any) -> int:
    """How many are in a queue; the `__len__` of vLLM's own is Python, and would take longer than all else in a look."""
    return deque.__len__(queue) if isinstance(queue, deque) else len(queue)
