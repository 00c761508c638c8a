"""`bench site check`: what a pull request brings is a run, whole, unedited, in its place, and tells nothing private."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.masking import MASK, SHAPES, is_secret, mask
from harness.published.cache import JsonCache
from harness.published.copies import measured_twice
from harness.published.corpus import (
    FILES,
    Problem,
    PublishedRun,
    error_line,
    load_all,
    printable,
    scan,
    without_duplicates,
)
from harness.published.detail import detail_of
from harness.published.figures import other_figures
from harness.published.tables import RunTables
from harness.published.verify import difference_from_figures, first_difference, missing_evidence
from harness.runs.run import POLICY_FILE, Run, run_path, slug
from harness.runs.step_log import ENGINE_LOG, STEP_LOG
from harness.runs.tables import FIGURES

WHAT = (
    "schema, digests, kind, place, verdict, counts and summary against the tables, tables against the spec, evidence, "
    "sizes, secrets, private paths, text, links, extra files, duplicates"
)
BESIDES = "README.md"
# What an identifier, a server's error, and any text of run.json may have in letters; prompts have more.
LONGEST_ID, LONGEST_ERROR, LONGEST_TEXT = 100, 500, 2000

# A clock may be wrong by a day; a later start would stand before all others for as long.
AHEAD = timedelta(days=1)

_HOME = re.compile(r"(?:/home/|/Users/|/root(?=/|$)|[A-Za-z]:\\+Users\\+)[^\s,;:'\"]*")
# Besides what the mask knows by its shape: what stands in a header or a URL, unless it is masked there.
_SHAPES = re.compile(
    rf"{SHAPES.pattern}|\bBasic\s+(?!\*)\S{{6,}}|://[^/@\s*:]+:[^/@\s*]+@",
    re.I,
)
_PROMPT = re.compile(r"\bprompt(?:_token_ids|_text)?\b['\"]?\s*[:=]\s*['\"\[]", re.I)
# What RunWriter masks by the names of things; elsewhere only what looks like a secret by itself counts.
_MASKED = ("provenance", "client", "spec")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How many runs were checked, what is wrong, in the order of the places, and the runs with which nothing is."""

    runs: int
    problems: tuple[Problem, ...]
    sound: tuple[PublishedRun, ...] = ()


def check(results: Path, paths: Sequence[Path] = (), now: datetime | None = None) -> CheckResult:
    """Checks every run under `results`, or those at and under `paths`; of the others only whether one is the same.

    `now` is what a start is held against, the clock's unless told. UserError for a path that is not there or lies
    elsewhere.
    """
    latest = (now or datetime.now(UTC)) + AHEAD
    places = [printable(_within(results, path)) for path in paths]

    def is_asked(where: str) -> bool:
        return not places or any(place in (where, ".") or where.startswith(f"{place}/") for place in places)

    directories, problems = scan(results)
    problems += _strays(results, set(directories))
    # Nothing is kept: a check looks at everything itself.
    runs, unreadable = load_all(directories, results, JsonCache(Path(os.devnull)))
    problems += unreadable
    for published in runs:
        if is_asked(published.where):
            problems += _problems_of(published, results, latest)
    distinct, duplicates = without_duplicates(runs)
    problems += duplicates
    problems += measured_twice(distinct, is_asked)
    asked = {problem for problem in problems if is_asked(problem.where)}
    faulty = {problem.where for problem in asked}
    checked = sum(is_asked(path.relative_to(results).as_posix()) for path in directories)
    sound = tuple(run for run in runs if is_asked(run.where) and run.where not in faulty)
    return CheckResult(checked, tuple(sorted(asked)), sound)


def _problems_of(published: PublishedRun, results: Path, latest: datetime) -> Iterator[Problem]:
    """What is wrong with a run; an error that nobody foresaw is a fault of its files, too."""
    try:
        for why in _faults(published.run, published.where, latest):
            yield Problem(published.where, error_line(UserError(why), results))
    except Exception as error:
        yield Problem(published.where, error_line(error, results))


def _within(results: Path, path: Path) -> str:
    """A path given, as it is under `results`."""
    root, place = results.resolve(), path.absolute()
    if not os.path.lexists(place):
        raise UserError(f"{path}: not there")
    # A link is judged by where it stands, not by what it leads to.
    place = place.parent.resolve() / place.name if place.name != ".." else place.resolve()
    if place != root and root not in place.parents:
        raise UserError(f"{path}: not in {results}: give --results, or copy runs there with `bench publish`")
    return place.relative_to(root).as_posix()


def _strays(results: Path, runs: set[Path]) -> Iterator[Problem]:
    """Files that are no run's, and directories without one."""
    for directory, below, files in os.walk(results):
        folder = Path(directory)
        where = folder.relative_to(results)
        if folder in runs or printable(where.as_posix()) != where.as_posix():
            # What has a name that cannot be shown is told of by itself.
            if folder not in runs:
                below.clear()
                continue
            for name in sorted(below):
                yield Problem((where / name).as_posix(), "a directory in a run's: delete it")
            for name in sorted(set(files) - set(FILES)):
                why = "the step table holds what is published of it" if name == STEP_LOG else "no file of a run"
                yield Problem(where.as_posix(), f"{name}: {why}: delete it")
            below.clear()
            continue
        for name in sorted(files):
            if name != BESIDES:
                yield Problem((where / name).as_posix(), "no file of a run: delete it")
        if not below and not files and folder != results:
            yield Problem(where.as_posix(), "an empty directory: delete it")


def _faults(run: Run, where: str, latest: datetime) -> Iterator[str]:
    """What is wrong with a run that could be loaded."""
    if why := _misplaced(run, where):
        yield why
    yield from _private_texts(run.manifest)
    if os.path.lexists(run.path / ENGINE_LOG):
        yield from _private_lines(run.path / ENGINE_LOG)
    if os.path.lexists(run.path / POLICY_FILE):
        # A digest covers it: what is changed there makes another policy.
        yield from _private_lines(run.path / POLICY_FILE, "run again with a file without it")
    if run.kind == "reported":
        if not run.summary:
            yield "summary.json: not there, so nothing is reported"
        if why := difference_from_figures(run):
            yield why
        return
    if run.started > latest:
        yield "run.json: started_utc lies in the future: set the clock of the machine, and run again"
    try:
        tables = RunTables.of(run)
        if why := first_difference(run, tables, whole=True):
            yield why
        if names := missing_evidence(run, tables):
            yield f"lacks {', '.join(names)}: it was measured by an older bench or edited: run again"
        # All that a build makes of it must be there to be made.
        detail_of(run, tables)
        if (run.path / FIGURES).is_file() and (why := other_figures(run, tables)):
            yield why
        yield from _foreign_texts(tables)
        yield from _foreign_metadata(run.path)
    except UserError as error:
        yield str(error)


def _misplaced(run: Run, where: str) -> str | None:
    """Where a run should lie: gpu/model/workload/policy/start-digest-repeat, one directory above; None if it does."""
    parts = Path(where).parts
    spec = run.spec
    if run.kind == "reported":
        wanted = tuple(map(slug, (spec.gpu, spec.model, spec.workload, spec.policy)))
        fits = parts[-5:-1] == wanted and slug(parts[-1]) == parts[-1]
        expected = "/".join((*wanted, "NAME"))
    else:
        wanted = run_path(Path(), spec, run.started, run.manifest["digest"]).parts
        fits = parts[-5:] == wanted
        expected = "/".join(wanted)
    if fits and len(parts) <= 6:
        return None
    return f"does not lie where its spec says: move it to {expected}, at most one directory below the results"


def _private_texts(manifest: dict[str, Any]) -> Iterator[str]:
    """Texts of run.json that may hold a secret or a private path, or are too long."""
    for key, name, text in _texts_of(manifest):
        shown_key = key if len(key) <= 80 else f"{key[:79]}…"
        # The digest covers the spec: what is changed there makes another run.
        in_spec = key.startswith("spec.")
        if _may_be_secret(key, name, text):
            remedy = "run again without it" if in_spec else f"put {MASK} in its place (no digest covers it)"
            yield f"run.json: {shown_key} may hold a secret: {remedy}"
        if match := _HOME.search(text):
            remedy = "run again from another place" if in_spec else "put ~ in its place"
            yield f"run.json: {shown_key} tells a private path ({match.group()[:40]}): {remedy}"
        if len(text) > LONGEST_TEXT:
            yield f"run.json: {shown_key} has {len(text):,} letters, at most {LONGEST_TEXT:,}: no place for text"


def _may_be_secret(key: str, name: str, text: str) -> bool:
    """Whether a text of run.json under a dotted key, there called `name`, looks like a secret."""
    if _SHAPES.search(text):
        return True
    if key.partition(".")[0] not in _MASKED:
        return False
    return (is_secret(name) and text not in ("", MASK)) or _would_be_masked(text)


def _would_be_masked(text: str) -> bool:
    """Whether a writer of runs would have masked something in it; the home of who checks is not meant."""
    home = os.path.expanduser("~")
    return mask(text) != (text.replace(home, "~") if len(home) > 1 else text)


def _texts_of(value: Any, key: str = "", name: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text in a JSON value: its dotted key, the name it stands under, and the text; names are texts, too."""
    if isinstance(value, str):
        yield key, name, value
    elif isinstance(value, dict):
        for inner_name, inner in value.items():
            inner_key = f"{key}.{inner_name}" if key else inner_name
            yield inner_key, "", inner_name
            yield from _texts_of(inner, inner_key, inner_name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_of(item, key, "")


def _private_lines(path: Path, remedy: str = f"put {MASK} in its place (no digest covers it)") -> Iterator[str]:
    """The first of each kind of line that an engine's log, or a policy's file, must not have."""
    unseen = {
        "may hold a secret": _SHAPES,
        "tells a private path": _HOME,
        "holds a prompt": _PROMPT,
    }
    if path.name == POLICY_FILE:
        del unseen["holds a prompt"]
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            for words in [words for words, pattern in unseen.items() if pattern.search(line)]:
                del unseen[words]
                yield f"{path.name}: line {number} {words}: {remedy}"
            if not unseen:
                return


def _foreign_texts(tables: RunTables) -> Iterator[str]:
    """The first text of each column of the tables that is no identifier."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, table in (("requests", tables.requests), ("steps", tables.steps)):
        if table is None:
            continue
        for field in table.schema:
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if not pa.types.is_string(kind):
                continue
            texts = pc.unique(table.column(field.name).cast(pa.string())).to_pylist()
            faults = (_fault_of_text(text, field.name == "error") for text in texts if text is not None)
            fault = next((fault for fault in faults if fault), None)
            if fault:
                yield f"{name}.parquet: {field.name} {fault}"


def _fault_of_text(text: str, is_error: bool) -> str | None:
    """Why a text of a table cannot be published, None where it can."""
    if len(text) > (LONGEST_ERROR if is_error else LONGEST_ID) or not (is_error or text.isprintable()):
        return f"holds a text of {len(text):,} letters: prompts and answers are not published"
    if _SHAPES.search(text) or _HOME.search(text):
        return f"may hold a secret or a private path ({text[:20]!a}…): run again without it"
    return None


def _foreign_metadata(directory: Path) -> Iterator[str]:
    """What the tables' files carry besides the tables."""
    import pyarrow.parquet as pq

    for name in ("requests", "steps"):
        with pq.ParquetFile(directory / f"{name}.parquet") as file:
            other = sorted(set(file.metadata.metadata or {}) - {b"ARROW:schema"})
        if other:
            yield f"{name}.parquet: carries {other[0].decode(errors='replace')[:40]!a} besides its table: leave it out"
