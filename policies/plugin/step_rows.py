"""The rows of the step log, made from what an engine says has happened, in the order in which it happened."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from policies.core import PolicyState
from policies.plugin.progress import Progress, statistics_of
from policies.plugin.step_log import ADMISSION, FINISH, StepLog
from policies.timed import HearsTime, TimedSteps

# A prompt's part in a step: request_id, tokens computed in the step, num_computed_tokens after it, whether some are
# left; then num_prompt_tokens, num_output_tokens (once the prompt is complete with the token on its way), max_tokens
# and num_preemptions of the request. A plain tuple: the engine's own thread makes it.
PrefillChunk = tuple[str, int, int, bool, int, int, int, int]


class StepRows:
    """Keeps what decodes (`progress`), the rows and events of the log, and what the last step held.

    An engine calls none of this itself. It puts the calls off, and `catch_up` makes them: in the thread of whoever
    asks for something, else in the log's. After an engine's own work for a thousand requests nothing of ours is left
    in the processor's caches, and each call is slow; while the GPU computes there is time for that.
    """

    __slots__ = (
        "_done",
        "_last_output",
        "_lock",
        "_state",
        "_state_id",
        "_steps",
        "calls",
        "content",
        "log",
        "pending",
        "progress",
        "timed",
    )

    def __init__(self) -> None:
        self.log: StepLog | None = None
        self.progress = Progress()
        # Of the step scheduled last: prefill tokens, Σ n(context + n/2) over its chunks, decodes, Σ of their
        # contexts and the longest of these.
        self.content: tuple[int, float, int, int, int] = (0, 0.0, 0, 0, 0)
        # When each was scheduled, what its row will be, and Σ of work and contexts as in `content`.
        self.pending: deque[tuple[int, tuple[int, ...], float, int]] = deque()
        self.timed: TimedSteps | None = None  # of steps whose tokens have come, where the policy wants to hear of time
        self._steps = 0  # scheduled so far
        self._done = 0  # steps whose output has come
        self._last_output = 0
        self._state: PolicyState | None = None
        self._state_id = -1
        self.calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()  # put off
        self._lock = threading.Lock()

    def catch_up(self) -> None:
        """Makes the calls that were put off."""
        calls = self.calls
        with self._lock:
            while calls:
                call, arguments = calls.popleft()
                call(*arguments)

    def scheduled(
        self,
        begun: int,
        tokens: dict[str, int],
        chunks: list[PrefillChunk],
        first: int,
        now: int,
        running: int,
        waiting: int,
        preempted: int,
        kv_tokens: int,
        state: PolicyState | None,
    ) -> None:
        """A step of so many `tokens` a request; its chunks from `first` on are of requests admitted in it, by `now`."""
        decodes = len(tokens) - len(chunks)
        context = longest = 0
        if decodes:
            self.progress.take_along(decodes, tokens)
            context, longest = self.progress.context()
            self.progress.tick()
        prefill_tokens, prefill_work, entered = self._prefill(chunks)
        self.content = (prefill_tokens, prefill_work, decodes, context, longest)
        if self.log is not None:
            self._log_before(self.log, chunks[first:], now, state)
        columns = (
            0 if decodes and prefill_tokens else 1 if prefill_tokens else 2,
            prefill_tokens,
            decodes,
            running,
            waiting,
            preempted,
            kv_tokens,
            *(self.progress.statistics() if decodes else statistics_of(entered)),
            self._state_id,
        )
        self.pending.append((begun, columns, prefill_work, context))
        self._steps += 1

    def _prefill(self, chunks: list[PrefillChunk]) -> tuple[int, float, list[tuple[int, int]]]:
        """Prefill tokens of a step, Σ n(context + n/2) over its chunks, and what decodes from the next step on.

        Of each prompt that is complete the last holds prompt and output tokens.
        """
        prefill_tokens, prefill_work = 0, 0.0
        entered: list[tuple[int, int]] = []
        for request_id, size, computed, partly, num_prompt_tokens, num_output_tokens, max_tokens, _ in chunks:
            prefill_tokens += size
            prefill_work += size * (computed - size / 2)
            if not partly:
                self.progress.enter(request_id, num_prompt_tokens, num_output_tokens, max_tokens)
                entered.append((num_prompt_tokens, num_output_tokens))
        return prefill_tokens, prefill_work, entered

    def _log_before(self, log: StepLog, admitted: list[PrefillChunk], now: int, state: PolicyState | None) -> None:
        """Writes down what stands before a step's row: its admissions, and the policy's state where that changed."""
        for request_id, size, computed, *_, preemptions in admitted:
            log.event(ADMISSION, now, self._steps, computed - size, preemptions, request_id)
        if state is not self._state:
            self._state = state
            self._state_id += 1
            log.state(state or PolicyState())

    def came(self, now: int) -> None:
        """The tokens of the oldest step under way have come: its row is complete."""
        begun, columns, prefill_work, context = self.pending.popleft()
        # With async scheduling a step is scheduled while the one before runs: it starts when that ends.
        start = max(begun, self._last_output)
        self._last_output = now
        self._done += 1
        if self.log is not None:
            self.log.step((start, now - start, *columns))
        if self.timed is not None:
            _, prefill_tokens, decodes, _, _, preempted, *_ = columns
            self.timed.add(1, prefill_tokens, prefill_work, decodes, context, now - start, preempted)

    def tell_of_time(self, hear: HearsTime) -> None:
        """Tells a policy what its steps took, all whose tokens have come."""
        self.catch_up()
        if self.timed is not None:
            self.timed.tell(hear)

    def finished(self, tokens: int, preemptions: int, request_id: str) -> None:
        """A request has all its tokens, with the output that came last."""
        self.progress.leave(request_id)
        if self.log is not None:
            self.log.event(FINISH, self._last_output, self._done - 1, tokens, preemptions, request_id)

    def left(self, kind: int, now: int, tokens: int, preemptions: int, request_id: str) -> None:
        """A request holds no slot any more, before the next step has run."""
        self.progress.leave(request_id)
        self.event(kind, now, tokens, preemptions, request_id)

    def event(self, kind: int, now: int, tokens: int, preemptions: int, request_id: str) -> None:
        """Something of a `kind` of EVENTS happened to a request before the next step has run."""
        if self.log is not None:
            self.log.event(kind, now, self._steps, tokens, preemptions, request_id)
