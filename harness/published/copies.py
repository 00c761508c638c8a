"""Runs that are one measurement published as two: under one spec and seed, or under another seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence

from harness.core.errors import UserError
from harness.published.corpus import Problem, PublishedRun
from harness.runs.run import Run
from harness.runs.tables import read_table

# What a run measured; ids may differ and mean nothing.
MEASURED = ("row", "prompt_tokens", "output_tokens", "sent_s", "first_token_s", "last_token_s", "done_s")


def measured_twice(runs: Sequence[PublishedRun], is_asked: Callable[[str], bool]) -> Iterator[Problem]:
    """A problem for each run that measured the same as another, told of the one that was asked about."""
    arms: dict[str, list[PublishedRun]] = {}
    for published in runs:
        if published.run.kind != "reported":
            arms.setdefault(_but_for_the_seed(published.run), []).append(published)
    for arm in arms.values():
        if len(arm) < 2 or not any(is_asked(published.where) for published in arm):
            continue
        by_seed: dict[int, PublishedRun] = {}
        by_digest: dict[str, PublishedRun] = {}
        for published in arm:
            first = by_seed.setdefault(published.run.spec.seed, published)
            if first is not published:
                remedy = "one run of a spec and seed can be published: remove one, or run another seed"
                yield _problem(first, published, "has the spec and seed of", remedy, is_asked)
                continue
            digest = _measured_digest(published)
            if digest is None:
                continue
            first = by_digest.setdefault(digest, published)
            if first is not published:
                what = "has another seed and the same requests to the nanosecond as"
                yield _problem(
                    first, published, what, "a repeat is a run of its own: remove one, or run again", is_asked
                )


def _problem(
    first: PublishedRun, second: PublishedRun, what: str, remedy: str, is_asked: Callable[[str], bool]
) -> Problem:
    about, other = (second, first) if is_asked(second.where) else (first, second)
    return Problem(about.where, f"{what} {other.where}: {remedy}")


def _but_for_the_seed(run: Run) -> str:
    """What repeats of a run share: all of the spec but the seed and its number."""
    spec = {name: value for name, value in run.spec.to_dict().items() if name not in ("seed", "repeat")}
    return json.dumps([run.kind, spec], sort_keys=True)


def _measured_digest(published: PublishedRun) -> str | None:
    """sha256 of what a run measured, however its file is written; None where that cannot be read."""
    sha = hashlib.sha256()
    try:
        table = read_table(published.run.path, "requests", MEASURED)
    except UserError:
        # Told already, of the run itself.
        return None
    for column in table.columns:
        sha.update(column.fill_null(-1).to_numpy().tobytes())
    return sha.hexdigest()
