"""Driving processes on several hosts, held there by Ray: each looks here as if it ran next door."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from harness.core.errors import RunFailed, UserError
from harness.drive import frames
from harness.drive.host_clock import Reading, read_clock
from harness.drive.plan import Plan
from harness.drive.seat import Seat

# What a host may take to start its first process, s.
PLACED_S = 60.0
# What is asked while one waits for the rest to be read.
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a Ray cluster: its id, and the name that a user knows it by."""

    id: str
    name: str


class Away:
    """A driving process elsewhere, with what its parent needs of a `Process`; what it writes comes by a pipe."""

    def __init__(self, ray: Any, actor: Any, where: str, contents: Any, config: dict[str, Any], offset_ns: int) -> None:
        self.where = where
        self.offset_ns = offset_ns
        self.read, self._write = os.pipe()
        self.frames = frames.Frames()
        self.ready = False
        self.ended = False
        self.status: dict[str, Any] = {}
        self.final: dict[str, Any] | None = None
        self._ray, self._actor = ray, actor
        self._carrier = threading.Thread(target=self._carry, args=(contents, config), name="carrier", daemon=True)
        self._carrier.start()

    def say(self, line: str) -> None:
        """Tell it something, if it still listens."""
        self._actor.say.remote(line)

    def kill(self) -> None:
        """End it at once."""
        self._actor.kill.remote()

    def close(self) -> None:
        """See it end, and let go of the pipe."""
        os.close(self.read)
        ended = self._actor.close.remote()
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.get(ended, timeout=PLACED_S)
        self._carrier.join()

    def _carry(self, contents: Any, config: dict[str, Any]) -> None:
        """Brings what it writes; the pipe ends where it does, or where its host is lost."""
        lost = self._ray.exceptions.RayError
        with os.fdopen(self._write, "wb", 0) as pipe, contextlib.suppress(lost, BrokenPipeError):
            if why := self._ray.get(self._actor.start.remote(contents, config)):
                pipe.write(frames.note(frames.REFUSED, {"error": why}))
            while data := self._ray.get(self._actor.read.remote()):
                pipe.write(data)


class Hosts:
    """Nodes that drive together, `processes` driving processes on each; UserError where one has no room for them."""

    def __init__(self, ray: Any, nodes: Sequence[Node], processes: int) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.processes = processes
        self.count = processes * len(nodes)
        self._ray, self._nodes = ray, nodes
        seat = ray.remote(Seat)
        self._actors = [
            seat.options(
                num_cpus=1,
                max_concurrency=AT_ONCE,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            ).remote()
            for node in nodes
            for _ in range(processes)
        ]
        for place, actor in enumerate(self._actors):
            node = self._node_of(place)
            try:
                ray.get(actor.now_ns.remote(), timeout=PLACED_S)
            except ray.exceptions.RayError as error:
                line = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                raise UserError(
                    f"node {node.name}: no room for {processes} driving processes there ({line}): each takes one of "
                    "its processors; see `ray status`"
                ) from None
        self._names = [ray.get(self._first(place).clock_name.remote()) for place in range(len(nodes))]

    def read_clocks(self) -> list[Reading]:
        """How far each host's clock is from this one's; RunFailed where a host is lost."""
        return [read_clock(partial(self._now_ns, place), name) for place, name in enumerate(self._names)]

    def _now_ns(self, place: int) -> int:
        try:
            now_ns: int = self._ray.get(self._first(place).now_ns.remote())
        except self._ray.exceptions.RayError as error:
            raise RunFailed(f"node {self._nodes[place].name} was lost ({type(error).__name__})") from None
        return now_ns

    def seats(self, plan: Plan, configs: Sequence[dict[str, Any]], clocks: Sequence[Reading]) -> list[Away]:
        """A driving process for each configuration, on the hosts in their order."""
        contents = self._ray.put(np.frombuffer(plan.contents(), dtype=np.uint8))
        return [
            Away(
                self._ray,
                self._actors[place],
                f"node {self._node_of(place).name}: ",
                contents,
                config,
                clocks[place // self.processes].offset_ns,
            )
            for place, config in enumerate(configs)
        ]

    def told(
        self, before: Sequence[Reading], after: Sequence[Reading], states: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """What run.json says of the hosts: their clocks, s, and the load of each one's busiest process, of one core.

        `clock_error_s` is the most that the clocks of two readings leave open: how far they moved, and the error of
        either. Hosts have numbers, since their names are nobody's business.
        """
        hosts, errors_ns = [], [0]
        for place, (first, last) in enumerate(zip(before, after, strict=True)):
            ran = states[place * self.processes : (place + 1) * self.processes]
            error_ns = abs(last.offset_ns - first.offset_ns) + max(first.error_ns, last.error_ns)
            errors_ns.append(error_ns)
            hosts.append(
                {
                    "host": place + 1,
                    "processes": len(ran),
                    "same_clock": first.same,
                    "offset_s": first.offset_ns / 1e9,
                    "offset_after_s": last.offset_ns / 1e9,
                    "error_s": error_ns / 1e9,
                    "sent": sum(state.get("sent", 0) for state in ran),
                    "cpu_share": max((state.get("cpu_share", 0.0) for state in ran), default=0.0),
                }
            )
        return {"hosts": hosts, "clock_error_s": max(errors_ns) / 1e9}

    def _first(self, place: int) -> Any:
        return self._actors[place * self.processes]

    def _node_of(self, place: int) -> Node:
        return self._nodes[place // self.processes]
