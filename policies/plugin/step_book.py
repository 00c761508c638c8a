"""What happens in the engine, step by step: the policy hears of it at once, the step log's rows are put off."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from policies.plugin.asked import AskedPolicy
from policies.plugin.step_log import ABORT, ARRIVAL
from policies.plugin.step_rows import PrefillChunk, StepRows
from policies.plugin.view import EngineView

# What is put off holds each step's tokens in memory: where no log asks for it, it is done after so many calls.
MOST_PUT_OFF = 1024
# While a policy holds all back the engine is asked again this often, s: it must hear of who arrives.
LONGEST_SLEEP_S = 1e-3


class StepBook:
    """Tells of steps and requests; looks at a request when it arrives, prefills, loses its slot or ends."""

    __slots__ = (
        "_asked",
        "_calls",
        "_partly_prefilled",
        "_rows",
        "_view",
        "clock",
        "due_ns",
        "origin_ns",
        "preempted",
        "sleep",
    )

    def __init__(self, asked: AskedPolicy, view: EngineView, rows: StepRows) -> None:
        self._asked = asked
        self._view = view
        self._rows = rows
        self._calls = rows.calls
        self._partly_prefilled = view.partly_prefilled
        self.clock: Callable[[], int] = time.monotonic_ns
        # What an engine in virtual time has otherwise: where its clock begins, when a request was due, how time passes.
        self.origin_ns = time.monotonic_ns()
        self.due_ns: Callable[[str, int], int] = _as_it_came
        self.sleep: Callable[[float], None] = _sleep
        self.preempted = 0  # by the step that is being scheduled

    def scheduled(self, begun: int, tokens: dict[str, int], running: list[Any], held: int) -> None:
        """A step has content: `tokens` a request, those from `held` on in `running` admitted in it."""
        view, preempted = self._view, self.preempted
        # Stock admits nobody in a step that preempted, and else only appends.
        admitted = running[held:] if len(running) > held and not preempted else []
        prompts = [request.num_prompt_tokens for request in admitted if not request.num_preemptions]
        chunks, complete = self._prefilled(tokens, admitted) if admitted or self._partly_prefilled else ([], 0)
        asked = self._asked
        asked.tell_of_step(prompts, len(tokens) - len(chunks), len(running), complete)
        if chunks:
            asked.changed = True
        # Nobody comes or ends while a step is scheduled.
        waiting = view.waiting - len(admitted) + preempted
        kv_tokens = (view.total_blocks - view.count_free()) * view.block_size
        now = self.clock() if admitted else begun
        first = len(chunks) - len(admitted)
        step = (begun, tokens, chunks, first, now, len(running), waiting, preempted, kv_tokens, asked.state)
        self._calls.append((self._rows.scheduled, step))

    def _prefilled(self, tokens: dict[str, int], admitted: list[Any]) -> tuple[list[PrefillChunk], int]:
        """What the step does of each prompt that is in it, `admitted` last; and how many of them it completes."""
        partly_prefilled = self._partly_prefilled
        chunks: list[PrefillChunk] = []
        complete = 0
        continued = [request for request_id, request in partly_prefilled.items() if request_id in tokens]
        for request in [*continued, *admitted]:
            request_id, partly = request.request_id, request.is_prefill_chunk
            if partly:
                partly_prefilled[request_id] = request
            else:
                complete += 1
                if partly_prefilled:
                    partly_prefilled.pop(request_id, None)
            chunk = (
                request_id,
                tokens[request_id],
                request.num_computed_tokens,
                partly,
                request.num_prompt_tokens,
                len(request._output_token_ids) + request.num_output_placeholders,
                request.max_tokens,
                request.num_preemptions,
            )
            chunks.append(chunk)
        return chunks, complete

    def came(self) -> None:
        """The tokens of the oldest step under way have come."""
        self._calls.append((self._rows.came, (self.clock(),)))
        if len(self._calls) > MOST_PUT_OFF:
            self._rows.catch_up()

    def arrived(self, request: Any) -> None:
        """A request is new to the engine: its arrival is an event of the log."""
        self._asked.changed = True
        now = self.clock()
        self._view.arrived_ns[request.request_id] = self.due_ns(request.request_id, now) - self.origin_ns
        event = (ARRIVAL, now, request.num_prompt_tokens, request.num_preemptions, request.request_id)
        self._calls.append((self._rows.event, event))

    def completed(self, request: Any) -> None:
        """A request has all its tokens."""
        num_output_tokens = len(request._output_token_ids)
        self._asked.finished.append(num_output_tokens)
        if self._partly_prefilled:
            self._partly_prefilled.pop(request.request_id, None)
        self._view.arrived_ns.pop(request.request_id, None)
        self._calls.append((self._rows.finished, (num_output_tokens, request.num_preemptions, request.request_id)))

    def left(self, kind: int, request: Any, num_output_tokens: int) -> None:
        """A request holds no slot any more, with so much output: it was preempted or aborted."""
        self._asked.changed = True
        self._partly_prefilled.pop(request.request_id, None)
        if kind == ABORT:
            self._view.arrived_ns.pop(request.request_id, None)
        event = (kind, self.clock(), num_output_tokens, request.num_preemptions, request.request_id)
        self._calls.append((self._rows.left, event))


def _as_it_came(_: str, now: int) -> int:
    return now


def _sleep(seconds: float) -> None:
    time.sleep(min(seconds, LONGEST_SLEEP_S))
