"""What the leaderboard shows: every run under a results directory that can be trusted to be shown."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.text import one_line
from harness.published.cache import JsonCache
from harness.published.figures import examine
from harness.runs.run import POLICY_FILE, Run, is_partial, load_run
from harness.runs.schema import KIND_OF
from harness.runs.step_log import ENGINE_LOG
from harness.runs.tables import DIGESTS, FIGURES

# What is larger belongs elsewhere and would make every checkout slow: a run's files together, and its small ones.
LARGEST_BYTES = 64 * 2**20
LARGEST_JSON = 2**20
LONGEST_NAME = 200
FILES = ("run.json", "summary.json", "requests.parquet", "steps.parquet", DIGESTS, FIGURES, ENGINE_LOG, POLICY_FILE)
UNFINISHED = "did not finish: `bench recover` it first"


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A run on the site: `id` is short, stable and part of its links; `where` is its path under results/.

    `digest` is of the bytes of all its files; `cache` keeps what its tables give.
    """

    id: str
    where: str
    run: Run
    digest: str
    cache: JsonCache

    @property
    def detail(self) -> dict[str, Any]:
        """What a page shows of the tables (`detail_of`), computed once; UserError where they are damaged."""
        detail: dict[str, Any] = self._examined["detail"]
        return detail

    @property
    def difference(self) -> str | None:
        """How verdict or summary differ from what the tables give, None where they do not."""
        difference: str | None = self._examined["difference"]
        return difference

    @property
    def _examined(self) -> dict[str, Any]:
        return dict(self.cache.get_or_make(self.digest, lambda: examine(self.run)))


@dataclass(frozen=True, slots=True, order=True)
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

    runs: tuple[PublishedRun, ...]
    problems: tuple[Problem, ...]


def collect_corpus(
    results: Path,
    cache: JsonCache,
    compute_ahead: Callable[[Sequence[PublishedRun]], None] | None = None,
    prepare: Callable[[Sequence[PublishedRun]], Sequence[Path]] | None = None,
) -> Corpus:
    """Reads every run under `results`; a broken or hostile one becomes a Problem and hides no other.

    `prepare` may add files to runs, and gives these to be read again; `compute_ahead` may compute the details of many
    before they are looked at one by one. UserError where there is no such directory.
    """
    paths, unnamed = scan(results)
    loaded, unreadable = load_all(paths, results, cache)
    if prepare is not None and (changed := set(prepare(loaded))):
        again, worse = load_all([path for path in paths if path in changed], results, cache)
        by_id = {published.id: published for published in again}
        kept = [published for published in loaded if published.run.path not in changed or published.id in by_id]
        loaded = [by_id.get(published.id, published) for published in kept]
        unreadable += worse
    if compute_ahead is not None:
        compute_ahead(loaded)
    sound, doubtful = _as_their_tables(loaded, results)
    runs, duplicates = without_duplicates(sound)
    return Corpus(tuple(runs), tuple(sorted([*unnamed, *unreadable, *doubtful, *duplicates])))


def load_all(paths: Sequence[Path], results: Path, cache: JsonCache) -> tuple[list[PublishedRun], list[Problem]]:
    """The runs in these directories, and what is wrong with those that cannot be read."""
    runs, problems = [], []
    for path in paths:
        where = path.relative_to(results).as_posix()
        try:
            runs.append(PublishedRun(id_of(where), where, load_publishable(path), digest_of(path), cache))
        except Exception as error:
            problems.append(Problem(where, error_line(error, results)))
    return runs, problems


def _as_their_tables(runs: Sequence[PublishedRun], results: Path) -> tuple[list[PublishedRun], list[Problem]]:
    """The runs whose verdict and summary are what their tables give, and why the others are not."""
    sound, problems = [], []
    for published in runs:
        try:
            why = published.difference
        except Exception as error:
            why = error_line(error, results)
        if why is None:
            sound.append(published)
        else:
            problems.append(Problem(published.where, why))
    return sound, problems


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
        folder = Path(directory)
        where = folder.relative_to(results).as_posix()
        if printable(where) != where:
            # Below it nothing can be named either.
            below.clear()
            problems.append(Problem(where, "a name that cannot be shown: rename it"))
            continue
        problems += [
            Problem((folder / name).relative_to(results).as_posix(), "a link: only a run's own files can be published")
            for name in below
            if (folder / name).is_symlink()
        ]
        if "run.json" in files or is_partial(folder):
            below.clear()
            if is_partial(folder):
                problems.append(Problem(where, UNFINISHED))
            else:
                runs.append(folder)
    return runs, problems


def load_publishable(path: Path) -> Run:
    """The run in a directory whose files may be published; UserError otherwise."""
    total = 0
    for file in sorted(os.scandir(path), key=lambda file: file.name):
        if file.is_symlink() or not file.is_file(follow_symlinks=False):
            raise UserError(f"{path}/{file.name}: no plain file: only a run's own files can be published")
        size = file.stat(follow_symlinks=False).st_size
        if file.name.endswith(".json") and size > LARGEST_JSON:
            raise UserError(
                f"{path}/{file.name}: {size / 2**20:,.1f} MiB, at most {LARGEST_JSON >> 20} can be published"
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
        has_outcome = isinstance(check.get("why"), str) or {"value", "degraded_at", "invalid_at"} <= check.keys()
        if not (has_outcome and all(isinstance(check.get(name), str) for name in ("label", "unit", "level"))):
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


def error_line(error: Exception, results: Path) -> str:
    """An error's line with paths as they are under results/: the same on every machine.

    What no user error foresaw is a fault of the run's files, too: it stops no build.
    """
    if isinstance(error, UserError):
        return str(error).replace(f"{results}/", "")
    words = (str(error).splitlines() or [""])[0].replace(f"{results}/", "")
    return f"cannot be read: {type(error).__name__} {words[:200]}".rstrip()


def printable(text: str) -> str:
    """The text with all that is not printable escaped, as are marks of a command to a CI runner."""
    line = one_line(text, _escaped).replace("##[", "#\\x23[")
    return line.replace("::", "\\x3a:", 1) if line.lstrip().startswith("::") else line


def _escaped(letter: str) -> str:
    """A letter as the code of its byte or bytes."""
    code = ord(letter)
    # A byte of a name that is no UTF-8 stands for itself.
    code = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def without_duplicates(runs: Sequence[PublishedRun]) -> tuple[list[PublishedRun], list[Problem]]:
    """A run that lies there twice is shown once: same spec, same start, same kind. So is one whose id is another's."""
    by_start: dict[tuple[str, str, str], str] = {}
    by_id: dict[str, str] = {}
    kept: list[PublishedRun] = []
    problems: list[Problem] = []
    for published in runs:
        run, where = published.run, published.where
        start = (run.manifest["digest"], str(run.manifest.get("started_utc")), run.kind)
        if start in by_start and run.kind != "reported":
            problems.append(Problem(where, f"the same run as {by_start[start]}: shown once"))
        elif published.id in by_id:
            problems.append(
                Problem(where, f"its link would be that of {by_id[published.id]}: rename a directory above it")
            )
        else:
            by_start[start] = by_id[published.id] = where
            kept.append(published)
    return kept, problems
