"""One driving process: sends its share of a plan when each request is due and tells how each one ended.

Everything runs as callbacks on one event loop; a request costs no task and no future.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from harness.drive.clock import NEVER, Clock
from harness.drive.endpoint import Endpoint, finish_head
from harness.drive.openai_stream import Answer, conclude
from harness.drive.plan import Plan
from harness.drive.pool import Pool, StartError
from harness.drive.wire import Connection

__all__ = ["Driver", "Result", "Settings", "StartError"]

# Slots of a closed loop that start in one turn of the event loop, so that reads come between.
_STARTS = 16
# A closed loop whose connections are refused waits so long before it takes the slot again.
_REFUSED_PAUSE_S = 0.05
# A connection that the server dropped as idle shows this soon after the send; later it is a failure.
_STALE_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """How to drive; None is no limit.

    `concurrency` requests in flight make a closed loop, None an open one. The time-outs count from when a
    request is due. After `max_duration_s` nothing more is sent. A server that refuses connections for
    `gone_after_s` while nothing is under way ends the run.
    """

    concurrency: int | None = None
    ignore_eos: bool = True
    timeout_s: float | None = 3600.0
    first_token_timeout_s: float | None = None
    connect_timeout_s: float = 10.0
    max_duration_s: float | None = None
    gone_after_s: float = 1.0


@dataclass(slots=True)
class Result:
    """A request that has ended: times of the clock in ns, None where it did not come so far.

    `place` is its place in the plan, `stamps` the time of each event with a token. `error` is
    `name: detail`, None of a completion.
    """

    place: int
    due_ns: int
    sent_ns: int | None
    done_ns: int | None
    stamps: memoryview
    output_tokens: int
    prompt_tokens: int | None
    finish: str
    error: str | None
    response_id: str | None = None


class _Flight:
    """A request that was due and has not ended."""

    __slots__ = ("answer", "connection", "due_ns", "place", "sent_ns", "timers")

    def __init__(self, place: int, due_ns: int) -> None:
        self.place = place
        self.due_ns = due_ns
        self.sent_ns: int | None = None
        self.answer = Answer()
        self.connection: Connection | None = None
        self.timers: list[asyncio.TimerHandle] = []


class Driver:
    """Drives the places of a plan: `open` the connections, `run` from a start time, `stop` early.

    `emit` is called in the loop with each Result. Counts of what was `sent`, is `in_flight` and was `resent`
    can be read at any time; `reason` says what ended a run early, `stopped` that `stop` did.
    """

    def __init__(
        self,
        plan: Plan,
        places: list[int],
        endpoint: Endpoint,
        settings: Settings,
        emit: Callable[[Result], None],
        clock: Clock | None = None,
    ) -> None:
        self.next_due = NEVER
        self.sent = 0
        self.resent = 0
        self.output_tokens = 0
        self.max_lag_ns = 0
        self.reason: str | None = None
        self.stopped = False
        self._clock = clock or Clock()
        self._plan = plan
        self._settings = settings
        self._emit = emit
        self._heads, self._after = plan.chains(places)
        self._due = plan.columns["due_ns"]
        self._next = 0  # of self._heads
        self._later: list[tuple[int, int]] = []  # heap of (due, place): later turns
        self._flights: dict[Connection, _Flight] = {}
        self._waiting: deque[_Flight] = deque()  # for a connection
        self._closed = settings.concurrency is not None
        self._slots = min(settings.concurrency or 0, len(self._heads))
        self._head = endpoint.head()
        self._secret = endpoint.key
        self._t0 = 0
        self._loop = asyncio.get_running_loop()
        self._finished = self._loop.create_future()
        self._ending = False
        self._pool = Pool(endpoint, self, self._clock, settings.connect_timeout_s)

    @property
    def in_flight(self) -> int:
        """Requests that were due and have not ended."""
        return len(self._flights) + len(self._waiting)

    @property
    def connections(self) -> int:
        """Connections opened so far."""
        return self._pool.opened

    async def open(self) -> None:
        """Open the connections that the plan will need; StartError where the server cannot be reached."""
        if self._closed:
            await self._pool.open(self._slots, spare=0)
        else:
            due = [self._due[i] for i in self._heads]
            await self._pool.open(busiest(due, 1_000_000_000), spare=busiest(due, 200_000_000))

    async def run(self, t0_ns: int) -> None:
        """Drive from `t0_ns` until every request has ended, or after `stop` those in flight."""
        self._t0 = t0_ns
        alarm = self._clock.alarm(self._loop, self._ring)
        self._alarm = alarm
        timers = []
        if self._settings.max_duration_s is not None:
            end_s = (t0_ns - self._clock.now_ns()) / 1e9 + self._settings.max_duration_s
            timers.append(self._loop.call_later(max(end_s, 0), self._end_sending))
        try:
            if self._closed:
                self.next_due = t0_ns
                alarm.set(t0_ns)
            else:
                self._set_alarm()
            self._check_finished()
            await self._finished
        finally:
            for timer in timers:
                timer.cancel()
            alarm.close()
            await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    def stop(self) -> None:
        """Send nothing more and end what is in flight as `cancelled`."""
        self.stopped = True
        self._end_sending()
        for flight in [*self._flights.values(), *self._waiting]:
            self._end(flight, "cancelled", "cancelled: the run was stopped")

    def send_due(self, now_ns: int) -> None:
        """Send what is due by `now_ns`, in the order it is due."""
        if self._closed and self._slots:
            self._loop.call_soon(self._start_slots)
            self.next_due = NEVER
            return
        heads, due = self._heads, self._due
        while True:
            head_due = self._t0 + due[heads[self._next]] if self._next < self._open_heads() else NEVER
            later_due = self._later[0][0] if self._later else NEVER
            if min(head_due, later_due) > now_ns:
                break
            if head_due <= later_due:
                self._next += 1
                self._dispatch(heads[self._next - 1], head_due)
            else:
                self._dispatch(heapq.heappop(self._later)[1], later_due)
        self._set_alarm()

    def answered(self, connection: Connection, error: str | None) -> None:
        """Part of `wire.Owner`."""
        self._pool.heard()
        flight = self._flights.get(connection)
        if flight is None:
            return
        if error is None:
            finish, error = conclude(
                flight.answer,
                self._plan.columns["expected_output_tokens"][flight.place],
                self._settings.ignore_eos,
            )
        else:
            finish = "error"
        self._end(flight, finish, error)

    def lost(self, connection: Connection, error: str | None) -> None:
        """Part of `wire.Owner`."""
        self._pool.lost(connection)
        flight = self._flights.get(connection)
        if flight is None or error is None:
            return
        # The server closed an idle connection while our request was on its way: no one has seen it.
        stale = connection.requests > 1 and not connection.t_ns and flight.sent_ns is not None
        if stale and self._clock.now_ns() - (flight.sent_ns or 0) < _STALE_NS and not self._ending:
            self.resent += 1
            del self._flights[connection]
            flight.connection = None
            self._send_or_wait(flight)
        else:
            self._end(flight, "error", flight.answer.error or error)

    def ready(self, connection: Connection) -> bool:
        """A connection is free: whether a request that waited for one has taken it."""
        if not self._waiting:
            return False
        self._send(self._waiting.popleft(), connection)
        return True

    def not_connected(self, error: str, gone_s: float) -> None:
        """No connection could be had; the server has refused for `gone_s` seconds."""
        if self._waiting:
            self._end(self._waiting[0], "error", error)
        if gone_s >= self._settings.gone_after_s and not self._flights and not self._ending:
            self.reason = f"the server has refused connections for {gone_s:.1f} s"
            self._end_sending()

    def _open_heads(self) -> int:
        """How many heads a clock sends; none in a closed loop, where slots take them."""
        return 0 if self._closed else len(self._heads)

    def _ring(self) -> None:
        self.next_due = NEVER  # so that an alarm that rang early is set again
        self.send_due(self._clock.now_ns())

    def _set_alarm(self) -> None:
        due = self._t0 + self._due[self._heads[self._next]] if self._next < self._open_heads() else NEVER
        if self._later:
            due = min(due, self._later[0][0])
        if due != self.next_due:
            self.next_due = due
            self._alarm.set(due)

    def _start_slots(self) -> None:
        for _ in range(min(_STARTS, self._slots)):
            self._slots -= 1
            self._take_head(self._t0)
        if self._slots and not self._ending:
            self._loop.call_soon(self._start_slots)
        else:
            self._slots = 0
            self._set_alarm()

    def _take_head(self, due_ns: int) -> None:
        """A slot of a closed loop takes the next request that waits for no other."""
        if self._next < len(self._heads) and not self._ending:
            self._next += 1
            self._dispatch(self._heads[self._next - 1], due_ns)

    def _dispatch(self, place: int, due_ns: int) -> None:
        flight = _Flight(place, due_ns)
        for seconds, name in (
            (self._settings.timeout_s, "timeout"),
            (self._settings.first_token_timeout_s, "timeout_first_token"),
        ):
            if seconds is not None:
                flight.timers.append(self._loop.call_later(seconds, self._time_out, flight, name, seconds))
        self._send_or_wait(flight)

    def _send_or_wait(self, flight: _Flight) -> None:
        connection = self._pool.take()
        if connection is None:
            self._waiting.append(flight)
        else:
            self._send(flight, connection)

    def _send(self, flight: _Flight, connection: Connection) -> None:
        body = self._plan.body(flight.place)
        head = finish_head(self._head, self._plan.id(flight.place), len(body))
        flight.connection = connection
        self._flights[connection] = flight
        sent_ns = connection.start(flight.answer, head, body)
        if flight.sent_ns is None:
            flight.sent_ns = sent_ns
            self.sent += 1
            self.max_lag_ns = max(self.max_lag_ns, sent_ns - flight.due_ns)

    def _time_out(self, flight: _Flight, name: str, seconds: float) -> None:
        if name == "timeout_first_token" and flight.answer.stamps:
            return
        if flight.answer.error:  # the stream failed before it fell silent
            self._end(flight, "error", flight.answer.error)
        else:
            stage = "no connection" if flight.connection is None else f"{len(flight.answer.stamps)} tokens"
            self._end(flight, "timeout", f"{name}: {stage} after {seconds:g} s")

    def _end(self, flight: _Flight, finish: str, error: str | None) -> None:
        now_ns = self._clock.now_ns()
        for timer in flight.timers:
            timer.cancel()
        connection = flight.connection
        done_ns: int | None = None
        if connection is None:
            self._waiting.remove(flight)
        else:
            del self._flights[connection]
            # The end of a stream is the read that brought it; a lost connection or a time-out comes without one.
            by_read = connection.t_ns and connection.answer is None and connection.transport is not None
            done_ns = connection.t_ns if by_read else now_ns
            if connection.answer is not None:
                connection.abandon()
            self._pool.give(connection)
        answer = flight.answer
        tokens = len(answer.stamps) if answer.usage is None else answer.usage
        self.output_tokens += tokens
        if error and self._secret:
            error = error.replace(self._secret, "[key]")
        self._emit(
            Result(
                flight.place,
                flight.due_ns,
                flight.sent_ns,
                done_ns,
                memoryview(answer.stamps),
                tokens,
                answer.prompt_tokens,
                finish,
                error,
                answer.response_id,
            )
        )
        free_ns = now_ns if done_ns is None else done_ns
        refused = connection is None and finish == "error"
        follow = self._after.get(flight.place)
        if not self._ending:
            if follow is not None:
                heapq.heappush(self._later, (free_ns + self._plan.columns["think_ns"][follow], follow))
            elif self._closed and refused:
                self._loop.call_later(_REFUSED_PAUSE_S, self._take_late)
            elif self._closed:
                self._take_head(free_ns)
            if self._later:
                self._loop.call_soon(self._set_alarm)
        self._check_finished()

    def _take_late(self) -> None:
        self._take_head(self._clock.now_ns())
        self._check_finished()

    def _end_sending(self) -> None:
        self._ending = True
        self._next = len(self._heads)
        self._slots = 0
        self._later.clear()
        self.next_due = NEVER
        for flight in list(self._waiting):
            self._end(flight, "cancelled", "cancelled: sending had ended before there was a connection")
        self._check_finished()

    def _check_finished(self) -> None:
        idle = not self._flights and not self._waiting and not self._later
        if idle and self._next >= len(self._heads) and not self._finished.done():
            self._finished.set_result(None)


def busiest(due_ns: list[int], window_ns: int) -> int:
    """The most of the ascending times that fall into a window."""
    start = most = 0
    for i, due in enumerate(due_ns):
        while due_ns[start] <= due - window_ns:
            start += 1
        most = max(most, i + 1 - start)
    return most
