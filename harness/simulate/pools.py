"""Prefill and decode on engines of their own, in one virtual time: a prompt's KV cache travels between them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from harness.core.records import PRODUCED
from harness.simulate.arrivals import NEVER, Arrivals
from harness.simulate.replicas import MakeLoop, Replicas
from harness.simulate.router import Router
from harness.simulate.rows import REQUEST_FIELDS, Rows
from policies.core import STEP_COLUMNS

_PRODUCED = [STEP_COLUMNS.index(name) for name in PRODUCED]


class Pools(Replicas):
    """Engines that compute prompts, whose makers come first, and engines that decode, `prefill` and the rest.

    A prompt is computed by one of the former and gives no token there. Its KV cache then goes over that engine's link,
    one after the other, each row's for its `transfers_ns`. One of the engines that decode computes the prompt's last
    token again, which gives the first token of the answer, and then all others. Both pools have routers of one rule.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        refused: frozenset[int],
        rule: str,
        prefill: int,
        makers: Sequence[MakeLoop],
        transfers_ns: Sequence[int],
    ) -> None:
        self._prefill = prefill
        self._transfers_ns = transfers_ns
        self._to_decode = Router(rule, len(makers) - prefill)
        self._link_free = [0] * prefill
        self._travelling: list[tuple[int, int]] = []  # heap of (arrival, row)
        super().__init__(arrivals, refused, Router(rule, prefill), makers, reacts=True)

    @property
    def finished(self) -> int:
        """Requests that have ended."""
        return sum(loop.finished for loop in self.loops[self._prefill :])

    def _happen(self, at: int) -> None:
        super()._happen(at)
        while self._travelling and self._travelling[0][0] <= at:
            _, row = heapq.heappop(self._travelling)
            self._give(self._prefill + self._to_decode.choose(), row, at)

    def _answered(self, place: int, rows: Sequence[int], end: int) -> None:
        if place >= self._prefill:
            self._to_decode.ended(place - self._prefill, len(rows))
            self._arrivals.ended(rows, end)
            return
        self._router.ended(place, len(rows))
        for row in rows:
            self._link_free[place] = max(end, self._link_free[place]) + self._transfers_ns[row]
            heapq.heappush(self._travelling, (self._link_free[place], row))

    def _give(self, place: int, row: int, at: int) -> None:
        # One that fits nowhere is told so by an engine that decodes: the others know no output.
        super()._give(self._prefill if row in self._refused else place, row, at)

    def _next_under_way(self) -> int:
        return min(super()._next_under_way(), self._travelling[0][0] if self._travelling else NEVER)

    def _parts(self) -> list[Rows]:
        """A request is a row where it decodes, and who computes prompts gives no token."""
        parts = super()._parts()
        for part in parts[: self._prefill]:
            part.requests = np.zeros((0, len(REQUEST_FIELDS)), dtype=np.int64)
            part.gaps = {}
            part.steps = part.steps.copy()
            part.steps[:, _PRODUCED] = 0
        return parts
