"""What a policy sees of vLLM's scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from policies.core import PartialPrefill
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
        "block_size",
        "count_free",
        "decoding",
        "partly_prefilled",
        "prefilling",
        "slots",
        "token_budget",
        "total_blocks",
        "waiting",
        "watermark_blocks",
    )

    def __init__(self, scheduler: Any, slots: int, rows: StepRows) -> None:
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

    def look(self, held: int) -> None:
        """Counts before a step, in which `held` requests hold a slot."""
        self.waiting = _length(self._scheduler.waiting) + _length(self._others())
        self.prefilling = len(self.partly_prefilled)
        self.decoding = held - self.prefilling

    def _others(self) -> Any:
        """Waiting requests that vLLM keeps apart: those that were skipped, or hold KV blocks."""
        return getattr(self._scheduler, self._other_name) if self._other_name else ()

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
