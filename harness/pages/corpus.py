"""What the leaderboard shows: every run under a results directory that can be trusted to be shown."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.pages.detail import detail_of
from harness.pages.keep import Keep
from harness.runs import Run, find_partials, find_runs, load_run

# A run's files together; what is larger belongs elsewhere and would make every checkout slow.
LARGEST_BYTES = 64 * 2**20
FILES = ("run.json", "summary.json", "requests.parquet", "steps.parquet", "engine.log")


@dataclass(frozen=True, slots=True)
class Entry:
    """A run on the site: `id` is short, stable and part of its links; `where` is its path under results/."""

    id: str
    where: str
    run: Run
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """A directory that is left out, and why, in one line."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """The runs in the order of their paths, and what was left out."""

    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]


def collect(results: Path, keep: Keep) -> Corpus:
    """Reads every run under `results`; a broken or hostile one becomes a Problem and hides no other.

    UserError where there is no such directory.
    """
    root = results.resolve()
    entries: list[Entry] = []
    problems: list[Problem] = []
    for path in find_runs(results):
        where = path.relative_to(results).as_posix()
        try:
            _refuse(path, root)
            run = load_run(path)
            entries.append(Entry(id_of(where), where, run, keep.made(_key(path), lambda run=run: detail_of(run))))  # type: ignore[misc]
        except UserError as error:
            problems.append(Problem(where, str(error).replace(f"{results}/", "")))
    unfinished = "did not finish: `bench recover` it first"
    problems += [Problem(path.relative_to(results).as_posix(), unfinished) for path in find_partials(results)]
    entries, copies = _without_copies(entries)
    return Corpus(tuple(entries), tuple(sorted(problems + copies, key=lambda one: one.where)))


def id_of(where: str) -> str:
    """Ten hex digits of the path under results/: stable as long as the run stays where it is."""
    return hashlib.sha256(where.encode()).hexdigest()[:10]


def _refuse(path: Path, root: Path) -> None:
    """UserError for what leaves results/ by a link, or is too large to publish."""
    if root not in (path.resolve(), *path.resolve().parents):
        raise UserError(f"{path}: leads out of the results directory: copy the run itself there")
    total = 0
    for one in sorted(os.scandir(path), key=lambda one: one.name):
        if one.is_symlink():
            raise UserError(f"{path}/{one.name}: a link: only the run's own files can be published")
        total += one.stat().st_size
    if total > LARGEST_BYTES:
        raise UserError(f"{path}: {total / 2**20:,.0f} MiB, at most {LARGEST_BYTES >> 20} can be published")


def _key(path: Path) -> str:
    """What the detail of a run depends on: the bytes of its small files, size and time of its tables."""
    sha = hashlib.sha256()
    for name in FILES:
        file = path / name
        if not file.is_file():
            continue
        sha.update(name.encode())
        if name.endswith(".json"):
            sha.update(file.read_bytes())
        else:
            found = file.stat()
            sha.update(f"{found.st_size} {found.st_mtime_ns}".encode())
    return sha.hexdigest()


def _without_copies(entries: list[Entry]) -> tuple[list[Entry], list[Problem]]:
    """A run that lies there twice is shown once: same spec, same start, same kind."""
    seen: dict[tuple[str, str, str], str] = {}
    kept: list[Entry] = []
    copies: list[Problem] = []
    for entry in entries:
        manifest = entry.run.manifest
        key = (manifest["digest"], str(manifest.get("started_utc")), entry.run.kind)
        if key in seen and entry.run.kind != "reported":
            copies.append(Problem(entry.where, f"the same run as {seen[key]}: shown once"))
        else:
            seen[key] = entry.where
            kept.append(entry)
    ids = Counter(entry.id for entry in kept)
    assert max(ids.values(), default=1) == 1, "ten hex digits are too few for so many runs"
    return kept, copies
