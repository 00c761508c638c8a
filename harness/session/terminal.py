"""What `bench run` says: what it is about to do, how far it is, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from harness.core.console import plain_console
from harness.core.runspec import RunSpec
from harness.engines.base import Status
from harness.measure.start_and_end import LEAST_WAVES, in_flight, requests_for
from harness.measure.verdict import LEVELS, verdict_so_far
from harness.report.best import best_line
from harness.report.comparison import Comparison
from harness.report.curve import Curve, curves_of
from harness.report.curve_tables import curve_table
from harness.report.sentences import sentences
from harness.report.tables import fairness_table, mixed_share, run_table
from harness.runs.run import Run

# From one in ten requests on, recomputed work shapes the result.
MANY_PREEMPTIONS = 0.1

Arms = list[list[Run]]


def opening(spec: RunSpec, why: str) -> str | None:
    """What is about to replay, where it is not what the user named; `why` says what made it so."""
    if spec.engine == "simulated":
        reason = f" ({why})" if why else ""
        return f"replaying on the virtual-time engine{reason}: results are `simulated`"
    if spec.engine == "emulated":
        return "replaying with vLLM's own scheduler in virtual time: results are `emulated`"
    return f"starting real vLLM: {why}" if why else None


def few_waves(spec: RunSpec) -> list[str]:
    """What to say of a closed loop that hardly leaves its start before it ends."""
    level = in_flight(spec)
    if level is None or level >= spec.requests or spec.requests >= LEAST_WAVES * level:
        return []
    return [
        f"{spec.requests:,} requests at {level:,} in flight are {spec.requests / level:.1f} waves: the run's start and "
        f"end weigh in; --requests {requests_for(spec)} show the steady state"
    ]


def progress_bar(console: Console, hidden: bool) -> Progress:
    """A line a run that goes away when it ends."""
    columns = (
        TextColumn("{task.fields[place]}"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}", markup=False),
    )
    return Progress(*columns, console=console, transient=True, disable=hidden or not console.is_terminal)


def status_line(status: Status) -> str:
    """How far a run is: its clock, its rate and, where a server is driven, what its verdict would be so far."""
    rate = f"{status.output_tokens / status.now_s:,.0f} tok/s" if status.now_s > 0 else ""
    if status.doing:
        return status.doing
    if status.in_flight is None:
        return f"virtual {status.now_s:,.1f} s  {rate}"
    lag = "" if status.lag_s is None else f"  lag {status.lag_s * 1e3:.1f} ms"
    so_far = verdict_so_far(status.finished, status.failed, status.cpu_share)
    return f"{status.now_s:,.1f} s  {rate}  {status.in_flight} in flight  {status.failed} failed{lag}  {so_far} so far"


def print_answer(groups: Sequence[Arms], comparisons: Sequence[Comparison], said: Sequence[str]) -> None:
    """Tables and sentences on standard output, a GPU, workload, slots and arrival at a time.

    Where one workload came at several loads, curves over them stand in the place of a table for each. Notes that were
    `said` before the runs are not said again.
    """
    console = plain_console()
    several = len({arm[0].spec.slots for arms in groups for arm in arms}) > 1
    curves = curves_of([run for arms in groups for arm in arms for run in arm])
    for arms in groups:
        _print_group(console, arms, comparisons, said, with_slots=several, with_tables=not curves)
    by_place: dict[tuple[str, str, int, str], list[Curve]] = {}
    for curve in curves:
        spec = curve.first.spec
        by_place.setdefault((spec.gpu, spec.workload, spec.slots, curve.axis), []).append(curve)
    for (gpu, workload, slots, _), some_curves in by_place.items():
        told = f", {slots:,} slots" if several else ""
        console.print(f"\n{workload} on {gpu}: {some_curves[0].first.spec.requests:,} requests a load{told}")
        console.print(curve_table(some_curves))


def print_places(runs: Sequence[Run]) -> None:
    """Where the runs' files are, a line each."""
    console = plain_console()
    console.print()
    for run in runs:
        console.print(str(run.path), markup=False, soft_wrap=True)


def _print_group(
    console: Console,
    arms: Arms,
    comparisons: Sequence[Comparison],
    said: Sequence[str],
    *,
    with_slots: bool,
    with_tables: bool,
) -> None:
    runs = [run for arm in arms for run in arm]
    spec = runs[0].spec
    label = runs[0].manifest["provenance"].get("trace_label", spec.workload)
    heading = spec.workload if label == spec.workload else f"{spec.workload} [{label}]"
    slots = f", {spec.slots:,} slots" if with_slots else ""
    console.print(f"\n{heading} on {spec.gpu}: {spec.requests:,} requests, {spec.arrival}{slots}")
    if with_tables:
        console.print(run_table(runs))
        fairness = fairness_table(runs)
        if fairness is not None:
            console.print(fairness)
    for arm in arms:
        for line in _about(arm):
            console.print(f"  {line}")
    for note in dict.fromkeys(note for run in runs for note in run.manifest["notes"]):
        if note not in said:
            console.print(f"  note: {note}")
    own = [comparison for comparison in comparisons if comparison.a[0] in runs]
    for comparison in own:
        console.print("\n".join(sentences(comparison)))
    if (best := best_line(own)) is not None:
        console.print(best)


def _about(arm: list[Run]) -> list[str]:
    """Why an arm is not VALID, and how its policy went about it where it can choose."""
    worst = max(arm, key=lambda run: LEVELS.index(run.level))
    which = f" (worst of {len(arm)}: repeat {worst.spec.repeat})" if len(arm) > 1 else ""
    lines = [f"{worst.spec.label} {reason}{which}" for reason in worst.manifest["verdict"]["reasons"]]
    preempted = [check["value"] for run in arm for check in _observed(run, "preemptions")]
    if preempted and max(preempted) > MANY_PREEMPTIONS:
        lines.append(
            f"{worst.spec.label}: {max(preempted):.2g} preemptions a request: work is done twice; hold others against "
            "it at its best --slots"
        )
    share = mixed_share(arm)
    if share is not None:
        lines.append(f"{worst.spec.policy} spent {100 * share:.0f} % of its steps in mixed mode")
    return lines


def _observed(run: Run, name: str) -> list[dict[str, Any]]:
    """A check of the run's verdict that gave a number."""
    checks = run.manifest["verdict"].get("checks", ())
    return [check for check in checks if check["name"] == name and "value" in check]
