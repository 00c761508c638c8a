"""`bench site check --replay`: a virtual engine is deterministic, so a simulated run made again has the same tables."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.errors import USER_ERRORS, Interrupted, RunFailed, UserError
from harness.core.machine import cores
from harness.core.runspec import RunSpec
from harness.engines.base import Status
from harness.engines.tokenstep import TokenStep
from harness.profiles.pair import KINDS
from harness.published.corpus import PublishedRun
from harness.published.submitted import fault_of, file_in, is_submitted
from harness.published.verify import TOLERANCE
from harness.runs.run import Run, load_run
from harness.runs.tables import TABLES
from harness.session.confined import Confines, confined
from harness.session.one_run import MakeEngine, prepare, run
from harness.session.profile_files import ENDING, ProfileFile, digest_of
from harness.session.start import simulated_on
from workloads.catalog import is_elsewhere

# Fewer runs than these are done before another process has started.
WORTHWHILE = 10
# A table of more rows is larger than what may be published; a spec could ask for more than memory holds.
MOST_REQUESTS = 4_000_000
# What run.json says of a run besides its tables, and the verdict builds on.
TOLD = ("verdict.level", "verdict.reasons", "provenance.cost_model", "provenance.trace_digest")

Task = TypeVar("Task")
Done = TypeVar("Done")


class NotHereError(UserError):
    """What a run needs is not at hand; the line says what."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a run compares with itself run again: `why` it differs, or why it could not be `made`; None where equal."""

    where: str
    why: str | None
    made: bool = True


def replayable(runs: Sequence[PublishedRun]) -> list[PublishedRun]:
    """The runs that a virtual engine made: a run's kind follows from its engine, which whoever loads it has seen to."""
    return [published for published in runs if published.run.kind == "simulated"]


def replays(runs: Sequence[PublishedRun], jobs: int | None = None, trust: bool = False) -> Iterator[Replayed]:
    """Runs each again, in their order; `jobs` processes, as many as cores unless told.

    Those under policies of their authors' own only where the user says to `trust` them, each in a process of its own.
    """
    yield from on_all_cores(_task, [(one.where, one.run.path.absolute(), trust) for one in runs], jobs)


def on_all_cores(task: Callable[[Task], Done], tasks: Sequence[Task], jobs: int | None = None) -> Iterator[Done]:
    """What a task gives for each, in their order, by so many processes; in this one where they are few."""
    jobs = min(jobs or cores(), max(1, len(tasks) // WORTHWHILE))
    if jobs == 1:
        yield from map(task, tasks)
        return
    import multiprocessing
    import signal
    from concurrent.futures import ProcessPoolExecutor

    # Not forked: pyarrow has threads. Ctrl-C is the first process's to see.
    context, ignore = multiprocessing.get_context("spawn"), (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(jobs, context, signal.signal, ignore) as pool:
        yield from pool.map(task, tasks, chunksize=4)


def _task(task: tuple[str, Path, bool]) -> Replayed:
    where, path, trust = task
    published = load_run(path)
    if not is_submitted(published):
        return _replayed((where, path))
    if not trust:
        why = f"policy {published.spec.policy} is its author's code: --trust-policies runs it, with limits"
        return Replayed(where, f"not run again: {why}", made=False)
    try:
        return confined(_replayed, (where, path), Confines())
    except RunFailed as error:
        return Replayed(where, f"run again, its policy {error}")


def _replayed(task: tuple[str, Path]) -> Replayed:
    where, path = task
    try:
        return Replayed(where, replay(load_run(path)))
    except NotHereError as error:
        return Replayed(where, f"not run again: {error}", made=False)


def replay(published: Run) -> str | None:
    """One line on the first value that the run has otherwise when its spec is run again, None where all are equal.

    Times and counts are held to be equal exactly, what a policy computed within TOLERANCE; a column that came after the
    run is passed over. Of an interrupted run only what it has is compared. NotHereError where it cannot be run here.
    """
    spec = with_costs(published)
    try:
        refuse(published)
        requests, steps = published.requests(), published.steps()
        end_s = 0.0 if steps is None else steps["t_s"][-1].as_py() + steps["duration_s"][-1].as_py()
        last = Status(0, 0.0, 0)

        def progress(status: Status) -> None:
            nonlocal last
            last = status

        def beyond() -> bool:
            # A spec may ask for more than its tables show: what is past their ends tells nothing more.
            return last.finished > len(requests) and last.now_s > end_s

        with tempfile.TemporaryDirectory(prefix="bench-replay-") as place:
            made = run(prepare(spec, engine_of(published)), Path(place), (), progress, beyond)
            why = _differs(published, made)
    except (NotHereError, RunFailed):
        raise
    except Interrupted:
        # What it says of recovering is of a directory that is gone.
        raise KeyboardInterrupt from None
    except USER_ERRORS as error:
        return f"cannot be run again: {error}"
    except Exception as error:
        # A stranger's spec may bring anything about: it is told of that run and hides no other.
        return f"cannot be run again ({type(error).__name__}: {str(error)[:200]!a})"
    made_by = published.manifest["provenance"].get("harness")
    commit = str(made_by.get("commit"))[:7] if isinstance(made_by, dict) else "?"
    return why and f"{why}: edited, or from when bench decided otherwise (commit {commit!a}): run again, publish that"


def with_costs(published: Run) -> RunSpec:
    """The run's spec; the cost model of an `auto` is what it was at the time, which its provenance tells."""
    spec = published.spec
    known = published.manifest["provenance"].get("cost_model")
    name = known.get("name") if isinstance(known, dict) else None
    if spec.engine == "simulated" and spec.cost_model == "auto" and name in KINDS:
        return replace(spec, cost_model=name)
    return spec


def engine_of(published: Run) -> MakeEngine:
    """What makes the engine of a virtual run again."""
    spec = published.spec
    if spec.engine == "tokenstep":
        return TokenStep
    policies = {}
    if is_submitted(published):
        if why := fault_of(published):
            raise UserError(why)
        file = file_in(published)
        policies = {file.name: file}
    return simulated_on({spec.gpu: ProfileFile(published.profile, spec.gpu, spec.profile)}, policies)


def refuse(published: Run) -> None:
    """NotHereError where the spec names what the project does not bring."""
    spec, profile = published.spec, published.profile
    if is_elsewhere(spec.workload):
        raise NotHereError(f"the workload {spec.workload} is a file or a download")
    if spec.profile or profile.endswith(ENDING):
        if not Path(profile).is_file():
            raise NotHereError(f"the profile {profile} is not there")
        if spec.profile and digest_of(profile) != spec.profile:
            raise NotHereError(f"the profile {profile} is another than the run's")
    if spec.requests > MOST_REQUESTS:
        raise NotHereError(f"{spec.requests:,} requests are more than {MOST_REQUESTS:,}")


def _differs(published: Run, made: Run) -> str | None:
    whole = published.status == "complete"
    for name in TABLES:
        if why := _table(published, made, name, whole):
            return f"{name}.parquet: {why}"
    for key in TOLD if whole else ():
        above, _, below = key.partition(".")
        was, again = (run.manifest[above].get(below) for run in (published, made))
        if was != again:
            return f"run.json: {key} is {str(was)[:100]}, run again {str(again)[:100]}"
    return None


def _table(published: Run, made: Run, name: str, whole: bool) -> str | None:
    was, again = (run.requests() if name == "requests" else run.steps() for run in (published, made))
    rows, rows_again = (0 if table is None else len(table) for table in (was, again))
    if was is not None and again is not None:
        # Columns that came after the run are null in its table, not in its file.
        with pa.OSFile(str(published.path / f"{name}.parquet")) as file:
            columns = pq.read_schema(file).names
        for column in columns:
            values, values_again = (table[column].slice(0, min(rows, rows_again)) for table in (was, again))
            row = _first_difference(values, values_again, exact=column.endswith("_s"))
            if row is not None:
                return f"row {row:,}: {column} is {str(values[row])[:60]}, run again {str(values_again[row])[:60]}"
    if rows > rows_again or (whole and rows < rows_again):
        return f"it has {rows:,} rows, run again {rows_again:,} or more"
    return None


def _first_difference(was: pa.ChunkedArray, again: pa.ChunkedArray, exact: bool) -> int | None:
    """The first row in which two columns differ; numbers that are no times may in their last digits."""
    if was.equals(again):
        return None
    pairs = zip(was.to_pylist(), again.to_pylist(), strict=True)
    return next((row for row, pair in enumerate(pairs) if not _same(*pair, exact)), None)


def _same(was: Any, again: Any, exact: bool) -> bool:
    if exact or not (isinstance(was, float) and isinstance(again, float)):
        return bool(was == again)
    return math.isclose(was, again, rel_tol=TOLERANCE) or (math.isnan(was) and math.isnan(again))
