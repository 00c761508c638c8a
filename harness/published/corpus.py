"""What the leaderboard shows: every run under a results directory that can be trusted to be shown."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.published.cache import Keep
from harness.published.detail import seen
from harness.runs.run import Run, is_partial, load_run
from harness.runs.schema import KIND_OF

# What is larger belongs elsewhere and would make every checkout slow: a run's files together, and its small ones.
LARGEST_BYTES = 64 * 2**20
LARGEST_JSON = 2**20
LONGEST_NAME = 200
FILES = ("run.json", "summary.json", "requests.parquet", "steps.parquet", "engine.log")
UNFINISHED = "did not finish: `bench recover` it first"


@dataclass(frozen=True, slots=True)
class Entry:
    """A run on the site: `id` is short, stable and part of its links; `where` is its path under results/.

    `digest` is of the bytes of all its files.
    """

    id: str
    where: str
    run: Run
    digest: str
    keep: Keep

    @property
    def detail(self) -> dict[str, Any]:
        """What the tables give (`seen`), computed once; UserError where they are damaged."""
        found: dict[str, Any] = self._kept["detail"]
        return found

    @property
    def differs(self) -> str | None:
        """How verdict or summary differ from what the tables give, None where they do not."""
        found: str | None = self._kept["differs"]
        return found

    @property
    def _kept(self) -> dict[str, Any]:
        return dict(self.keep.made(self.digest, lambda: seen(self.run)))


@dataclass(frozen=True, slots=True)
class Problem:
    """A directory that is left out, and why, in one line that any terminal can show."""

    where: str
    why: str

    def __post_init__(self) -> None:
        """Names of files may hold anything, and a line of ours may be read by more than people."""
        object.__setattr__(self, "where", printable(self.where))
        object.__setattr__(self, "why", printable(self.why))


@dataclass(frozen=True, slots=True)
class Corpus:
    """The runs in the order of their paths, and what was left out."""

    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]


def collect(results: Path, keep: Keep, ahead: Callable[[Sequence[Entry]], None] | None = None) -> Corpus:
    """Reads every run under `results`; a broken or hostile one becomes a Problem and hides no other.

    `ahead` may compute the details of many before they are looked at one by one. UserError where there is no such
    directory.
    """
    found, problems = scan(results)
    entries: list[Entry] = []
    for path in found:
        where = path.relative_to(results).as_posix()
        try:
            entries.append(Entry(id_of(where), where, load(path), digest_of(path), keep))
        except Exception as error:
            problems.append(Problem(where, shown(error, results)))
    if ahead is not None:
        ahead(entries)
    sound: list[Entry] = []
    for entry in entries:
        try:
            why = entry.differs
        except Exception as error:
            why = shown(error, results)
        if why is None:
            sound.append(entry)
        else:
            problems.append(Problem(entry.where, why))
    sound, copies = without_copies(sound)
    return Corpus(tuple(sound), tuple(sorted(problems + copies, key=lambda one: (one.where, one.why))))


def scan(results: Path) -> tuple[list[Path], list[Problem]]:
    """The directories of runs under `results` in the order of their paths, and what is there but cannot be shown."""
    if not results.is_dir():
        raise UserError(
            f"{results}: no such directory: name one that holds runs (the default of --results is `results`)"
        )
    runs: list[Path] = []
    problems: list[Problem] = []

    def unreadable(error: OSError) -> None:
        where = Path(error.filename or results).relative_to(results).as_posix()
        problems.append(Problem(where, f"cannot be read ({error.strerror})"))

    for directory, below, files in os.walk(results, onerror=unreadable):
        below.sort()
        here = Path(directory)
        where = here.relative_to(results).as_posix()
        if printable(where) != where:
            # Below it nothing can be named either.
            below.clear()
            problems.append(Problem(where, "a name that cannot be shown: rename it"))
            continue
        problems += [
            Problem((here / name).relative_to(results).as_posix(), "a link: only a run's own files can be published")
            for name in below
            if (here / name).is_symlink()
        ]
        if "run.json" in files or is_partial(here):
            below.clear()
            if is_partial(here):
                problems.append(Problem(where, UNFINISHED))
            else:
                runs.append(here)
    return runs, problems


def load(path: Path) -> Run:
    """The run in a directory whose files may be published; UserError otherwise."""
    total = 0
    for one in sorted(os.scandir(path), key=lambda one: one.name):
        if one.is_symlink() or not one.is_file(follow_symlinks=False):
            raise UserError(f"{path}/{one.name}: no plain file: only a run's own files can be published")
        size = one.stat(follow_symlinks=False).st_size
        if one.name.endswith(".json") and size > LARGEST_JSON:
            raise UserError(
                f"{path}/{one.name}: {size / 2**20:,.1f} MiB, at most {LARGEST_JSON >> 20} can be published"
            )
        total += size
    if total > LARGEST_BYTES:
        raise UserError(f"{path}: {total / 2**20:,.0f} MiB, at most {LARGEST_BYTES >> 20} can be published")
    run = load_run(path)
    _refuse_names(run)
    _refuse_kind(run)
    return run


def _refuse_kind(run: Run) -> None:
    """UserError for a kind that is not its engine's, and a time of start that cannot be put in order."""
    if run.kind == "reported":
        for name in FILES[2:]:
            if (run.path / name).exists():
                raise UserError(f"{run.path}/{name}: a reported figure has none: delete it")
        return
    kind = KIND_OF.get(run.spec.engine)
    if kind is None:
        raise UserError(f"{run.path}/run.json: spec.engine is {run.spec.engine!a}, which is no engine of bench")
    if run.kind != kind:
        raise UserError(
            f"{run.path}/run.json: kind is {run.kind}, a run of engine {run.spec.engine} is {kind}: "
            "take it from a copy, or run again"
        )
    if run.started.isoformat() != run.manifest["started_utc"]:
        raise UserError(f"{run.path}/run.json: started_utc is not in UTC as bench writes it: take it from a copy")


def _refuse_names(run: Run) -> None:
    """UserError for names that no table could show, and a verdict that no page could."""
    for name, value in run.spec.to_dict().items():
        if isinstance(value, str) and len(value) > LONGEST_NAME:
            raise UserError(
                f"{run.path}/run.json: spec.{name} has {len(value)} letters, at most {LONGEST_NAME} can be shown"
            )
    for check in run.manifest.get("verdict", {}).get("checks", ()):
        told = isinstance(check.get("why"), str) or {"value", "degraded_at", "invalid_at"} <= check.keys()
        if not (told and all(isinstance(check.get(name), str) for name in ("label", "unit", "level"))):
            raise UserError(f"{run.path}/run.json: a check of the verdict is not whole: `bench recover` makes it again")


def digest_of(path: Path) -> str:
    """sha256 of a run's files, name by name: whatever was computed from other bytes is not taken for it."""
    sha = hashlib.sha256()
    for name in FILES:
        file = path / name
        if file.is_file():
            with file.open("rb") as data:
                sha.update(f"{name} {hashlib.file_digest(data, 'sha256').hexdigest()}\n".encode())
    return sha.hexdigest()


def id_of(where: str) -> str:
    """Ten hex digits of the path under results/: stable as long as the run stays where it is."""
    return hashlib.sha256(where.encode()).hexdigest()[:10]


def shown(error: Exception, results: Path) -> str:
    """An error's line with paths as they are under results/: the same on every machine.

    What no user error foresaw is a fault of the run's files, too: it stops no build.
    """
    if isinstance(error, UserError):
        return str(error).replace(f"{results}/", "")
    words = (str(error).splitlines() or [""])[0].replace(f"{results}/", "")
    return f"cannot be read: {type(error).__name__} {words[:200]}".rstrip()


def printable(text: str) -> str:
    """The text with all that is not printable escaped, as are marks of a command to a CI runner."""
    shown = "".join(one if one.isprintable() else _escaped(one) for one in text).replace("##[", "#\\x23[")
    return shown.replace("::", "\\x3a:", 1) if shown.lstrip().startswith("::") else shown


def _escaped(letter: str) -> str:
    code = ord(letter)
    # A byte of a name that is no UTF-8 stands for itself.
    code = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def without_copies(entries: Sequence[Entry]) -> tuple[list[Entry], list[Problem]]:
    """A run that lies there twice is shown once: same spec, same start, same kind. So is one whose id is another's."""
    seen: dict[tuple[str, str, str], str] = {}
    ids: dict[str, str] = {}
    kept: list[Entry] = []
    copies: list[Problem] = []
    for entry in entries:
        manifest = entry.run.manifest
        key = (manifest["digest"], str(manifest.get("started_utc")), entry.run.kind)
        if key in seen and entry.run.kind != "reported":
            copies.append(Problem(entry.where, f"the same run as {seen[key]}: shown once"))
        elif entry.id in ids:
            copies.append(
                Problem(entry.where, f"its link would be that of {ids[entry.id]}: rename a directory above it")
            )
        else:
            seen[key] = ids[entry.id] = entry.where
            kept.append(entry)
    return kept, copies
