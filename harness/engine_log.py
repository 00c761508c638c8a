"""What the scheduler inside a real engine wrote down, taken into a run's tables when it ends or is recovered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import UserError
from harness.records import REQUESTS

# The scheduler's file in a run directory. It stays there: it holds each request's events as well.
STEP_LOG = "steps.log"
# All that the engine's processes say; each holds its lock.
ENGINE_LOG = "engine.log"

Batches = Iterator[pa.RecordBatch]


def read_engine_log(directory: Path, manifest: dict[str, Any]) -> dict[str, Callable[[Batches], Batches]] | None:
    """What becomes of each table's rows by the engine's step log; None where the engine has written none.

    The log is on the client's monotonic clock, whose origin of the run stands in the manifest. A log that cannot be
    read costs the steps, not the requests, and the manifest's notes say so.
    """
    path, origin_ns = directory / STEP_LOG, manifest.get("clock", {}).get("origin_ns")
    if origin_ns is None or not path.is_file():
        return None
    from harness.step_table import read_step_log

    try:
        log = read_step_log(path, origin_ns)
    except (UserError, ValueError, KeyError, TypeError) as error:
        manifest["notes"] = [*manifest.get("notes", ()), f"{STEP_LOG} cannot be read, so no step is known: {error}"]
        return None
    manifest["engine_steps"] = log.header
    preemptions = _preemptions(log.events)

    def steps(_: Batches) -> Batches:
        for batch in log.batches():
            # Before the run's start was the warm-up.
            yield batch.filter(pc.greater_equal(batch.column("t_s"), 0))

    def requests(batches: Batches) -> Batches:
        place = REQUESTS.get_field_index("preemptions")
        for batch in batches:
            told = pa.array([preemptions.get(one) for one in batch.column("id").to_pylist()], pa.int64())
            # A virtual run's rows know it already, and its ids need not be those of the engine.
            counts = pc.coalesce(batch.column(place), told)
            yield batch.set_column(place, REQUESTS.field(place), counts)

    return {"steps": steps, "requests": requests}


def unfinished(path: Path) -> int | None:
    """Requests whose end the log at `path` does not tell yet; None where it is no log."""
    from harness.step_table import read_step_log

    try:
        events = read_step_log(path, 0).events.column("event").cast(pa.string())
    except (UserError, ValueError, KeyError, TypeError):
        return None
    counts = {one["values"]: one["counts"] for one in pc.value_counts(events).to_pylist()}
    return int(counts.get("arrival", 0) - counts.get("finish", 0) - counts.get("abort", 0))


def _preemptions(events: pa.Table) -> dict[str, int]:
    """How often each request was preempted, by the id that the client gave it."""
    last = events.filter(pc.is_in(events.column("event").cast(pa.string()), pa.array(["finish", "abort"])))
    return dict(zip(last.column("request").to_pylist(), last.column("preemptions").to_pylist(), strict=True))
