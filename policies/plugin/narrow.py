"""A step as the policy plans it, made by vLLM's own `schedule()`: it is shown less than there is, and all is put back.

A prefill step hides the decoding requests, a decode step lets nobody in, a mixed step is stock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from policies.core import UNLIMITED, Phase, StepPlan
from policies.plugin.requirements import admission_limit

MIXED, DECODE = Phase.MIXED, Phase.DECODE

# An empty output carries these to the workers once; they go along with the step that takes its place.
ONE_SHOT_SETS = ("finished_req_ids", "preempted_req_ids")
ONE_SHOT_LISTS = ("free_encoder_mm_hashes", "new_block_ids_to_zero", "kv_cache_block_copies")


class BesideDecodes(list[Any]):
    """What a prefill step sees of `running`; hidden decodes still run, so the watermark holds."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


class Narrowing:
    """Stock `schedule()` of a scheduler, within a plan; `slots` is the admission limit that it has by itself."""

    __slots__ = ("_budget", "_last", "_limit_name", "_partly_prefilled", "_scheduler", "_slots", "_stock")

    def __init__(self, scheduler: Any, stock: Callable[..., Any], slots: int, partly_prefilled: dict[str, Any]) -> None:
        self._scheduler = scheduler
        self._stock = stock
        self._slots = slots
        self._partly_prefilled = partly_prefilled
        self._limit_name = admission_limit(scheduler)
        self._budget: int = scheduler.max_num_scheduled_tokens
        self._last: Iterable[str] = ()  # ids of the requests in the last output

    def schedule(self, plan: StepPlan, args: Any, kwargs: Any) -> Any:
        """The output of a step that holds what the plan allows."""
        if plan.phase is not MIXED:
            output = self._one_phase(plan, args, kwargs)
        elif plan.admit >= UNLIMITED and plan.tokens >= self._budget:
            output = self._stock(*args, **kwargs)
        else:
            running = self._scheduler.running
            # Partly computed prompts stand behind all that decode: these take their tokens first. Who has all its
            # tokens on the way (async scheduling) takes none, and leaves one to the prompts: to count them costs more.
            tokens = len(running) - len(self._partly_prefilled) + plan.tokens
            output = self._limited(running, [], len(running) + self._paused() + plan.admit, args, kwargs, tokens)
        self._last = output.num_scheduled_tokens
        return output

    def _one_phase(self, plan: StepPlan, args: Any, kwargs: Any) -> Any:
        scheduler, paused = self._scheduler, self._paused()
        running = scheduler.running
        partials = list(self._partly_prefilled.values())
        decoding = self._without_partials(running, partials) if partials else running
        if plan.phase is DECODE:
            return self._limited(decoding, partials, len(decoding) + paused, args, kwargs)
        limit = min(self._slots - len(decoding), len(partials) + paused + plan.admit)
        if not decoding:
            return self._limited(running, [], limit, args, kwargs, plan.tokens)
        scheduler.running = BesideDecodes(partials)
        try:
            output = self._limited(scheduler.running, [], limit, args, kwargs, plan.tokens)
        finally:
            scheduler.running = [*decoding, *scheduler.running]
        if output.num_scheduled_tokens:
            return output
        return self._decode_instead(output, len(decoding), paused, args, kwargs)

    def _without_partials(self, running: list[Any], partials: list[Any]) -> list[Any]:
        """The running requests that decode; those whose prompts are partly computed mostly stand at the end."""
        if running[-len(partials) :] == partials:
            return running[: -len(partials)]
        return [request for request in running if request.request_id not in self._partly_prefilled]

    def _paused(self) -> int:
        # A paused session's slot counts for vLLM, though it is not in `running`.
        return getattr(self._scheduler, "num_waiting_for_streaming_input", 0)

    def _limited(
        self, running: list[Any], hidden: list[Any], limit: int, args: Any, kwargs: Any, tokens: int = UNLIMITED
    ) -> Any:
        """Stock `schedule()` on these running requests, with admission up to `limit` of them, of at most `tokens`."""
        scheduler = self._scheduler
        scheduler.running = running
        setattr(scheduler, self._limit_name, min(self._slots, limit))
        scheduler.max_num_scheduled_tokens = min(self._budget, tokens)
        try:
            return self._stock(*args, **kwargs)
        finally:
            setattr(scheduler, self._limit_name, self._slots)
            scheduler.max_num_scheduled_tokens = self._budget
            if hidden:
                scheduler.running = [*scheduler.running, *hidden]

    def _decode_instead(self, empty: Any, count: int, paused: int, args: Any, kwargs: Any) -> Any:
        """A prefill that looked possible came to nothing: the first `count` running requests decode in its step."""
        scheduler = self._scheduler
        # What the workers were given last is still theirs.
        if hasattr(scheduler, "prev_step_scheduled_req_ids"):
            scheduler.prev_step_scheduled_req_ids.update(self._last)
        running = scheduler.running
        output = self._limited(running[:count], running[count:], count + paused, args, kwargs)
        merge_one_shot(empty, output)
        return output


def merge_one_shot(empty: Any, output: Any) -> None:
    """Moves what an empty output would have told the workers once into the output that takes its place."""
    for name in ONE_SHOT_SETS:
        ids = getattr(empty, name, None)
        if ids:
            setattr(output, name, ids | (getattr(output, name) or set()))
    for name in ONE_SHOT_LISTS:
        entries = getattr(empty, name, None)
        if entries:
            setattr(output, name, [*entries, *(getattr(output, name) or [])])
