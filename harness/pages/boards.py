"""The leaderboard's tables: what may be ranked together, an arm a row, each held against the baseline."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.measure.statistics import t_quantile
from harness.measure.verdict import worst
from harness.pages.numbers import gpu_name
from harness.published.cache import Keep
from harness.published.corpus import Corpus, Entry
from harness.report.arms import arms
from harness.report.comparable import where
from harness.report.comparison import Reading, compare_runs
from harness.report.document import is_twin
from harness.report.sentences import said

# The arm that a change is held against, the first of these that the board has.
BASELINES = ("v1", "stock", "v0")
# Measured before the rest: what was timed comes before what was computed or only told.
KINDS = ("measured", "emulated", "simulated", "reported")
# Runs of a board that stay in memory while its arms are held against each other.
REMEMBERED = 24
# Never part of what makes a board: the policy is compared with what it knew of lengths, and repeats are the arm's own.
_NOT_THE_BOARD = ("policy", "lengths", "seed", "repeat")
# What a publication chose for each policy on its own.
TUNED = ("slots", "token_budget")
# Of the spec's fields, those that have one.
_DEFAULTS = {
    one.name: one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
    for one in dataclasses.fields(RunSpec)
    if (one.default, one.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
}


@dataclass(frozen=True, slots=True)
class Value:
    """A metric of an arm: its mean over the repeats, and the 95 % interval where there is one."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """An arm against the board's baseline in one metric: ratio, 95 % interval, p and word."""

    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    word: str


@dataclass(frozen=True, slots=True)
class Arm:
    """The repeats of one policy on a board; `values` and `changes` by metric, distributions as `ttft_s.p99`."""

    entries: tuple[Entry, ...]
    values: dict[str, Value]
    changes: dict[str, Change] = field(default_factory=dict)
    refusal: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> Entry:
        """The repeat that stands for the arm where one has to."""
        return self.entries[0]

    @property
    def policy(self) -> str:
        """The policy's canonical name."""
        return self.first.run.spec.policy

    @property
    def level(self) -> str:
        """The worst verdict of its repeats."""
        return worst(entry.run.level for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Board:
    """Arms that differ in nothing but the policy: ranked those that are not INVALID, the rest shown beneath."""

    id: str
    kind: str
    arms: tuple[Arm, ...]
    baseline: str | None

    @property
    def first(self) -> Entry:
        """A run that says what the board is about."""
        return self.arms[0].first


def boards(corpus: Corpus, keep: Keep) -> list[Board]:
    """Every board of the corpus, measured first and what is doubtful last, then by GPU, model, workload and load."""
    return sorted((board_of(entries, keep) for entries in grouped(corpus.entries)), key=_place)


def grouped(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The runs that stand on a board together."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(decides(entry), []).append(entry)
    return list(groups.values())


def decides(entry: Entry, without: Sequence[str] = ()) -> str:
    """What must be equal for runs to stand on one board, as text; `without` some fields of the spec."""
    reported = entry.run.kind == "reported"
    left_out = (*_NOT_THE_BOARD, *without, *(TUNED if reported else ()))
    # What is as it is by default goes without saying, so that a board keeps its id when specs gain a field.
    default = {} if reported else _DEFAULTS
    spec = {
        name: value
        for name, value in entry.run.told.items()
        if name not in left_out and (name not in default or value != default[name])
    }
    provenance = entry.run.manifest.get("provenance", {})
    # Figures of two publications, or of two experiments of one, are of different runs.
    origin = [provenance.get(name) for name in (("paper", "set") if reported else ("engine_version",))]
    return json.dumps([entry.run.kind, *origin, spec], sort_keys=True)


def _place(board: Board) -> tuple[Any, ...]:
    """GPUs first; of them what is most to be trusted: measured, then valid, data sets before twins and made-up ones."""
    run = board.first.run
    spec = run.spec
    # A toy model on a CPU shows that policies run for real and says nothing of a GPU.
    toy = gpu_name(spec.gpu).startswith("cpu")
    doubts = (all(arm.level != "VALID" for arm in board.arms), ":" in spec.workload, is_twin(run))
    about = (
        gpu_name(spec.gpu),
        spec.model,
        spec.workload,
        _natural(spec.arrival),
        spec.requests,
        -spec.slots,
        -spec.token_budget,
    )
    return (board.kind == "reported", toy, KINDS.index(board.kind), *doubts, *about, board.id)


def board_of(entries: list[Entry], keep: Keep, reading: Reading | None = None) -> Board:
    """The board of these runs."""
    key = decides(entries[0])
    by_run = {entry.run.path: entry for entry in entries}
    # Of one spec at one seed the first run counts: nobody runs until they are lucky, or replaces what is published.
    first: dict[str, Entry] = {}
    for entry in sorted(entries, key=_started):
        first.setdefault(entry.run.manifest["digest"], entry)
    found = []
    for group in arms([entry.run for entry in first.values()]):
        some = [by_run[run.path] for run in sorted(group, key=lambda one: one.spec.repeat)]
        # INVALID never averages and drags no other down: such repeats stand by themselves, beneath.
        parts = (tuple(one for one in some if (one.run.level == "INVALID") is invalid) for invalid in (False, True))
        found += [_arm(part) for part in parts if part]
    baseline = next((name for name in BASELINES for arm in found if arm.policy == name), None)
    if baseline is not None:
        base = next(arm for arm in found if arm.policy == baseline)
        reading = reading or Reading(REMEMBERED)
        found = [arm if arm is base else _against(base, arm, keep, reading) for arm in found]
    # Reported figures are not ranked: the baseline, then by name.
    ranked = entries[0].run.kind != "reported"
    found.sort(key=lambda arm: (arm.level == "INVALID", -_rate(arm) if ranked else arm.policy != baseline, arm.policy))
    return Board(hashlib.sha256(key.encode()).hexdigest()[:10], entries[0].run.kind, tuple(found), baseline)


def _started(entry: Entry) -> tuple[float, str]:
    """When a run began, as a time and not as text; a reported one never did."""
    told = entry.run.manifest.get("started_utc")
    return (datetime.fromisoformat(told).timestamp() if told else 0.0, entry.where)


def _natural(text: str) -> tuple[tuple[str, float], ...]:
    """A text as people sort it: the numbers in it by their size."""
    return tuple((word, float(number or 0)) for word, number in re.findall(r"([^\d]+)(\d*\.?\d*)", text))


def _rate(arm: Arm) -> float:
    value = arm.values.get("output_throughput") or arm.values.get("request_throughput")
    return value.mean if value else 0.0


def _arm(entries: tuple[Entry, ...]) -> Arm:
    flat = [_flat(entry) for entry in entries]
    names = dict.fromkeys(name for one in flat for name in one)
    values = {name: value for name in names if (value := _mean([one.get(name) for one in flat]))}
    return Arm(entries, values)


def _flat(entry: Entry) -> dict[str, Value]:
    """A run's metrics, a distribution's mean and percentiles apart: `ttft_s`, `ttft_s.p99`."""
    flat = {}
    for name, values in entry.run.summary.get("metrics", {}).items():
        central = values.get("value", values.get("mean"))
        if central is not None:
            flat[name] = Value(central, values.get("low"), values.get("high"))
        for key, value in values.items():
            if key in ("p50", "p90", "p95", "p99", "max") and value is not None:
                flat[f"{name}.{key}"] = Value(value)
    return flat


def _mean(values: Sequence[Value | None]) -> Value | None:
    """The mean over repeats with Student's t on their spread; one repeat keeps the interval from within it."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    if len(known) == 1:
        return known[0]
    mean = math.fsum(one.mean for one in known) / len(known)
    variance = math.fsum((one.mean - mean) ** 2 for one in known) / (len(known) - 1)
    half = t_quantile(len(known) - 1) * math.sqrt(variance / len(known))
    return Value(mean, mean - half, mean + half)


def _against(base: Arm, arm: Arm, keep: Keep, reading: Reading) -> Arm:
    found = compared(base, arm, keep, reading)
    changes = {name: Change(*values[:5]) for name, values in found["changes"].items()}
    return Arm(arm.entries, arm.values, changes, found["refusal"], tuple(found["notes"]))


def compared(base: Arm, arm: Arm, keep: Keep, reading: Reading, allow: Sequence[str] = ()) -> dict[str, Any]:
    """An arm held against another, as JSON values that are kept: `changes` by metric, `refusal`, `notes`.

    A change is ratio, low, high, p, word, and the two values as they were held against each other: an arm has no share
    of gaps over an α that is not its own.
    """
    key = hashlib.sha256(json.dumps([_identity(base), _identity(arm), *allow]).encode()).hexdigest()
    return dict(keep.made(key, lambda: _compared(base, arm, reading, allow)))


def _identity(arm: Arm) -> list[list[str]]:
    return [[entry.where, entry.digest] for entry in arm.entries]


def _compared(base: Arm, arm: Arm, reading: Reading, allow: Sequence[str]) -> dict[str, Any]:
    """The comparison of two arms over the repeats that both have; what forbids one is said, not raised."""
    left, right = ({entry.run.spec.repeat: entry.run for entry in one.entries} for one in (base, arm))
    common = sorted(left.keys() & right.keys())
    try:
        allow = (*allow, *TUNED) if base.first.run.kind == "reported" else allow
        found = compare_runs([left[i] for i in common], [right[i] for i in common], allow, reading=reading)
    except UserError as error:
        line = str(error)
        for entry in (*base.entries, *arm.entries):
            # As on every machine.
            line = line.replace(where(entry.run), entry.where)
        return {"changes": {}, "refusal": line, "notes": []}
    changes = {name: [row.ratio, row.low, row.high, row.p, said(row), row.a, row.b] for name, row in found.rows.items()}
    notes = [found.method, *found.notes]
    if len(common) < max(len(left), len(right)):
        notes.append(f"over what both have: {len(common)} of {len(left)} and {len(right)} repeats")
    return {"changes": changes, "refusal": found.refusal, "notes": notes}
