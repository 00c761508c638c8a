"""The cells of a grid: a run each, in an order in which the time of day is no policy."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.core.errors import USER_ERRORS, UserError
from harness.core.runspec import RunSpec
from harness.measure.measured import VIRTUAL_ENGINES
from harness.session.ask import Asked, asked_of
from harness.session.choose import choose
from harness.session.grid import canonical_policies, plan_runs
from harness.session.grid_file import Point
from harness.session.one_run import trace_of
from harness.session.options import RunOptions, read_options
from harness.session.servers import servers_of
from harness.session.start import START
from workloads.core.trace import Trace

# Engines whose runs are planned without anything being started.
UNSTARTED = ("simulated", "tokenstep", "emulated")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a grid: its spec, the options that it was asked for with, and whether it is the second of an A/A."""

    spec: RunSpec
    options: RunOptions
    digest: str
    second: bool = False

    @property
    def key(self) -> str:
        """What tells this cell from every other."""
        return f"{self.digest}{'-aa' if self.second else ''}"

    @property
    def is_virtual(self) -> bool:
        """Whether it runs in virtual time, so that cells beside it do not disturb it."""
        return self.spec.engine in VIRTUAL_ENGINES

    @property
    def label(self) -> str:
        """What people call it."""
        spec = self.spec
        second = " · A/A" if self.second else ""
        return (
            f"{spec.label} · {spec.workload} · {spec.gpu} · {spec.arrival} · {spec.slots} slots · "
            f"repeat {spec.repeat}{second}"
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """Cells that cannot be had, known before anything runs: what they are, why, and how many."""

    label: str
    why: str
    cells: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The arms of each pair together, in the order in which they run; `refused` cannot be had."""

    units: Sequence[Sequence[Cell]]
    refused: Sequence[Refused]

    @property
    def cells(self) -> list[Cell]:
        """Every cell, in the order in which they run."""
        return list(itertools.chain.from_iterable(self.units))


def plan_grid(points: Sequence[Point], twice: bool = False) -> Plan:
    """The cells of all points, each once.

    A block is a repeat of every point; within it the points are shuffled (seeded), and within a point the policies are,
    side by side. UserError where no point can be had, and where an A/A is asked for of runs that repeat exactly.
    """
    refused: list[Refused] = []
    blocks: dict[int, list[list[Cell]]] = {}
    seen: set[str] = set()
    traces: dict[tuple[Any, ...], Trace] = {}
    chosen: dict[tuple[Any, ...], str] = {}
    for point in points:
        for cells in _pairs(point, traces, chosen, refused):
            if twice and cells[0].is_virtual:
                raise UserError(
                    f"aa = true: a run of --engine {cells[0].spec.engine} repeats itself exactly, so that an A/A says "
                    "nothing: leave it out, or give repeat"
                )
            unit = [cell for cell in cells if cell.key not in seen]
            if twice:
                second = replace(_first_named(cells), second=True)
                unit += [second] if second.key not in seen else []
            seen |= {cell.key for cell in unit}
            if unit:
                blocks.setdefault(unit[0].spec.repeat, []).append(unit)
    if not blocks:
        raise UserError(f"no cell of the grid can be had: {refused[0].why}")
    units: list[list[Cell]] = []
    for repeat, block in sorted(blocks.items()):
        order = random.Random(repeat)  # noqa: S311 - an order, no secret
        order.shuffle(block)
        if twice:
            for unit in block:
                order.shuffle(unit)
        units += block
    return Plan(units, refused)


def _first_named(cells: Sequence[Cell]) -> Cell:
    """The arm whose policy was named first."""
    options = cells[0].options
    if options.engine == "endpoint":
        first = next(iter(servers_of(options)))
    else:
        first = canonical_policies(options.policies, options.engine)[0]
    return next((cell for cell in cells if cell.spec.policy == first), cells[0])


def _pairs(
    point: Point, traces: dict[tuple[Any, ...], Trace], chosen: dict[tuple[Any, ...], str], refused: list[Refused]
) -> Iterator[list[Cell]]:
    """The arms of each repeat of a point; what cannot be had of it goes to `refused`, and hides no other policy."""
    try:
        yield from _planned(_options(point, point.policies, chosen), traces)
    except USER_ERRORS as error:
        repeats = int(point.values.get("repeat", 1))
        if len(point.policies) < 2:
            refused.append(Refused(_told(point, point.policies), str(error), repeats * max(1, len(point.policies))))
            return
        apart, reasons = [], []
        for policy in point.policies:
            try:
                apart.append(list(_planned(_options(point, (policy,), chosen), traces)))
            except USER_ERRORS as why:
                reasons.append((policy, str(why)))
        for reason, group in itertools.groupby(reasons, key=lambda refusal: refusal[1]):
            names = [policy for policy, _ in group]
            refused.append(Refused(_told(point, names), reason, repeats * len(names)))
        for pairs in zip(*apart, strict=True):
            yield list(itertools.chain.from_iterable(pairs))


def _options(point: Point, policies: tuple[str, ...], chosen: dict[tuple[Any, ...], str]) -> RunOptions:
    """The options of a point with its engine chosen; the machine is asked once about each GPU."""
    # The count of a grid's cells is that of its file: nothing is repeated there that the file does not repeat.
    given = {"repeat": 1} | dict(point.values) | ({"policy": list(policies)} if policies else {})
    options = read_options(given)
    key = (options.engine, options.gpus, options.urls, options.arms, options.engine_python)
    if key not in chosen:
        chosen[key] = choose(options).engine
    return replace(options, engine=chosen[key])


def _planned(options: RunOptions, traces: dict[tuple[Any, ...], Trace]) -> Iterator[list[Cell]]:
    asked = _asked(options)
    template = asked.template

    def load(workload: str, requests: int | None) -> Trace:
        key = (workload, requests, template.seed, template.model)
        if key not in traces:
            if len(traces) > 16:
                traces.pop(next(iter(traces)))
            traces[key] = trace_of(*key)
        return traces[key]

    specs = plan_runs(asked, load)
    for _, arms in itertools.groupby(specs, key=lambda spec: spec.repeat):
        yield [Cell(spec, options, spec.digest) for spec in arms]


def _asked(options: RunOptions) -> Asked:
    if options.engine in UNSTARTED:
        return asked_of(options, options.engine)
    return START[options.engine](options).asked


def _told(point: Point, policies: Sequence[str]) -> str:
    """A point as its file writes it, with these policies."""
    values = {name: value for name, value in point.values.items() if name not in ("repeat", "engine")}
    first = {"policy": ",".join(policies)} if policies else {}
    return " ".join(f"{name}={value}" for name, value in (first | values).items())
