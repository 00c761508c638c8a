"""Simulated runs that keep no tables: taken away once the run gave them again, and made again when they are wanted."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import USER_ERRORS, UserError
from harness.engines.base import Status
from harness.published.submitted import is_submitted
from harness.runs.run import Run, load_run
from harness.runs.tables import TABLES
from harness.runs.thin import is_thin, make_thin, other_than_told
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


def _take_away(published: Run) -> str | None:
    if published.kind != "simulated":
        return f"{published.kind}, so nothing could make its tables again"
    if published.status != "complete":
        return f"{published.status}: only a complete run is made again alike"
    _refuse_code(published)
    if why := replay(published):
        return why
    make_thin(published.path)
    return None


def _refuse_code(published: Run) -> None:
    if is_submitted(published):
        raise NotHereError("its policy is its author's code, which is run only when somebody says so")


def _make_again(published: Run) -> str | None:
    _refuse_code(published)
    refuse(published)

    def progress(_: Status) -> None:
        pass

    with tempfile.TemporaryDirectory(prefix="bench-expand-") as place:
        made = run(prepare(with_costs(published), engine_of(published)), Path(place), (), progress, lambda: False)
        if why := other_than_told(published.path, made.path):
            return f"{why}: edited, or from when bench decided otherwise: run again, publish that"
        try:
            for name in TABLES:
                part = published.path / f".{name}.parquet"
                shutil.copyfile(made.path / f"{name}.parquet", part)
                os.replace(part, published.path / f"{name}.parquet")
        except OSError as error:
            raise UserError(f"{published.path}: cannot write its tables ({error.strerror}): make room") from None
    return None
