"""Runs that --out has already: taken where nothing that decides a run has changed, and else run again."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from os.path import commonpath
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.masking import scrub
from harness.core.runspec import RunSpec
from harness.engines.simulated import Simulated
from harness.measure.measured import VIRTUAL_ENGINES
from harness.runs.provenance import collect
from harness.runs.run import PARTIAL, Run, load_run, run_path
from harness.runs.thin import is_thin
from harness.session.beside import MOST_REQUESTS
from harness.session.one_run import Prepared, provenance_of

# Of a run's provenance what does not decide it: the spec has the digests of files, whatever they are called.
NOT_DECIDING = ("command", "profile_file", "policy_file")
# Nor do these of one in virtual time.
OF_THE_CLOCK = ("host", "python")
# What was named before a run, or was not.
NAMED = ("headline", "until")


class Finished:
    """The runs of these specs that `out` has, each to be taken once; `lines` say which, and why others run again.

    `ready` makes a run ready, so that what is known of it beforehand can be held against what was; `named` joins its
    provenance, and `alone` says that it need not be held against the other cost models.
    """

    def __init__(
        self,
        out: Path,
        specs: Sequence[RunSpec],
        ready: Callable[[RunSpec], Prepared],
        named: Mapping[str, Any],
        alone: bool,
    ) -> None:
        self.lines: list[str] = []
        self._runs: dict[str, list[Run]] = defaultdict(list)
        others: dict[str, list[Path]] = defaultdict(list)
        for digest, wanted in Counter(spec.digest for spec in specs).items():
            spec = next(spec for spec in specs if spec.digest == digest)
            prepared = None
            for one in finished_runs(out, spec):
                if len(self._runs[digest]) == wanted:
                    break
                prepared = prepared or ready(spec)
                why = why_again(one, prepared, named, alone)
                if why is None:
                    self._runs[digest].append(one)
                else:
                    others[why].append(one.path)
        taken = [one.path for runs in self._runs.values() for one in runs]
        if taken:
            self.lines.append(f"{_told(taken)}: read, not run again (--again runs them)")
        self.lines += [f"{_told(paths)}, but {why}: run again" for why, paths in others.items()]

    def take(self, spec: RunSpec) -> Run | None:
        """A finished run of the spec, None where there is none that was not taken yet."""
        runs = self._runs[spec.digest]
        return runs.pop() if runs else None

    def left(self, specs: Sequence[RunSpec]) -> list[RunSpec]:
        """The specs that have to run."""
        have = {digest: len(runs) for digest, runs in self._runs.items()}
        left = []
        for spec in specs:
            if have.get(spec.digest, 0):
                have[spec.digest] -= 1
            else:
                left.append(spec)
        return left


def finished_runs(out: Path, spec: RunSpec) -> Iterator[Run]:
    """The whole runs of this very spec under `out`, the latest first."""
    place = run_path(out, spec, datetime.now(UTC))
    if not place.parent.is_dir():
        return
    for path in sorted(place.parent.glob(f"*-{spec.digest[:8]}-r{spec.repeat}"), reverse=True):
        if path.name.endswith(PARTIAL):
            continue
        try:
            one = load_run(path)
        except UserError:
            continue
        if one.manifest["digest"] == spec.digest and one.status == "complete" and one.summary:
            yield one


def why_again(one: Run, prepared: Prepared, named: Mapping[str, Any], alone: bool) -> str | None:
    """Why a finished run of the spec need not be what running it now would give; None where nothing says so."""
    spec, engine = prepared.spec, prepared.engine
    if spec.engine == "endpoint":
        return "a server that bench did not start may be another today"
    if is_thin(one.path):
        return "without tables"
    told = one.manifest["provenance"]
    known = json.loads(
        json.dumps(scrub(collect(()) | engine.provenance() | provenance_of(prepared.stream) | dict(named)))
    )
    if str(known["harness"]["commit"]).endswith("-dirty"):
        return "bench has changes that no commit names"
    passed = (*NOT_DECIDING, *(OF_THE_CLOCK if spec.engine in VIRTUAL_ENGINES else ()))
    if told.get("harness") != known["harness"]:
        return "by another version of bench"
    for name in [*known, *NAMED]:
        if name not in passed and _as_told(name, told.get(name)) != _as_told(name, known.get(name)):
            return f"with {'other' if name.endswith('s') else 'another'} {name.replace('_', ' ')}"
    if isinstance(engine, Simulated) and not alone and spec.requests <= MOST_REQUESTS and "beside" not in one.manifest:
        return "not held against the other cost models"
    return None


def _as_told(name: str, value: Any) -> Any:
    """A value of the provenance; of an engine's version what its server tells as well: not how it was built."""
    return value.partition("+")[0] if name == "engine_version" and isinstance(value, str) else value


def _told(paths: Sequence[Path]) -> str:
    """How many runs are finished, and where."""
    which = "1 run is" if len(paths) == 1 else f"{len(paths):,} runs are"
    return f"{which} finished in {paths[0] if len(paths) == 1 else commonpath(paths)}"
