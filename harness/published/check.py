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
from harness.published.cache import Keep
from harness.published.copies import twins
from harness.published.corpus import (
    FILES,
    Entry,
    Problem,
    digest_of,
    id_of,
    load,
    printable,
    scan,
    shown,
    without_copies,
)
from harness.published.detail import detail_of
from harness.published.tables import Tables
from harness.published.verify import differs, lacking, unlike_figures
from harness.runs.provenance import MASK, is_secret, mask
from harness.runs.run import Run, run_path, slug

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
_SHAPES = re.compile(
    r"\b(?:hf_(?![a-z]+_)|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA)[\w-]{8,}|"
    r"-----BEGIN [A-Z ]*PRIVATE KEY|"
    r"\beyJ[\w-]{10,}\.[\w-]{10,}\.|\b(?:Bearer|Basic)\s+(?!\*)\S{6,}|://[^/@\s*]+:[^/@\s*]+@",
    re.I,
)
_PROMPT = re.compile(r"\bprompt(?:_token_ids|_text)?\b['\"]?\s*[:=]\s*['\"\[]", re.I)
# What RunWriter masks by the names of things; elsewhere only what looks like a secret by itself counts.
_MASKED = ("provenance", "client", "spec")


@dataclass(frozen=True, slots=True)
class Checked:
    """How many runs were checked, what is wrong, in the order of the places, and the runs with which nothing is."""

    runs: int
    problems: tuple[Problem, ...]
    sound: tuple[Entry, ...] = ()


def check(results: Path, paths: Sequence[Path] = (), now: datetime | None = None) -> Checked:
    """Checks every run under `results`, or those at and under `paths`; of the others only whether one is the same.

    `now` is what a start is held against, the clock's unless told. UserError for a path that is not there or lies
    elsewhere.
    """
    latest = (now or datetime.now(UTC)) + AHEAD
    only = [printable(_within(results, path)) for path in paths]

    def asked(where: str) -> bool:
        return not only or any(one in (where, ".") or where.startswith(f"{one}/") for one in only)

    found, problems = scan(results)
    problems += _strays(results, set(found))
    entries, checked = [], 0
    # Nothing is kept: a check looks at everything itself.
    keep = Keep(Path(os.devnull))
    for path in found:
        where = path.relative_to(results).as_posix()
        checked += asked(where)
        try:
            run = load(path)
            entries.append(Entry(id_of(where), where, run, digest_of(path), keep))
            if asked(where):
                for why in _faults(run, where, latest):
                    problems.append(Problem(where, shown(UserError(why), results)))
        except Exception as error:
            problems.append(Problem(where, shown(error, results)))
    kept, copies = without_copies(entries)
    problems += copies
    problems += twins(kept, asked)
    wanted = {(one.where, one.why): one for one in problems if asked(one.where)}
    faulty = {where for where, _ in wanted}
    sound = tuple(one for one in entries if asked(one.where) and one.where not in faulty)
    return Checked(checked, tuple(wanted[key] for key in sorted(wanted)), sound)


def _within(results: Path, path: Path) -> str:
    """A path given, as it is under `results`."""
    root, here = results.resolve(), path.absolute()
    if not os.path.lexists(here):
        raise UserError(f"{path}: not there")
    # A link is judged by where it stands, not by what it leads to.
    here = here.parent.resolve() / here.name if here.name != ".." else here.resolve()
    if here != root and root not in here.parents:
        raise UserError(f"{path}: not in {results}: give --results, or copy runs there with `bench publish`")
    return here.relative_to(root).as_posix()


def _strays(results: Path, runs: set[Path]) -> Iterator[Problem]:
    """Files that are no run's, and directories without one."""
    for directory, below, files in os.walk(results):
        here = Path(directory)
        where = here.relative_to(results)
        if here in runs or printable(where.as_posix()) != where.as_posix():
            # What has a name that cannot be shown is told of by itself.
            if here not in runs:
                below.clear()
                continue
            for name in sorted(below):
                yield Problem((where / name).as_posix(), "a directory in a run's: delete it")
            for name in sorted(set(files) - set(FILES)):
                why = "the step table holds what is published of it" if name == "steps.log" else "no file of a run"
                yield Problem(where.as_posix(), f"{name}: {why}: delete it")
            below.clear()
            continue
        for name in sorted(files):
            if name != BESIDES:
                yield Problem((where / name).as_posix(), "no file of a run: delete it")
        if not below and not files and here != results:
            yield Problem(where.as_posix(), "an empty directory: delete it")


def _faults(run: Run, where: str, latest: datetime) -> Iterator[str]:
    """What is wrong with a run that could be loaded."""
    if why := _place(run, where):
        yield why
    yield from _told(run.manifest)
    for name in sorted({one.name for one in os.scandir(run.path)} & {"engine.log"}):
        yield from _log(run.path / name)
    if run.kind == "reported":
        if not run.summary:
            yield "summary.json: not there, so nothing is reported"
        if why := unlike_figures(run):
            yield why
        return
    if run.started > latest:
        yield "run.json: started_utc lies in the future: set the clock of the machine, and run again"
    try:
        tables = Tables.of(run)
        if why := differs(run, tables, whole=True):
            yield why
        if names := lacking(run, tables):
            yield f"lacks {', '.join(names)}: it was measured by an older bench or edited: run again"
        # All that a build makes of it must be there to be made.
        detail_of(run, tables)
        yield from _texts(tables)
        yield from _metadata(run.path)
    except UserError as error:
        yield str(error)


def _place(run: Run, where: str) -> str | None:
    """Whether a run lies where its spec says: gpu/model/workload/policy/start-digest-repeat, one directory above."""
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


def _told(manifest: dict[str, Any]) -> Iterator[str]:
    for key, name, text in _strings(manifest):
        shown_key = key if len(key) <= 80 else f"{key[:79]}…"
        cure = "run again without it" if key.startswith("spec.") else f"put {MASK} in its place (no digest covers it)"
        masked = key.partition(".")[0] in _MASKED
        if _SHAPES.search(text) or (masked and ((is_secret(name) and text not in ("", MASK)) or _masks(text))):
            yield f"run.json: {shown_key} may hold a secret: {cure}"
        if found := _HOME.search(text):
            cure = "run again from another place" if key.startswith("spec.") else "put ~ in its place"
            yield f"run.json: {shown_key} tells a private path ({found.group()[:40]}): {cure}"
        if len(text) > LONGEST_TEXT:
            yield f"run.json: {shown_key} has {len(text):,} letters, at most {LONGEST_TEXT:,}: no place for text"


def _masks(text: str) -> bool:
    """Whether a writer of runs would have masked something in it; the home of who checks is not meant."""
    home = os.path.expanduser("~")
    return mask(text) != (text.replace(home, "~") if len(home) > 1 else text)


def _strings(value: Any, key: str = "", name: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text in a JSON value: its dotted key, the name it stands under, and the text; keys are texts, too."""
    if isinstance(value, str):
        yield key, name, value
    elif isinstance(value, dict):
        for one, inner in value.items():
            below = f"{key}.{one}" if key else one
            yield below, "", one
            yield from _strings(inner, below, one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one, key, "")


def _log(path: Path) -> Iterator[str]:
    """The first of each kind of line that an engine's log must not have."""
    kinds = {
        "may hold a secret": _SHAPES,
        "tells a private path": _HOME,
        "holds a prompt": _PROMPT,
    }
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            for words in [words for words, pattern in kinds.items() if pattern.search(line)]:
                del kinds[words]
                yield f"engine.log: line {number} {words}: put {MASK} in its place (no digest covers it)"
            if not kinds:
                return


def _texts(tables: Tables) -> Iterator[str]:
    """Texts of the tables that are no identifiers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, table in (("requests", tables.requests), ("steps", tables.steps)):
        if table is None:
            continue
        for field in table.schema:
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if not pa.types.is_string(kind):
                continue
            most = LONGEST_ERROR if field.name == "error" else LONGEST_ID
            for text in pc.unique(table.column(field.name).cast(pa.string())).to_pylist():
                if text is None:
                    continue
                file = f"{name}.parquet: {field.name}"
                if len(text) > most or (field.name != "error" and not text.isprintable()):
                    yield f"{file} holds a text of {len(text):,} letters: prompts and answers are not published"
                elif _SHAPES.search(text) or _HOME.search(text):
                    yield f"{file} may hold a secret or a private path ({text[:20]!a}…): run again without it"
                else:
                    continue
                break


def _metadata(directory: Path) -> Iterator[str]:
    """What the tables' files carry besides the tables."""
    import pyarrow.parquet as pq

    for name in ("requests", "steps"):
        with pq.ParquetFile(directory / f"{name}.parquet") as file:
            other = sorted(set(file.metadata.metadata or {}) - {b"ARROW:schema"})
        if other:
            yield f"{name}.parquet: carries {other[0].decode(errors='replace')[:40]!a} besides its table: leave it out"
