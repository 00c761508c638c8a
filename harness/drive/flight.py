"""A request under way, and the row that it becomes."""

from __future__ import annotations

import asyncio

from harness.drive.endpoint import is_of
from harness.drive.openai_stream import Answer
from harness.drive.settings import Result
from harness.drive.wire import Connection


class Flight:
    """A request that was due and has not ended."""

    __slots__ = ("answer", "connection", "due_ns", "place", "resent", "retries", "sent_ns", "timers")

    def __init__(self, place: int, due_ns: int, answer: Answer) -> None:
        self.place = place
        self.due_ns = due_ns
        self.sent_ns: int | None = None
        self.resent = False
        self.retries = 0
        self.answer = answer
        self.connection: Connection | None = None
        self.timers: list[asyncio.TimerHandle] = []

    def result(self, done_ns: int | None, finish: str, error: str | None, request_id: str) -> Result:
        """How it ended at `done_ns`, and whether what answered it bears its id."""
        answer, connection = self.answer, self.connection
        head_id = "" if connection is None else connection.echoed_id.decode("latin-1")
        return Result(
            self.place,
            self.due_ns,
            self.sent_ns,
            done_ns,
            memoryview(answer.stamps),
            answer.output_tokens,
            answer.prompt_tokens,
            finish,
            error,
            None if answer.tokens is None else memoryview(answer.tokens),
            answer.counted,
            answer.beyond,
            is_of(request_id, (answer.response_id or "", head_id)) if answer.stamps else None,
        )
