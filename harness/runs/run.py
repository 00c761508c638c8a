"""Reading run directories: find them, load one, or say in a line what is wrong with it."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.measure.verdict import NO_VERDICT, OVERLOAD
from harness.runs.schema import check_concluded, check_manifest, check_summary, read_json
from harness.runs.tables import read_table

PARTIAL = ".partial"
# The user's file that the policy of a run is in.
POLICY_FILE = "policy.py"

_SLUG_LENGTH = 80

# Directories looked into for one run to name in an error.
_LOOKED_AT = 1000
# Directories in a row without a run: a project with its environments has fewer, a disk more.
MOST_WITHOUT = 20_000


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
    def started(self) -> datetime:
        """When the run started, in UTC; UserError where what stands there is no time of a known zone."""
        try:
            started = datetime.fromisoformat(self.manifest["started_utc"])
            if started.tzinfo is None:
                raise ValueError
            return started.astimezone(UTC)
        except (KeyError, TypeError, ValueError, OverflowError):
            why = "started_utc is no time with its zone: take it from a copy, or run again"
            raise UserError(f"{self.path}/run.json: {why}") from None

    @property
    def level(self) -> str:
        """VALID, DEGRADED or INVALID; NONE of a reported run, which nobody could check."""
        if self.kind == "reported":
            return NO_VERDICT
        return str(self.manifest.get("verdict", {}).get("level", "INVALID"))

    @property
    def is_overloaded(self) -> bool:
        """Whether nothing but a rate above capacity makes the run INVALID: its throughput still is what was served."""
        verdict = self.manifest.get("verdict", {})
        if self.status != "complete" or self.level != "INVALID":
            return False
        invalid = {check.get("name") for check in verdict.get("checks", ()) if check.get("level") == "INVALID"}
        return invalid == {OVERLOAD}

    @property
    def profile(self) -> str:
        """What `--gpu` takes to read this run's profile again: its file where it has one, else the GPU's name."""
        file = self.manifest.get("provenance", {}).get("profile_file")
        return os.path.expanduser(file) if self.spec.profile and isinstance(file, str) else self.spec.gpu

    @property
    def known_spec(self) -> dict[str, Any]:
        """What is known of the spec: all of it, or of a reported run what its source tells."""
        if self.kind == "reported":
            return dict(self.manifest["spec"])
        return self.spec.to_dict()

    def requests(self) -> pa.Table:
        """The request table; UserError where there is none or it is damaged."""
        return read_table(self.path, "requests")

    def steps(self) -> pa.Table | None:
        """The step table, None where the engine told nothing of its steps."""
        table = read_table(self.path, "steps")
        return table if table.num_rows else None


def slug(name: str) -> str:
    """A name as a path segment of [a-z0-9._=+-], never empty or hidden; long ones end in a hash."""
    segment = re.sub(r"[^a-z0-9._=+-]", "-", name.lower()).lstrip(".-") or "none"
    if len(segment) > _SLUG_LENGTH:
        segment = f"{segment[: _SLUG_LENGTH - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return segment


def run_path(out: Path, spec: RunSpec, started: datetime, digest: str | None = None) -> Path:
    """Where a run lands: out / gpu / model / workload / policy / UTC-digest-repeat, each segment a slug.

    `digest` is the one in run.json, None the spec's own: a run from before a field of the spec has another.
    """
    stamp = started.astimezone(UTC).strftime("%Y%m%dt%H%M%S.%fz")
    names = (gpu_name(spec.gpu), spec.model, spec.workload, spec.policy)
    return out.joinpath(*map(slug, names), f"{stamp}-{(digest or spec.digest)[:8]}-r{spec.repeat}")


def gpu_name(gpu: str) -> str:
    """A GPU's name; runs of before have the path of a profile file there, which is none: its file's name stands in."""
    return PurePosixPath(gpu).stem if gpu.endswith(".toml") else gpu


def load_run(path: Path) -> Run:
    """The run in a directory; UserError, with the file and the remedy, where that cannot be read."""
    if not os.path.isfile(path / "run.json"):
        if is_partial(path) or os.path.isdir(partial_of(path)):
            raise UserError(f"{path}: this run did not finish: `bench recover {path}` makes it readable")
        raise no_run_error(path)
    manifest = read_json(path / "run.json", "it cannot be mended: run again")
    spec = check_manifest(path / "run.json", manifest)
    if manifest["status"] == "running":
        raise UserError(f"{path}: this run did not finish: `bench recover {path}` makes it readable")
    check_concluded(path / "run.json", manifest)
    summary = read_json(path / "summary.json", f"`bench recover {path}` makes it again", missing_ok=True)
    if summary:
        check_summary(path / "summary.json", summary)
    return Run(path, manifest, spec, summary)


def load_runs(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """The runs that can be read, and a line for each that cannot: one bad run does not hide the others."""
    runs, problems = [], []
    for path in paths:
        try:
            runs.append(load_run(path))
        except UserError as error:
            problems.append(str(error))
    return runs, problems


def find_runs(root: Path) -> list[Path]:
    """The finished runs at and under a directory, in the order of their paths; UserError where it is a whole disk."""
    return [path for path in _walk(root) if not is_partial(path)]


def runs_of(paths: Iterable[Path]) -> list[Path]:
    """The finished runs at and under each path; one that holds none stands as it is, for `load_run` to say why."""
    runs: list[Path] = []
    for path in paths:
        below = find_runs(path) if path.is_dir() else []
        runs += below or [path]
    return runs


def find_partials(root: Path) -> list[Path]:
    """The runs at and under a directory that go on still or were killed."""
    return [path for path in _walk(root) if is_partial(path)]


def _walk(root: Path, most: int | None = None) -> Iterator[Path]:
    without = 0
    if not os.path.isdir(root):
        raise UserError(f"{root}: no such directory: name one that holds runs (the default of --out is `runs`)")
    for directory, below, files in itertools.islice(os.walk(root), most):
        below.sort()
        if "run.json" in files:
            below.clear()
            without = 0
            yield Path(directory)
            continue
        without += 1
        if without == MOST_WITHOUT:
            raise UserError(
                f"{root}: given up after {MOST_WITHOUT:,} directories in a row without a run: name the one that holds "
                "runs (the default of --out is `runs`)"
            )


def no_run_error(path: Path) -> UserError:
    """What to say of a path that holds no run: it may be the parent of some."""
    below = None
    if os.path.isdir(path):
        below = next((run for run in _walk(path, _LOOKED_AT) if not is_partial(run)), None)
    hint = f"name one run, such as {below}" if below else "name one that `bench list` shows"
    return UserError(f"{path}: no run directory (no run.json): {hint}")


def _with_name(path: Path) -> Path:
    """The path with a last part that is its name: `.` and `..` have none."""
    return path if path.name not in ("", "..") else path.resolve()


def is_partial(path: Path) -> bool:
    """Whether this is the directory of a run that goes on still or was killed."""
    name = _with_name(path).name
    return name.endswith(PARTIAL) and name != PARTIAL


def partial_of(path: Path) -> Path:
    """The name of a run's directory while it runs."""
    path = _with_name(path)
    if is_partial(path):
        return path
    # The root has no name to add to.
    return path.with_name(path.name + PARTIAL) if path.name else path / PARTIAL


def final_of(path: Path) -> Path:
    """The name of a run's directory once it is finished."""
    path = _with_name(path)
    return path.with_name(path.name.removesuffix(PARTIAL)) if is_partial(path) else path
