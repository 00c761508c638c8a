"""A request under way, and the row that it becomes."""

from __future__ import annotations

from harness.drive.endpoint import is_of
from harness.drive.openai_stream import Answer
from harness.drive.settings import Result
from harness.drive.wire import Connection

# A connection that the server dropped as idle shows this soon after the send; later it is a failure.
_STALE_NS = 1_000_000_000


class Flight:
    """A request that was due and has not ended. `place` is its place in the plan; times are the clock's, ns."""

    __slots__ = ("answer", "connection", "due_ns", "place", "resent", "retries", "sent_ns")

    def __init__(self, place: int, due_ns: int, answer: Answer) -> None:
        self.place = place
        self.due_ns = due_ns
        self.sent_ns: int | None = None
        self.resent = False
        self.retries = 0
        self.answer = answer
        self.connection: Connection | None = None

    @property
    def stage(self) -> str:
        """How far it has come, for whoever waits no longer."""
        return "no connection" if self.connection is None else f"{len(self.answer.stamps)} tokens"

    def met_a_stale(self, connection: Connection, now_ns: int) -> bool:
        """Whether the server closed its idle connection while it was on its way: the server has not seen it then."""
        if self.resent or self.sent_ns is None or connection.t_ns:
            return False
        idle = connection.requests > 1 or self.sent_ns - connection.made_ns > _STALE_NS
        return idle and now_ns - self.sent_ns < _STALE_NS

    def done_ns(self, connection: Connection, now_ns: int) -> int:
        """When it ended on its connection: the read that brought the end of the stream, else now.

        A lost connection or a time-out comes without a read.
        """
        by_read = connection.t_ns and connection.answer is None and connection.transport is not None
        return connection.t_ns if by_read else now_ns

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
