"""One run: stream → engine → records → summary → directory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.core.errors import USER_ERRORS, Interrupted, RunFailed
from harness.core.runspec import RunSpec
from harness.engines.base import Engine, Progress, Stopped
from harness.engines.simulated import Simulated
from harness.runs.provenance import collect
from harness.runs.run import Run, load_run
from harness.runs.writer import RunWriter
from harness.session.beside import MOST_REQUESTS, beside
from harness.session.lengths import notes_on
from workloads.catalog import load_workload
from workloads.core import options
from workloads.core.arrivals import parse_arrival
from workloads.core.stream import Stream, schedule
from workloads.core.trace import Trace

MakeEngine = Callable[[RunSpec, Stream], Engine]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that has everything it needs and has not begun."""

    spec: RunSpec
    stream: Stream
    engine: Engine

    @property
    def notes(self) -> list[str]:
        """What the terminal and the manifest both say about this run."""
        source = self.stream.trace.source
        return [
            *self.engine.notes,
            *notes_on(self.spec.policy, self.spec.lengths),
            *source.get("notes", ()),
            *source.get("notices", ()),
        ]


def prepare(spec: RunSpec, make: MakeEngine = Simulated) -> Prepared:
    """Loads what the run needs; whatever the user can mend is raised here, before anything runs."""
    stream = stream_of(spec)
    return Prepared(spec, stream, make(spec, stream))


def stream_of(spec: RunSpec) -> Stream:
    """The requests of a run and when they are due."""
    trace = trace_of(spec.workload, spec.requests, spec.seed, spec.model)
    return schedule(parse_arrival(spec.arrival), trace, spec.seed, spec.think_s if spec.sessions else None)


def run(
    prepared: Prepared,
    out: Path,
    argv: Sequence[str],
    progress: Progress,
    stopped: Stopped,
    alone: bool = True,
    named: dict[str, Any] | None = None,
) -> Run:
    """Replays the stream and returns the finished run; its directory says how it went.

    What was `named` beforehand (headline rows, a width) joins its provenance. A simulated run that is not to stay
    `alone` is held against the other cost models, which its run.json then has.
    Raises UserError where `out` cannot be written, RunFailed where the run broke (its directory keeps what
    was recorded).
    """
    stream, engine = prepared.stream, prepared.engine
    writer = RunWriter.create(
        out,
        prepared.spec,
        kind=engine.kind,
        provenance=collect(argv) | engine.provenance() | provenance_of(stream) | (named or {}),
        planned_requests=len(stream.trace),
        notes=prepared.notes,
        degraded=[*engine.degraded, *repeated(stream)],
        policy_text=None if engine.policy_file is None else engine.policy_file.text,
    )
    try:
        ended = engine.replay(writer, progress, stopped)
        notes = [*prepared.notes, *ended.notes]
        observed = dict(ended.observed)
        if not alone and isinstance(engine, Simulated) and ended.status == "complete":
            if len(stream.trace) <= MOST_REQUESTS:
                observed["beside"] = beside(engine, stopped)
            else:
                notes.append(f"not held against other cost models: more than {MOST_REQUESTS:,} requests")
        observed["notes"] = notes
        return load_run(writer.finish(ended.status, ended.reason, observed))
    except KeyboardInterrupt:
        writer.close()
        # The second Ctrl-C may come after the directory has moved into place.
        left = writer.partial if writer.partial.exists() else writer.path
        raise Interrupted(f"cut off at once: `bench recover {left}` makes what was recorded readable") from None
    except RunFailed:
        raise
    except OSError as error:
        writer.close()
        raise RunFailed(
            f"{error.filename or writer.partial}: cannot write ({error.strerror or error}); what was recorded is kept: "
            f"make room, then `bench recover {writer.partial}`"
        ) from None
    except BaseException as error:
        kind = "" if isinstance(error, USER_ERRORS) else f"{type(error).__name__}: "
        with contextlib.suppress(RunFailed):
            writer.finish("failed", f"{kind}{error}")
        raise


def repeated(stream: Stream) -> list[str]:
    """Why a run is DEGRADED whose requests are the same few rows over and over."""
    window = stream.trace.source.get("window", {})
    if window.get("rows", 0) < 2 * window.get("of", 1):
        return []
    return [f"{window['rows']:,} requests repeat {window['of']:,} rows: intervals speak for these rows alone"]


def provenance_of(stream: Stream) -> dict[str, Any]:
    """Where the requests come from, and the digests that tell whether two runs had the same."""
    trace = stream.trace
    return {
        "trace": trace.source,
        "trace_label": trace.label,
        "trace_digest": trace.digest,
        "stream_digest": stream.digest,
    }


@lru_cache(maxsize=4)
def trace_of(workload: str, requests: int | None, seed: int, model: str) -> Trace:
    """The rows that a run of so many requests takes of a workload after its filters; None takes all."""
    name, given = options.split(workload)
    return load_workload(name, given, requests=requests, seed=seed, model=model)
