"""Runs that are one measurement published as two: under one spec and seed, or under another seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence

from harness.core.errors import UserError
from harness.published.corpus import Entry, Problem
from harness.runs.run import Run
from harness.runs.tables import read_table

# What a run measured; ids may differ and mean nothing.
MEASURED = ("row", "prompt_tokens", "output_tokens", "sent_s", "first_token_s", "last_token_s", "done_s")


def twins(entries: Sequence[Entry], asked: Callable[[str], bool]) -> Iterator[Problem]:
    """A problem for each run that is another's twin, told of the one that was asked about."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.run.kind != "reported":
            groups.setdefault(_arm(entry.run), []).append(entry)
    for group in groups.values():
        if len(group) < 2 or not any(asked(entry.where) for entry in group):
            continue
        seeds: dict[int, Entry] = {}
        streams: dict[str, Entry] = {}
        for entry in group:
            one = seeds.setdefault(entry.run.spec.seed, entry)
            if one is not entry:
                why = "one run of a spec and seed can be published: remove one, or run another seed"
                yield _told(one, entry, "has the spec and seed of", why, asked)
                continue
            if (digest := _digest(entry)) is None:
                continue
            one = streams.setdefault(digest, entry)
            if one is not entry:
                why = "a repeat is a run of its own: remove one, or run again"
                yield _told(one, entry, "has another seed and the same requests to the nanosecond as", why, asked)


def _told(one: Entry, other: Entry, what: str, why: str, asked: Callable[[str], bool]) -> Problem:
    here, there = (other, one) if asked(other.where) else (one, other)
    return Problem(here.where, f"{what} {there.where}: {why}")


def _arm(run: Run) -> str:
    """What repeats of a run share: all of the spec but the seed and its number."""
    spec = {name: value for name, value in run.spec.to_dict().items() if name not in ("seed", "repeat")}
    return json.dumps([run.kind, spec], sort_keys=True)


def _digest(entry: Entry) -> str | None:
    """sha256 of what a run measured, however its file is written; None where that cannot be read."""
    sha = hashlib.sha256()
    try:
        table = read_table(entry.run.path, "requests", MEASURED)
    except UserError:
        # Told already, of the run itself.
        return None
    for column in table.columns:
        sha.update(column.fill_null(-1).to_numpy().tobytes())
    return sha.hexdigest()
