"""`bench capacity`: the highest load at which limits hold, policy by policy, on the same requests."""

from __future__ import annotations

import bisect
import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.console import plain_console
from harness.core.errors import RunFailed, UserError
from harness.core.runspec import RunSpec
from harness.core.text import short, some
from harness.engines.base import Status
from harness.report.capacity import BEYOND, Search, Tried, ladder
from harness.report.limits import Limit
from harness.runs.run import Run
from harness.session.clock import as_clock
from harness.session.finished import finished_runs
from harness.session.grid import canonical_policies, plan_runs
from harness.session.one_run import prepare, run, trace_of
from harness.session.start import Started
from harness.session.stopping import Stopping
from harness.session.terminal import opening, progress_bar, status_line

# A closed loop of fewer waves than this is mostly start and end.
WAVES = 10
# What says that the client, its machine or the path to the server gave up, not the server.
OF_THE_CLIENT = ("send_lag", "client_cpu", "client_wait", "elsewhere", "held_back", "delivery", "foreign")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is searched: `axis` is rate or concurrency, `precision` a share, `most` the highest load tried."""

    limits: tuple[Limit, ...]
    axis: str = "rate"
    precision: float = 0.05
    start: float | None = None
    most: float | None = None
    most_points: int = 40

    def arrival(self, load: float, kind: str) -> str:
        """The arrival at a load; `kind` is its process with its other options, such as gamma:cv=2."""
        if self.axis == "concurrency":
            return f"closed:concurrency={load:.0f}"
        return f"{kind}{',' if ':' in kind else ':'}rate={load!r}"


@dataclass(slots=True)
class Arm:
    """One policy's search on a GPU and workload: the runs by place on the ladder."""

    specs: tuple[RunSpec, ...]
    search: Search
    runs: dict[int, list[Run]] = field(default_factory=dict)
    ended: str = ""

    @property
    def spec(self) -> RunSpec:
        """The first repeat at no load of its own."""
        return self.specs[0]

    @property
    def place(self) -> tuple[str, str, int]:
        """What arms that are compared have in common: GPU, workload and slots."""
        return self.spec.gpu, self.spec.workload, self.spec.slots


class CapacitySearch:
    """Searches every policy's capacity in turn; runs that `out` has already, by the digest of their spec, are taken.

    `arrival` is the process of an open loop; `servers` are the URLs of arms that are driven, which no digest holds.
    UserError where a percentile cannot be told from so few requests.
    """

    def __init__(
        self,
        started: Started,
        out: Path,
        wanted: Wanted,
        arrival: str,
        *,
        quiet: bool,
        why: str = "",
        servers: Mapping[str, str] | None = None,
    ) -> None:
        self.wanted = wanted
        self.found: list[Run] = []
        self._servers = servers or {}
        self._started = started
        self._out = out
        self._arrival = arrival
        self._console = plain_console(stderr=True)
        self._quiet = quiet
        self._why = why
        self._stopping = Stopping()
        self._said: set[str] = set()
        self.arms = self._plan()

    @property
    def interrupted(self) -> bool:
        """Whether the user ended the search."""
        return self._stopping.wanted

    def go(self) -> None:
        """Tries loads until every search has ended, or the user ends them; the policies take turns."""
        if line := opening(self.arms[0].spec, self._why):
            self._console.print(line, soft_wrap=True)
        with self._stopping.listening():
            while True:
                # All of them, so that the policies take turns.
                tried = [self._step(arm) for arm in self.arms]
                if not any(tried):
                    break
        for line in [] if self._quiet else self.on_found():
            self._console.print(line, soft_wrap=True)

    def on_found(self) -> list[str]:
        """What to say of runs that were there already, and of runs that are not of one make."""
        lines = []
        if self.found:
            oldest = min(one.started for one in self.found)
            since = f"the oldest of {oldest:%Y-%m-%d %H:%M} UTC"
            lines.append(f"{len(self.found)} runs were there already, {since}, and were not run again")
        runs = [one for arm in self.arms for runs in arm.runs.values() for one in runs]
        for words, make in (("the engine", _engine), ("bench", _harness)):
            makes = {make(one) for one in runs}
            if len(makes) > 1:
                lines.append(f"runs of several versions of {words}: {some(sorted(makes))}: give another --out")
        return lines

    def _plan(self) -> list[Arm]:
        wanted, asked = self.wanted, self._started.asked
        loads = ladder(wanted.axis, wanted.precision)
        first = wanted.start if wanted.start is not None else 1.0 if wanted.axis == "rate" else 8.0
        start = min(bisect.bisect_left(loads, first), len(loads) - 1)
        asked = dataclasses.replace(asked, arrivals=(wanted.arrival(loads[start], self._arrival),))
        template = asked.template
        specs = plan_runs(asked, lambda workload, n: trace_of(workload, n, template.seed, template.model))
        groups: dict[tuple[str, str, int, str], list[RunSpec]] = {}
        for spec in specs:
            groups.setdefault((spec.gpu, spec.workload, spec.slots, spec.policy), []).append(spec)
        arms = []
        for repeats in groups.values():
            _check_requests(repeats[0], wanted.limits)
            most = self._most(repeats[0], loads)
            arms.append(Arm(tuple(repeats), Search(loads, min(start, most), most)))
        # As they were named, whatever the order in which the first repeat was shuffled.
        given = list(asked.policies)
        order = given if template.engine == "endpoint" else canonical_policies(given, template.engine)
        return sorted(arms, key=lambda arm: order.index(arm.spec.policy))

    def _most(self, spec: RunSpec, loads: Sequence[float]) -> int:
        most = self.wanted.most or math.inf
        if self.wanted.axis == "concurrency":
            most = min(most, max(1, spec.requests // WAVES))
        return max(0, bisect.bisect_right(loads, most) - 1)

    def _step(self, arm: Arm) -> bool:
        """Tries one load of an arm; whether it did."""
        if self.interrupted or (place := arm.search.next_place()) is None:
            return False
        if len(arm.search.tried) >= self.wanted.most_points:
            arm.ended = f"ended after {self.wanted.most_points} loads (--most-points)"
            return False
        load = arm.search.loads[place]
        runs = []
        for spec in arm.specs:
            at = dataclasses.replace(spec, arrival=self.wanted.arrival(load, self._arrival))
            one = finished_run(self._out, at, self._servers.get(spec.policy))
            if one is not None:
                self.found.append(one)
            else:
                one = self._run(at)
            if one.status == "interrupted" or self.interrupted:
                return False
            if one.status == "failed":
                raise RunFailed(f"{one.path}: {one.manifest['reason']}; what was found before is kept in {self._out}")
            runs.append(one)
        arm.runs[place] = runs
        tried = judged(runs, self.wanted.limits)
        arm.search.tried[place] = tried
        if not self._quiet:
            told = "met" if tried.met else f"not met: {tried.why}"
            self._console.print(f"{arm.spec.label}: {self.wanted.axis} {load:g}: {told}", soft_wrap=True)
        return True

    def _run(self, spec: RunSpec) -> Run:
        label = f"{spec.label} · {spec.arrival} · repeat {spec.repeat}"
        prepared = prepare(spec, self._started.make)
        for note in prepared.notes:
            if note not in self._said:
                self._said.add(note)
                self._console.print(note)
        with progress_bar(self._console, self._quiet) as bar:
            task = bar.add_task(label, total=spec.requests, told="", place="")

            def progress(status: Status) -> None:
                elapsed = bar.tasks[0].elapsed or 0.0
                bar.update(task, completed=status.finished, told=f"{status_line(status)}  {as_clock(elapsed)}")

            return run(prepared, self._out, sys.argv, progress, self._stopping)


def judged(runs: Sequence[Run], limits: Sequence[Limit]) -> Tried:
    """Whether the limits hold over the repeats of one load; a run that is INVALID does not serve it."""
    excess = []
    for one in runs:
        values = [limit.value_of(one) for limit in limits]
        if one.level == "INVALID" or None in values:
            excess.append((BEYOND,) * len(limits))
            continue
        known = [value for value in values if value is not None]
        excess.append(tuple(_log(value / limit.limit_s) for value, limit in zip(known, limits, strict=True)))
    tried = Tried(tuple(excess))
    return tried if tried.met else Tried(tuple(excess), why_not(runs, limits))


def why_not(runs: Sequence[Run], limits: Sequence[Limit]) -> str:
    """What kept a load from being met: the verdict, too few answers, or the limits that were passed."""
    for one in runs:
        if one.level == "INVALID":
            reasons = one.manifest.get("verdict", {}).get("reasons") or ["INVALID"]
            of_client = client_gave_up(one)
            return f"{reasons[0]}{' (the client gave up, not the server)' if of_client else ''}"
    passed = []
    for limit in limits:
        values = [value for one in runs if (value := limit.value_of(one)) is not None]
        if len(values) < len(runs):
            return f"too few requests completed to tell {limit.name}"
        mean = math.exp(math.fsum(map(_log, values)) / len(values))
        if mean > limit.limit_s:
            passed.append(f"{limit.name} is {mean:.3g} s")
    return some(passed)


def _engine(one: Run) -> str:
    return short(one.manifest["provenance"].get("engine_version"))


def _harness(one: Run) -> str:
    made = one.manifest["provenance"].get("harness") or {}
    return f"{made.get('version')} {str(made.get('commit'))[:8]}"


def client_gave_up(one: Run) -> bool:
    """Whether a run is INVALID for what its client or the path to the server did."""
    checks = one.manifest.get("verdict", {}).get("checks", [])
    return any(check.get("level") == "INVALID" and check.get("name") in OF_THE_CLIENT for check in checks)


def finished_run(out: Path, spec: RunSpec, url: str | None = None) -> Run | None:
    """The whole run of this very spec under `out`, the latest of several; None where there is none.

    Of a server that was driven it must be the one at `url`.
    """
    at_url = (one for one in finished_runs(out, spec) if url in (None, one.manifest["provenance"].get("url")))
    return next(at_url, None)


def _check_requests(spec: RunSpec, limits: Sequence[Limit]) -> None:
    for limit in limits:
        if spec.requests < limit.least_requests():
            raise UserError(
                f"--requests {spec.requests}: {limit.name} takes {limit.least_requests()} or more: raise it, or lower "
                "the percentile"
            )


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -BEYOND
