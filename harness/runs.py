"""Reading run directories: find them, load one, or say in a line what is wrong with it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import UserError
from harness.records import REQUESTS, STEPS
from harness.runspec import RunSpec

SCHEMA_VERSION = 1
PARTIAL = ".partial"
TABLES = {"requests": REQUESTS, "steps": STEPS}


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run as its directory holds it; the tables are read when asked for."""

    path: Path
    manifest: dict[str, Any]
    spec: RunSpec
    summary: dict[str, Any]

    @property
    def kind(self) -> str:
        """measured, emulated, simulated or reported."""
        return str(self.manifest["kind"])

    @property
    def status(self) -> str:
        """complete, interrupted or failed."""
        return str(self.manifest["status"])

    @property
    def level(self) -> str:
        """VALID, DEGRADED or INVALID."""
        return str(self.manifest.get("verdict", {}).get("level", "INVALID"))

    def requests(self) -> pa.Table:
        """The request table; UserError where there is none or it is damaged."""
        return read_table(self.path, "requests")

    def steps(self) -> pa.Table | None:
        """The step table, None where the engine told nothing of its steps."""
        table = read_table(self.path, "steps")
        return table if table.num_rows else None


def load_run(path: Path) -> Run:
    """The run in a directory; UserError, with the file and the remedy, where that cannot be read."""
    if not (path / "run.json").is_file():
        if path.name.endswith(PARTIAL) or partial_of(path).is_dir():
            raise UserError(f"{path}: this run did not finish: `bench recover {path}` makes it readable")
        found = find_runs(path)[:1] if path.is_dir() else []
        hint = f"name one run, such as {found[0]}" if found else "name one that `bench list` shows"
        raise UserError(f"{path}: no run directory (no run.json): {hint}")
    manifest = read_json(path / "run.json", "it cannot be mended: run again")
    if manifest.get("status") == "running":
        raise UserError(f"{path}: this run did not finish: `bench recover {path}` makes it readable")
    try:
        spec = RunSpec.from_dict(manifest["spec"])
        for key in ("digest", "kind", "status"):
            manifest[key]
    except (KeyError, TypeError) as error:
        raise UserError(f"{path / 'run.json'}: not a run's manifest ({error}): run again") from None
    summary = read_json(path / "summary.json", f"`bench recover {path}` makes it again", missing_ok=True)
    return Run(path, manifest, spec, summary)


def find_runs(root: Path) -> list[Path]:
    """The finished runs at and under a directory, in the order of their paths."""
    return [path for path in _walk(root) if not path.name.endswith(PARTIAL)]


def find_partials(root: Path) -> list[Path]:
    """The runs at and under a directory that go on still or were killed."""
    return [path for path in _walk(root) if path.name.endswith(PARTIAL)]


def _walk(root: Path) -> Iterator[Path]:
    if not root.is_dir():
        raise UserError(f"{root}: no such directory: name one that holds runs (the default of --out is `runs`)")
    for directory, below, files in os.walk(root):
        below.sort()
        if "run.json" in files:
            below.clear()
            yield Path(directory)


def partial_of(path: Path) -> Path:
    """The name of a run's directory while it runs."""
    return path if path.name.endswith(PARTIAL) else path.with_name(path.name + PARTIAL)


def read_json(path: Path, remedy: str, missing_ok: bool = False) -> dict[str, Any]:
    """Read a JSON file of a schema known here; UserError with the remedy where that fails."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        if missing_ok:
            return {}
        raise UserError(f"{path}: not there: {remedy}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}): {remedy}") from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if not isinstance(schema, int):
        raise UserError(f"{path}: has no schema version: {remedy}")
    if schema > SCHEMA_VERSION:
        raise UserError(f"{path}: has schema {schema}, this schedbench reads up to {SCHEMA_VERSION}: upgrade it")
    return dict(value)


def read_table(directory: Path, name: str, columns: Collection[str] | None = None) -> pa.Table:
    """Read a run's `requests` or `steps` (all columns, or some); UserError where it is missing or damaged."""
    path = directory / f"{name}.parquet"
    try:
        wanted = None if columns is None else [column for column in TABLES[name].names if column in columns]
        table = pq.read_table(path, schema=TABLES[name], columns=wanted)
        table.validate()
    except FileNotFoundError:
        raise UserError(f"{path}: not there, so nothing can be computed from this run: run again") from None
    except (pa.ArrowException, OSError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"{path}: damaged ({why}): take it from a copy, or run again") from None
    return table
