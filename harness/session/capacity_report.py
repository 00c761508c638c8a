"""What a search for capacity found, as a document and on a terminal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.console import plain_console
from harness.core.text import percent
from harness.measure.estimate import Ratio
from harness.report.capacity import LEAST_REPEATS, Capacity, capacity_of, capacity_ratio, capacity_words
from harness.report.curve import curves_of
from harness.report.curve_tables import curve_table
from harness.report.limits import Limit
from harness.report.words import NOT_TESTED
from harness.session.capacity import WAVES, Arm, CapacitySearch

if TYPE_CHECKING:
    from rich.table import Table

Found = tuple[Arm, Capacity]


def capacities_document(search: CapacitySearch) -> dict[str, Any]:
    """What was found, as JSON values: every arm, and each against the first of its place."""
    arms = [(arm, capacity_of(arm.search)) for arm in search.arms]
    return {
        "axis": search.wanted.axis,
        "precision": search.wanted.precision,
        "limits": {limit.name: limit.limit_s for limit in search.wanted.limits},
        "capacity": [_arm_document(arm, found, search.wanted.limits) for arm, found in arms],
        "comparisons": [against.to_dict() for against in against_first(arms)],
    }


@dataclass(frozen=True, slots=True)
class Against:
    """An arm beside the first that was named on the same GPU, workload and slots, and the word for it."""

    first: Found
    arm: Found
    ratio: Ratio | None
    word: str

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        values = {} if self.ratio is None else dataclasses.asdict(self.ratio)
        return {"a": self.first[0].spec.label, "b": self.arm[0].spec.label, **values, "word": self.word}


def against_first(arms: Sequence[Found]) -> list[Against]:
    """Each arm beside the first of its place; the words of one place are corrected for their number."""
    places: dict[tuple[str, str, int], list[Found]] = {}
    for one in arms:
        places.setdefault(one[0].place, []).append(one)
    found = []
    for first, *others in places.values():
        ratios = [capacity_ratio(first[1], other[1]) for other in others]
        words = capacity_words(ratios, len(first[0].specs))
        found += [Against(first, *each) for each in zip(others, ratios, words, strict=True)]
    return found


def _arm_document(arm: Arm, found: Capacity, limits: Sequence[Limit]) -> dict[str, Any]:
    spec, loads = arm.spec, arm.search.loads
    return {
        "gpu": spec.gpu,
        "model": spec.model,
        "workload": spec.workload,
        "slots": spec.slots,
        "policy": spec.label,
        "engine": spec.engine,
        "requests": spec.requests,
        **dataclasses.asdict(found),
        "waves": waves_at_capacity(arm),
        "ended": arm.ended,
        "points": [
            {
                "load": loads[place],
                "met": tried.met,
                "why": tried.why,
                "values": {limit.name: [limit.value_of(one) for one in arm.runs[place]] for limit in limits},
                "levels": [one.level for one in arm.runs[place]],
                "dirs": [str(one.path) for one in arm.runs[place]],
            }
            for place, tried in sorted(arm.search.tried.items())
        ],
    }


def print_capacities(search: CapacitySearch) -> None:
    """The capacities, each against the first, and the curve of all loads that were tried, on standard output."""
    console = plain_console()
    arms = [(arm, capacity_of(arm.search)) for arm in search.arms if arm.search.tried]
    for place in dict.fromkeys(arm.place for arm, _ in arms):
        here = [(arm, found) for arm, found in arms if arm.place == place]
        spec, limits = here[0][0].spec, search.wanted.limits
        told = ", ".join(f"{limit.name} ≤ {limit.limit_s:g} s" for limit in limits)
        told = f"the highest {search.wanted.axis} with {told}; {spec.requests:,} requests a run"
        slots = f", {spec.slots:,} slots" if len({arm.spec.slots for arm, _ in arms}) > 1 else ""
        console.print(f"\n{spec.workload} on {spec.gpu}{slots}: {told}")
        console.print(_table(here, search.wanted.axis))
        for arm, found in here:
            for line in _about(arm, found):
                console.print(f"  {arm.spec.label}: {line}")
        for against in against_first(here):
            console.print(f"  {sentence(against)}")
        curves = curves_of([run for arm, _ in here for runs in arm.runs.values() for run in runs])
        if curves:
            console.print(curve_table(curves))


def sentence(against: Against) -> str:
    """An arm's capacity against the first's, with its interval and word."""
    names = f"{against.arm[0].spec.label} against {against.first[0].spec.label}"
    ratio = against.ratio
    if ratio is None:
        return f"{names}: no ratio: it takes two repeats, each with a load that is met and one that is not"
    change = f"{names}: capacity {percent(ratio.ratio)} % ({percent(ratio.low)} … {percent(ratio.high)} %)"
    least = f" (it takes --repeat {LEAST_REPEATS})" if against.word == NOT_TESTED else ""
    return f"{change}: {against.word}{least}"


def waves_at_capacity(arm: Arm) -> float | None:
    """How many times over the run fills its requests in flight at the highest load that is met (Little's law)."""
    met, _ = arm.search.bracket()
    if met is None:
        return None
    load, runs = arm.search.loads[met], arm.runs[met]
    if runs[0].spec.arrival.startswith("closed"):
        return runs[0].spec.requests / load
    stays = [run.summary["metrics"]["e2el_s"]["mean"] for run in runs]
    return None if None in stays else runs[0].spec.requests / (load * math.fsum(stays) / len(stays))


def _table(found: Sequence[Found], axis: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("policy", overflow="fold")
    for column in ("capacity", "95 % interval", "met at", "not met at", "loads"):
        table.add_column(column, justify="right", no_wrap=True)
    unit = " req/s" if axis == "rate" else ""
    for arm, one in found:
        interval = "-" if one.low is None or one.high is None else f"{one.low:.4g} … {one.high:.4g}"
        value = "-" if one.value is None else f"{'≥ ' if one.unmet is None else ''}{one.value:.4g}{unit}"
        met, unmet = ("-" if load is None else f"{load:g}" for load in (one.met, one.unmet))
        table.add_row(Text(arm.spec.label), value, interval, met, unmet, str(len(arm.search.tried)))
    return table


def _about(arm: Arm, found: Capacity) -> list[str]:
    """What ended the load above the capacity, and what a reader should know of the search."""
    lines = []
    search = arm.search
    _, unmet = search.bracket()
    if unmet is not None:
        lines.append(f"at {search.loads[unmet]:g} {search.tried[unmet].why}")
    if found.met is None:
        lines.append("no load that was tried is met")
    if found.unmet is None:
        lines.append("the highest load that was tried is met: more --requests or a higher --most go further")
    if (again := search.met_again()) is not None:
        lines.append(f"met again at {again:g}: latency did not grow with load; more --requests or --repeat tell")
    if (waves := waves_at_capacity(arm)) is not None and waves < WAVES:
        wanted = math.ceil(arm.spec.requests * WAVES / waves / 100) * 100
        lines.append(
            f"at {found.met:g} the run is {waves:.1f} waves long, mostly start and end, so it may be too high: "
            f"--requests {wanted} are {WAVES} waves"
        )
    if arm.ended:
        lines.append(arm.ended)
    return lines
