"""Writing run directories: append while running, finish, recover. `runs` reads them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.core.errors import RunFailed, UserError
from harness.core.files import held, open_anew, sync
from harness.core.masking import scrub
from harness.core.records import PRODUCED, REQUESTS
from harness.core.runspec import SCHEMA_VERSION, RunSpec
from harness.core.sizes import MOST_TABLE_BYTES
from harness.core.text import visible
from harness.runs.append_log import AppendLog, is_locked, to_parquet, whole_batches
from harness.runs.run import POLICY_FILE, final_of, no_run_error, partial_of, run_path
from harness.runs.schema import check_manifest, read_json
from harness.runs.step_log import ENGINE_LOG, read_engine_log
from harness.runs.tables import MOST_ROWS, TABLES, read_table

LOGS = {name: f"{name}.arrows" for name in TABLES}
RECOVERED = "recovered: the process ended without finishing"


class RunWriter:
    """A run being written: `add_requests`, `add_steps`, then `finish`, or `close` to leave it to `recover`."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.partial = partial_of(path)
        self.manifest = manifest
        self._logs = {name: AppendLog(self.partial / LOGS[name], schema) for name, schema in TABLES.items()}

    @classmethod
    def create(
        cls,
        out: Path,
        spec: RunSpec,
        *,
        kind: str,
        provenance: dict[str, Any],
        started: datetime | None = None,
        planned_requests: int | None = None,
        notes: Sequence[str] = (),
        degraded: Sequence[str] = (),
        policy_text: str | None = None,
    ) -> RunWriter:
        """Make the directory `<run>.partial` with a run.json of status `running`.

        `kind` is measured, emulated or simulated; `degraded` lists why the run is DEGRADED at best; `policy_text` is
        the user's file that the policy is in, which is kept with the run. UserError where the run is there already or
        the place cannot be written to.
        """
        started = started or datetime.now(UTC)
        path = run_path(out, spec, started)
        partial = partial_of(path)
        manifest = {
            "schema": SCHEMA_VERSION,
            "spec": spec.to_dict(),
            "digest": spec.digest,
            "kind": kind,
            "status": "running",
            "reason": None,
            "started_utc": started.astimezone(UTC).isoformat(),
            "finished_utc": None,
            "planned": {"requests": spec.requests if planned_requests is None else planned_requests},
            "provenance": scrub(provenance),
            "notes": list(notes),
            "degraded": list(degraded),
        }
        _make_directory(path, partial)
        try:
            if policy_text is not None:
                with open_anew(partial / POLICY_FILE) as file:
                    file.write(policy_text.encode())
            write_json({partial / "run.json": manifest})
            return cls(path, manifest)
        except BaseException as error:
            # A directory that could not be begun is no run that `bench recover` could finish.
            shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError):
                raise UserError(f"{partial}: cannot start a run there ({_why(error)}): give another --out") from None
            raise

    def add_requests(self, batch: pa.RecordBatch) -> None:
        """Append request rows (columns of REQUESTS); RunFailed where the disk does not take them."""
        self._add("requests", batch)

    def add_steps(self, batch: pa.RecordBatch) -> None:
        """Append step rows (columns of STEPS); RunFailed where the disk does not take them."""
        self._add("steps", batch)

    def learn(self, provenance: dict[str, Any] | None = None, **values: Any) -> None:
        """Put into run.json at once what only a run under way can tell, so that a killed run has it too.

        `provenance` joins what stands there; RunFailed where the disk does not take it.
        """
        self.manifest |= scrub(values)
        self.manifest["provenance"] |= scrub(provenance or {})
        with _writing(self.partial):
            write_json({self.partial / "run.json": self.manifest})

    def finish(
        self, status: str = "complete", reason: str | None = None, observed: dict[str, Any] | None = None
    ) -> Path:
        """Make tables, summary and verdict, and move the directory into place; its path.

        `status` is complete, interrupted or failed. `observed` joins run.json: `client.cpu_share`,
        `prefix_cache.declared` and `.observed` are read by the verdict. RunFailed on a full disk.
        """
        self.manifest |= scrub(observed or {})
        self.close()
        with _writing(self.partial):
            return _finalise(self.partial, self.path, self.manifest, status, reason)

    def close(self) -> None:
        """Let go of the files; the directory stays `.partial` for `recover`."""
        for log in self._logs.values():
            log.close()

    def _add(self, table: str, batch: pa.RecordBatch) -> None:
        log = self._logs[table]
        if log.rows + batch.num_rows > MOST_ROWS[table] or log.bytes > MOST_TABLE_BYTES:
            self.close()
            raise RunFailed(
                f"{self.partial}: its {table} are more than can be read ({MOST_ROWS[table]:,} rows, "
                f"{MOST_TABLE_BYTES >> 20:,} MiB): `bench recover` makes what is there readable; run fewer requests"
            )
        try:
            log.add(batch)
        except OSError as error:
            self.close()
            failed = self.manifest | {
                "status": "failed",
                "reason": f"cannot write {log.path.name}: {_why(error)}",
            }
            # On a full disk this fails as well, and then the old run.json stands.
            with contextlib.suppress(OSError):
                write_json({self.partial / "run.json": failed})
            kept = ", ".join(f"{kept_log.rows} {name}" for name, kept_log in self._logs.items())
            raise RunFailed(
                f"{log.path}: cannot write ({_why(error)}); {kept} are kept: make room, then "
                f"`bench recover {self.partial}`"
            ) from None


def recover(path: Path) -> tuple[Path, bool]:
    """Finish what a killed run left behind, or make a finished run's summary again.

    `path` is the `.partial` directory or the run's final name. Gives the run's directory and whether
    anything changed. UserError where it is no run, a process still writes it, or the disk is full.
    """
    final, partial = final_of(path), partial_of(path)
    source = partial if os.path.isdir(partial) else final
    if not os.path.isfile(source / "run.json"):
        raise no_run_error(path)
    if source is partial and os.path.lexists(final):
        raise UserError(f"{final} exists already and is never overwritten: move it away, then recover {partial}")
    manifest = read_json(source / "run.json", "it cannot be recovered: run again")
    check_manifest(source / "run.json", manifest)
    status, reason = manifest["status"], manifest.get("reason")
    if source is final and status != "running":
        return final, _conclude_again(final, manifest)
    try:
        logs = [source / name for name in (*LOGS.values(), ENGINE_LOG)]
        goes_on = any(is_locked(log) for log in logs if log.is_file())
    except OSError as error:
        raise UserError(f"{source}: cannot be recovered ({_why(error)}): make its files readable") from None
    if goes_on:
        raise UserError(f"{source}: the run still goes on: wait for it, or end it first")
    if status == "running":
        status, reason = "interrupted", RECOVERED
    with _mendable(), _writing(source), _alone(source):
        return _finalise(source, final, manifest, status, reason), True


def _conclude_again(directory: Path, manifest: dict[str, Any]) -> bool:
    """Make a finished run's summary, counts and verdict again; whether that changed a file."""
    if manifest["kind"] == "reported":
        return False
    files = [directory / name for name in ("summary.json", "run.json")]
    before = list(map(_bytes, files))
    with _mendable(), _writing(directory), _alone(directory):
        _conclude(directory, manifest)
    return before != list(map(_bytes, files))


def _finalise(partial: Path, final: Path, manifest: dict[str, Any], status: str, reason: str | None) -> Path:
    """Make the tables and all that follows from them; only then remove the append files and rename."""
    logs = {name: partial / log for name, log in LOGS.items()}
    from_engine = read_engine_log(partial, manifest)
    for name, log in logs.items():
        if log.is_file():
            rows = whole_batches(log, MOST_ROWS[name])
            try:
                batches = from_engine[name](rows) if from_engine else rows
                to_parquet(batches, partial / f"{name}.parquet", TABLES[name])
            except MemoryError:
                raise
            except (pa.ArrowException, ValueError) as error:
                why = str(error).splitlines()[0]
                raise UserError(f"{log}: damaged ({why}): take it from a copy, or run again") from None
    manifest |= {"status": status, "reason": reason}
    manifest["finished_utc"] = manifest.get("finished_utc") or datetime.now(UTC).isoformat()
    _conclude(partial, manifest)
    for log in logs.values():
        log.unlink(missing_ok=True)
    sync(partial)
    partial.rename(final)
    sync(final.parent)
    return final


def _conclude(directory: Path, manifest: dict[str, Any]) -> None:
    """Write summary.json and run.json of the two tables in a directory."""
    from harness.measure.evidence import Evidence
    from harness.measure.measured import is_closed_loop, measure
    from harness.measure.summary import count, summary_of
    from harness.measure.verdict import judge

    spec = RunSpec.from_dict(manifest["spec"])
    # Only what is measured: a million requests then take a few hundred megabytes.
    unread = {"id", "session", "turn", "error", "cached_tokens"}
    of_steps = {"t_s", "duration_s", "phase", "prefill_tokens", "decode_requests", *PRODUCED}
    if spec.replicas > 1:
        of_steps.add("replica")
    else:
        unread.add("replica")
    requests = read_table(directory, "requests", set(REQUESTS.names) - unread)
    steps = read_table(directory, "steps", of_steps)
    # An engine that tells nothing of its steps leaves an empty table.
    known_steps = steps if steps.num_rows else None
    measured = measure(requests, known_steps, spec, is_closed_loop(spec))
    manifest["counts"] = count(requests, known_steps)
    evidence = Evidence(spec, manifest, requests, known_steps, measured, directory / ENGINE_LOG)
    manifest["verdict"] = judge(evidence, manifest["status"], manifest.get("reason"))
    write_json({directory / "summary.json": summary_of(measured), directory / "run.json": manifest})


def write_json(files: dict[Path, dict[str, Any]], indent: int | None = 1) -> None:
    """Write JSON files, put in place once all of them are whole on disk: none is replaced where one fails.

    Without an `indent` all stands in one line, which is for what nobody reads.
    """
    parts = {path: path.with_name(path.name + ".tmp") for path in files}
    try:
        for path, value in files.items():
            apart = None if indent else (",", ":")
            text = visible(json.dumps(value, indent=indent, separators=apart, ensure_ascii=False, allow_nan=False))
            with open_anew(parts[path]) as file:
                file.write(f"{text}\n".encode())
                file.flush()
                os.fsync(file.fileno())
        for path, part in parts.items():
            part.replace(path)
    except BaseException:
        for part in parts.values():
            part.unlink(missing_ok=True)
        raise


def _make_directory(path: Path, partial: Path) -> None:
    """Make a run's directory, and no other; UserError where it is there or its place cannot be had."""
    try:
        if os.path.lexists(path) or os.path.lexists(partial):
            raise UserError(f"{path} exists already and is never overwritten: run again, or give another --out")
        os.makedirs(partial)
    except FileExistsError:
        raise UserError(f"{partial} exists already: give another --out") from None
    except (OSError, ValueError, RecursionError) as error:
        why = _why(error) if isinstance(error, OSError) else f"{type(error).__name__}, no name for a directory"
        shown = str(partial).encode("ascii", "backslashreplace").decode()
        shown = shown if len(shown) <= 300 and shown.isprintable() else f"{ascii(shown)[1:80]}…"
        raise UserError(f"{shown}: cannot start a run there ({why}): give another --out") from None


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One process at a time finishes a run; UserError for a second one."""
    try:
        with held(directory, wait=False):
            yield
    except BlockingIOError:
        raise UserError(f"{directory}: another bench finishes this run: wait for it") from None
    except FileNotFoundError:
        if directory.is_dir():
            raise
        raise UserError(f"{directory}: gone: another bench has finished this run meanwhile") from None


@contextlib.contextmanager
def _mendable() -> Iterator[None]:
    """A finished or killed run that cannot be written is the user's to mend: nothing runs."""
    try:
        yield
    except RunFailed as error:
        raise UserError(str(error)) from None


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Turn a failed write into one line that says what is kept and what to do."""
    try:
        yield
    except OSError as error:
        raise RunFailed(
            f"{directory}: cannot write ({_why(error)}); all that was measured is kept: make room, then "
            f"`bench recover {directory}`"
        ) from None


def _why(error: OSError) -> str:
    return error.strerror or str(error)
