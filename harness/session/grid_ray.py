"""The cells of a grid on a Ray cluster: a pair on one node, results home by the object store.

A lost node's cells run again elsewhere, once. Ray decides where a cell runs: it asks for processors, memory and, for a
real engine, GPUs of a type.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.session.grid_estimate import PROCESS_BYTES, REQUEST_BYTES
from harness.session.grid_local import LOOK_UP_S, Tick
from harness.session.grid_parcel import DamagedError, Parcel, pack, unpack
from harness.session.grid_plan import Cell
from harness.session.grid_worker import Outcome, run_cell
from harness.session.ray_cluster import connect, version

# Of the nodes' processors so many units wait there beside those that run, so that none is idle.
AHEAD = 2
# Processors that an engine's run takes; in virtual time it is one.
PROCESSORS = {"vllm": 4, "emulated": 2, "endpoint": 2}
# GPUs of ours as Ray calls their types; another goes by its name in capitals.
ACCELERATORS = {"rtxpro6000": "RTX-PRO-6000"}
# Engines whose version is a node's own.
WITH_VLLM = ("vllm", "emulated")
# Of a cell whose node was lost, or whose run came home damaged.
AGAIN = "again"


@dataclass(frozen=True, slots=True)
class Home:
    """What a node sends back of one cell: how it ended, the run's files, and the node's address."""

    outcome: Outcome
    parcel: Parcel | None
    node: str = ""


def run_unit(cells: Sequence[Cell], wanted: str) -> list[Home]:
    """The arms of a pair, one after the other on this node, packed for the way home."""
    import ray

    node = ray.util.get_node_ip_address()
    if version() != wanted:
        why = f"node {node} has bench {version()}, the grid {wanted}: install the same there"
        return [Home(Outcome(cell.key, "failed", reason=why), None) for cell in cells]
    homes = []
    for cell in cells:
        with tempfile.TemporaryDirectory(prefix="bench-cell-") as folder:
            outcome = run_cell(replace(cell, second=False), Path(folder), lambda: False)
            parcel = pack(Path(outcome.path), Path(folder)) if outcome.status == "complete" else None
            reason = f"{outcome.reason} (node {node})" if outcome.status == "failed" else ""
            homes.append(Home(replace(outcome, key=cell.key, path="", reason=reason), parcel, node))
    return homes


def vllm_of(parcel: Parcel) -> str | None:
    """The version of vLLM that made a run; None where another engine did, or nobody can tell."""
    try:
        told = json.loads(parcel.files["run.json"])
        engine, version = told["spec"]["engine"], str(told["provenance"]["engine_version"])
    except (KeyError, TypeError, ValueError):
        return None
    return f"{engine} {version}" if engine in WITH_VLLM else None


def needs(cell: Cell) -> dict[str, Any]:
    """What a cell asks of Ray: processors, memory in bytes, and the GPUs that a server of ours would take."""
    spec = cell.spec
    asked: dict[str, Any] = {
        "num_cpus": PROCESSORS.get(spec.engine, 1),
        "memory": PROCESS_BYTES + REQUEST_BYTES * spec.requests,
    }
    if spec.engine == "vllm" and not spec.gpu.startswith("cpu"):
        asked |= {"num_gpus": spec.tp, "accelerator_type": ACCELERATORS.get(spec.gpu, spec.gpu.upper())}
    if not cell.is_virtual:
        # What a real engine left in its process goes with it.
        asked["max_calls"] = 1
    return asked


def _final(outcome: Outcome) -> Outcome:
    """The outcome of a cell that runs no more: what would have had to run a third time has failed."""
    if outcome.status != AGAIN:
        return outcome
    return replace(outcome, status="failed", reason=f"twice {outcome.reason}")


class RayExecutor:
    """Runs units of cells on the nodes of a cluster; `address` is auto, ray://HOST:PORT, HOST:PORT or local.

    UserError as `connect` raises it.
    """

    def __init__(self, out: Path, address: str, jobs: int | None) -> None:
        self._ray, self._out = connect(address, jobs), out
        # Versions of vLLM that made the runs so far, by engine.
        self._vllm: dict[str, str] = {}
        self.jobs = int(self._ray.cluster_resources().get("CPU", 1))

    def run(self, units: Sequence[Sequence[Cell]], stopped: Callable[[], bool]) -> Iterator[Tick]:
        """Runs all units and tells of each cell that came home; a lost node's run again, once."""
        # What Ray says of its nodes is no result.
        with contextlib.redirect_stdout(sys.stderr):
            yield from self._run(units, stopped)

    def _run(self, units: Sequence[Sequence[Cell]], stopped: Callable[[], bool]) -> Iterator[Tick]:
        waiting = deque((list(unit), 0) for unit in units)
        under_way: dict[Any, tuple[list[Cell], int]] = {}
        try:
            while waiting or under_way:
                if stopped():
                    return
                room = AHEAD * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
                while waiting and len(under_way) < room:
                    unit, tries = waiting.popleft()
                    under_way[self._submit(unit)] = (unit, tries)
                ready, _ = self._ray.wait(list(under_way), num_returns=1, timeout=LOOK_UP_S)
                if not ready:
                    yield Tick([cell for unit, _ in under_way.values() for cell in unit])
                for reference in ready:
                    unit, tries = under_way.pop(reference)
                    running = [cell for other, _ in under_way.values() for cell in other]
                    again: list[Cell] = []
                    for cell, outcome in self._home(reference, unit):
                        if outcome.status == AGAIN and not tries:
                            again.append(cell)
                        else:
                            yield Tick(running, _final(outcome), cell)
                    if again:
                        waiting.appendleft((again, tries + 1))
        finally:
            for reference in under_way:
                with contextlib.suppress(Exception):
                    self._ray.cancel(reference, force=True)
            self._ray.shutdown()

    def _submit(self, unit: list[Cell]) -> Any:
        # Whether a cell runs again is decided here, where it is known what came home.
        task = self._ray.remote(run_unit).options(max_retries=0, **needs(unit[0]))
        return task.remote(unit, version())

    def _home(self, reference: Any, unit: list[Cell]) -> Iterator[tuple[Cell, Outcome]]:
        """How each cell of a unit ended, once its run lies in its place."""
        errors = self._ray.exceptions
        try:
            homes: list[Home] = self._ray.get(reference)
        except errors.RayTaskError as error:
            line = str(error).strip().splitlines()[-1]
            homes = [Home(Outcome(cell.key, "failed", reason=f"bench cannot run there: {line}"), None) for cell in unit]
        except errors.RayError as error:
            # The node, its process or its part of the object store has gone.
            why = f"its node was lost ({type(error).__name__})"
            homes = [Home(Outcome(cell.key, AGAIN, reason=why), None) for cell in unit]
        for cell, home in zip(unit, homes, strict=True):
            yield cell, home.outcome if home.parcel is None else self._received(cell, home, home.parcel)

    def _received(self, cell: Cell, home: Home, parcel: Parcel) -> Outcome:
        """The outcome of a run that came home, once it lies in its place; of one by another vLLM that it does not."""
        made_by, first = vllm_of(parcel), self._vllm.get(cell.spec.engine)
        if None not in (made_by, first) and made_by != first:
            why = f"node {home.node} has {made_by}, others {first}: install the same there"
            return replace(home.outcome, status="failed", reason=why)
        try:
            outcome = replace(home.outcome, path=str(unpack(parcel, cell, self._out)))
        except DamagedError as error:
            return replace(home.outcome, status=AGAIN, reason=f"its run came home damaged: {error}")
        except OSError as error:
            why = f"{self._out}: cannot be written ({error.strerror})"
            return replace(home.outcome, status="failed", reason=why)
        if made_by is not None:
            self._vllm.setdefault(cell.spec.engine, made_by)
        return outcome
