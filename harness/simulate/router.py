"""Which of several replicas a request goes to, and what lies there for one of them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.routers import LEAST_LOADED
from harness.simulate.arrivals import NEVER


class Router:
    """Gives each request to a replica and keeps count of what each has not answered yet.

    `least-loaded` is the replica with the fewest requests in flight, waiting ones included, of equal ones the first;
    `round-robin` one after the other. Both know all that has happened by then, and no more.
    """

    def __init__(self, rule: str, replicas: int) -> None:
        self._least_loaded = rule == LEAST_LOADED
        self._next = 0
        self.in_flight = [0] * replicas

    def choose(self) -> int:
        """The replica of the next request, which is in flight from now on."""
        if self._least_loaded:
            replica = self.in_flight.index(min(self.in_flight))
        else:
            replica = self._next
            self._next = (replica + 1) % len(self.in_flight)
        self.in_flight[replica] += 1
        return replica

    def ended(self, replica: int, requests: int) -> None:
        """So many of a replica's requests have ended."""
        self.in_flight[replica] -= requests


class Desk:
    """What was given to one replica and not taken yet, in the place of `Arrivals`; and what it has ended.

    `due` is that of all arrivals. `next_due` is when the first of what lies here came, NEVER where nothing does; before
    `horizon` nothing more can come.
    """

    def __init__(self, due: list[int]) -> None:
        self.due = due
        self.sent = 0
        self.next_due = self.horizon = NEVER
        self.has_ended: list[tuple[int, Sequence[int]]] = []
        self._rows: list[int] = []

    def give(self, row: int, at: int) -> None:
        """Lays a request here that has come at `at`, ns."""
        self._rows.append(row)
        self.next_due = min(self.next_due, at)

    def take(self, now: int) -> list[int]:
        """All that lies here; none of it came after `now`."""
        rows, self._rows = self._rows, []
        self.next_due = NEVER
        self.sent += len(rows)
        return rows

    def ended(self, rows: Sequence[int], end: int) -> None:
        """The answers to these rows came at `end`, ns."""
        self.has_ended.append((end, rows))
