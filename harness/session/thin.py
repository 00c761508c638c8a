"""Simulated runs that keep no tables: taken away once the run gave them again, and made again when they are wanted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import USER_ERRORS, UserError
from harness.core.files import open_anew
from harness.engines.base import Status
from harness.published.figures import figures_of
from harness.published.submitted import is_submitted
from harness.published.tables import RunTables
from harness.runs.run import Run, load_run
from harness.runs.tables import DIGESTS, TABLES, read_table
from harness.runs.thin import is_thin, make_thin, other_than_told, told_digests
from harness.session.one_run import prepare, run
from harness.session.replay import NotHereError, engine_of, on_all_cores, refuse, replay, with_costs


@dataclass(frozen=True, slots=True)
class Changed:
    """A run whose tables were taken away or made again; `why` they were not, None where they were."""

    path: Path
    why: str | None


def thin(paths: Sequence[Path]) -> Iterator[Changed]:
    """Takes away the tables of simulated runs, each once it was run again with equal ones; what it can't is kept whole.

    Runs whose tables are gone already are left out.
    """
    yield from on_all_cores(_thin, [path.absolute() for path in paths if not is_thin(path)])


def expand(paths: Sequence[Path]) -> Iterator[Changed]:
    """Makes the tables of thin runs again, beside their run.json; those that have them are left out."""
    yield from on_all_cores(_expand, [path.absolute() for path in paths if is_thin(path)])


def _thin(path: Path) -> Changed:
    return Changed(path, _reason(_take_away, path))


def _expand(path: Path) -> Changed:
    return Changed(path, _reason(_make_again, path))


def _reason(change: Callable[[Run], str | None], path: Path) -> str | None:
    try:
        return change(load_run(path))
    except USER_ERRORS as error:
        return str(error)
    except Exception as error:
        # As in a replay: a stranger's spec may bring anything about, which is told of that run and hides no other.
        return f"cannot be run again ({type(error).__name__}: {str(error)[:200]!a})"


def _take_away(published: Run) -> str | None:
    if published.kind != "simulated":
        return f"{published.kind}, so nothing could make its tables again"
    if published.status != "complete":
        return f"{published.status}: only a complete run is made again alike"
    _refuse_code(published)
    if why := replay(published):
        return why
    make_thin(published.path, figures_of(published, RunTables.of(published)))
    return None


def _refuse_code(published: Run) -> None:
    if is_submitted(published):
        raise NotHereError("its policy is its author's code, which is run only when somebody says so")


def _make_again(published: Run) -> str | None:
    if published.kind != "simulated":
        return f"{published.kind}, so nothing can make its tables again: take them from a copy"
    _refuse_code(published)
    refuse(published)
    rows = told_digests(published.path)["requests"].get("rows")
    if not isinstance(rows, int) or rows != published.manifest.get("counts", {}).get("requests"):
        return f"{DIGESTS} tells other rows than run.json: take both from a copy"
    finished = 0

    def progress(status: Status) -> None:
        nonlocal finished
        finished = status.finished

    with tempfile.TemporaryDirectory(prefix="bench-expand-") as place:
        # A spec may ask for more than was told: what comes after that is not waited for.
        spec, engine = with_costs(published), engine_of(published)
        made = run(prepare(spec, engine), Path(place), (), progress, lambda: finished > rows)
        if why := other_than_told(published.path, {name: read_table(made.path, name) for name in TABLES}):
            return f"{why}: edited, or from when bench decided otherwise: run again, publish that"
        try:
            for name in TABLES:
                part = published.path / f".{name}.parquet"
                with open_anew(part) as file:
                    file.write((made.path / f"{name}.parquet").read_bytes())
                os.replace(part, published.path / f"{name}.parquet")
        except OSError as error:
            raise UserError(f"{published.path}: cannot write its tables ({error.strerror}): make room") from None
    return None
