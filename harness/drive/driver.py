"""One driving process: sends its share of a plan when each request is due and tells how each one ended.

Everything runs as callbacks on one event loop; a request costs no task and no future.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from harness.core.outside import Door
from harness.drive.clock import NEVER, Clock
from harness.drive.conclude import conclude
from harness.drive.deadlines import Deadlines
from harness.drive.endpoint import Endpoint, finish_head
from harness.drive.flight import Flight
from harness.drive.openai_stream import Answer
from harness.drive.plan import Plan, busiest
from harness.drive.pool import Pool
from harness.drive.schedule import Schedule
from harness.drive.settings import Result, Settings
from harness.drive.shapes import Known
from harness.drive.wire import Connection

# Slots of a closed loop that start in one turn of the event loop, so that reads come between.
_STARTS = 16
# A closed loop whose connections are refused waits so long before it takes the slot again.
_REFUSED_PAUSE_S = 0.05


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
        self.retried = 0
        self.output_tokens = 0
        self.max_lag_ns = 0
        self.reason: str | None = None
        self.stopped = False
        self._clock = clock or Clock()
        self._plan = plan
        self._settings = settings
        self._emit = emit
        self._flights: dict[Connection, Flight] = {}
        self._waiting: deque[Flight] = deque()  # for a connection
        self._put_off: dict[Flight, asyncio.TimerHandle] = {}  # till the server wants them again
        self._closed = settings.concurrency is not None
        self._schedule = Schedule(plan, places, self._closed)
        self._slots = min(settings.concurrency or 0, len(self._schedule.heads))
        self._level = self._slots
        self._levels = deque(settings.levels)  # of a closed loop: the phases to come
        self._head = endpoint.head()
        self._door = Door.of(endpoint.secrets)
        self._known = Known()
        self._t0 = 0
        self._loop = asyncio.get_running_loop()
        limits = {"timeout": settings.timeout_s, "timeout_first_token": settings.first_token_timeout_s}
        self._deadlines = [Deadlines(self._loop, name, after, self._late) for name, after in limits.items() if after]
        self._finished = self._loop.create_future()
        self._ending = False
        self._pool = Pool(endpoint, self, self._clock, settings.connect_timeout_s)

    @property
    def in_flight(self) -> int:
        """Requests that were due and have not ended."""
        return len(self._flights) + len(self._waiting) + len(self._put_off)

    @property
    def connections(self) -> int:
        """Connections opened so far."""
        return self._pool.opened

    async def open(self) -> None:
        """Open the connections that the plan will need; StartError where the server cannot be reached."""
        if self._closed:
            await self._pool.open(self._slots, spare=0)
        else:
            due = self._schedule.due_of_heads()
            await self._pool.open(busiest(due, 1_000_000_000), spare=busiest(due, 200_000_000))

    async def run(self, t0_ns: int) -> None:
        """Drive from `t0_ns` until every request has ended, or after `stop` those in flight."""
        self._t0 = t0_ns
        self._schedule.start(t0_ns)
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
        for deadlines in self._deadlines:
            deadlines.close()
        await self._pool.close()

    def stop(self) -> None:
        """Send nothing more and end what is in flight as `cancelled`."""
        self.stopped = True
        self._end_sending()
        for flight in [*self._flights.values(), *self._waiting, *self._put_off]:
            self._end(flight, "cancelled", "cancelled: the run was stopped")

    def send_due(self, now_ns: int) -> None:
        """Send what is due by `now_ns`, in the order it is due."""
        if self._closed and self._slots:
            self._slots_due_ns = self._t0
            self._loop.call_soon(self._start_slots)
            self.next_due = NEVER
            return
        while self._schedule.next_due() <= now_ns:
            self._dispatch(*self._schedule.pop())
        self._set_alarm()

    def answered(self, connection: Connection, error: str | None) -> None:
        """Part of `wire.Owner`: an answer has ended, well where `error` is None."""
        self._pool.heard()
        flight = self._flights.get(connection)
        if flight is None:
            return
        if error is None:
            finish, error = conclude(
                flight.answer,
                self._plan.columns["expected_output_tokens"][flight.place],
                self._settings.ignore_eos,
                self._settings.accept,
            )
        else:
            finish = "error"
            if error.startswith("http_429") and flight.retries < self._settings.retries_429 and not self._ending:
                self._put_by(flight, connection)
                return
        self._end(flight, finish, error)

    def lost(self, connection: Connection, error: str | None) -> None:
        """Part of `wire.Owner`: a connection is gone, and with it an answer under way where `error` says how."""
        self._pool.lost(connection)
        flight = self._flights.get(connection)
        if flight is None or error is None:
            return
        if not self._ending and flight.met_a_stale(connection, self._clock.now_ns()):
            flight.resent = True
            self.resent += 1
            del self._flights[connection]
            flight.connection = None
            self._waiting.append(flight)
            self._pool.open_one()
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

    def _put_by(self, flight: Flight, connection: Connection) -> None:
        """The server wants this request later."""
        flight.retries += 1
        self.retried += 1
        del self._flights[connection]
        flight.connection = None
        flight.answer = self._answer_of(flight.place)
        self._put_off[flight] = self._loop.call_later(connection.retry_after_s, self._send_again, flight)
        self._pool.give(connection)

    def _send_again(self, flight: Flight) -> None:
        del self._put_off[flight]
        self._send_or_wait(flight)

    def _ring(self) -> None:
        self.next_due = NEVER  # so that an alarm that rang early is set again
        self.send_due(self._clock.now_ns())

    def _set_alarm(self) -> None:
        due_ns = self._schedule.next_due()
        if due_ns != self.next_due:
            self.next_due = due_ns
            self._alarm.set(due_ns)

    def _start_slots(self) -> None:
        for _ in range(_STARTS):
            if not self._slots:
                break
            self._slots -= 1
            self._take_head(self._slots_due_ns)
        if self._slots and not self._ending:
            self._loop.call_soon(self._start_slots)
        else:
            self._slots = 0
            self._set_alarm()

    def _take_head(self, due_ns: int) -> None:
        """A slot of a closed loop takes the next request that waits for no other."""
        if self._settings.levels and not self._may_take(due_ns):
            return
        place = self._schedule.take()
        if place is not None:
            self._dispatch(place, due_ns)

    def _may_take(self, due_ns: int) -> bool:
        """Whether the level of the next request's phase leaves room; where it begins one, its other slots start too."""
        place = self._schedule.peek()
        if place is None:
            return False
        if self._levels and self._plan.columns["row"][place] >= self._levels[0][0]:
            if self._settings.drain and self.in_flight:
                return False
            self._level = self._levels.popleft()[1]
            starting = self._slots
            self._slots = max(self._level - self.in_flight - 1, 0)
            self._slots_due_ns = due_ns
            if self._slots and not starting:
                self._loop.call_soon(self._start_slots)
        return self.in_flight < self._level

    def _dispatch(self, place: int, due_ns: int) -> None:
        flight = Flight(place, due_ns, self._answer_of(place))
        for deadlines in self._deadlines:
            deadlines.add(flight)
        self._send_or_wait(flight)

    def _answer_of(self, place: int) -> Answer:
        return Answer(self._plan.columns["expected_output_tokens"][place], self._settings.told, self._known)

    def _send_or_wait(self, flight: Flight) -> None:
        connection = self._pool.take()
        if connection is None:
            self._waiting.append(flight)
        else:
            self._send(flight, connection)

    def _send(self, flight: Flight, connection: Connection) -> None:
        body = self._plan.body(flight.place)
        head = finish_head(self._head, self._plan.id(flight.place), len(body))
        flight.connection = connection
        self._flights[connection] = flight
        sent_ns = connection.start(flight.answer, head, body)
        if flight.sent_ns is None:
            flight.sent_ns = sent_ns
            self.sent += 1
            self.max_lag_ns = max(self.max_lag_ns, sent_ns - flight.due_ns)

    def _late(self, flight: Flight, name: str, seconds: float) -> None:
        if name == "timeout_first_token" and flight.answer.stamps:
            return
        if flight.answer.error:  # the stream failed before it fell silent
            self._end(flight, "error", flight.answer.error)
        else:
            self._end(flight, "timeout", f"{name}: {flight.stage} after {seconds:g} s")

    def _end(self, flight: Flight, finish: str, error: str | None) -> None:
        """A request has ended, well or not: tell it, and let what waits for it go on."""
        now_ns = self._clock.now_ns()
        for deadlines in self._deadlines:
            deadlines.end(flight)
        connection = flight.connection
        done_ns: int | None = None
        if flight in self._put_off:
            self._put_off.pop(flight).cancel()
        elif connection is None:
            self._waiting.remove(flight)
        else:
            del self._flights[connection]
            done_ns = flight.done_ns(connection, now_ns)
            if connection.answer is not None:
                connection.abandon()
            self._pool.give(connection)
        self.output_tokens += flight.answer.output_tokens
        if error:
            error = self._door.line(error)
        self._emit(flight.result(done_ns, finish, error, self._plan.id(flight.place)))
        if not self._ending:
            refused = connection is None and finish == "error"
            self._go_on(flight.place, now_ns if done_ns is None else done_ns, refused)
        self._check_finished()

    def _go_on(self, place: int, free_ns: int, refused: bool) -> None:
        """What the end of a request brings: the next turn of its session, or its slot's next request."""
        if self._schedule.follow(place, free_ns):
            self._set_alarm()
        elif self._closed and refused:
            self._loop.call_later(_REFUSED_PAUSE_S, self._take_late)
        elif self._closed:
            self._take_head(free_ns)

    def _take_late(self) -> None:
        self._take_head(self._clock.now_ns())
        self._check_finished()

    def _end_sending(self) -> None:
        self._ending = True
        self._schedule.drop()
        self._slots = 0
        self.next_due = NEVER
        for flight in [*self._waiting, *self._put_off]:
            self._end(flight, "cancelled", "cancelled: sending had ended before there was a connection")
        self._check_finished()

    def _check_finished(self) -> None:
        idle = not self.in_flight and self._schedule.exhausted
        if idle and not self._finished.done():
            self._finished.set_result(None)
