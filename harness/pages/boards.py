"""The leaderboard's tables: what may be ranked together, an arm a row, each held against the baseline."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.measure.verdict import worst
from harness.pages.values import MetricMean, means_of
from harness.published.cache import JsonCache
from harness.published.corpus import Corpus, PublishedRun
from harness.report.arms import arms_of, sound_and_broken
from harness.report.comparable import end_of_path
from harness.report.comparison import compare_runs
from harness.report.document import is_twin, kind_words
from harness.report.reader import RunReader
from harness.report.rows import show_steady_rows
from harness.report.sentences import phase_lines, support_words
from harness.report.words import steady_name
from harness.runs.run import gpu_name
from harness.runs.schema import KINDS

# The arm that a change is held against, the first of these that the board has.
BASELINES = ("v1", "stock", "v0")
# Runs of a board that stay in memory while its arms are held against each other.
REMEMBERED = 24
# Never part of what makes a board: the policy is compared with what it knew of lengths, and repeats are the arm's own.
_NOT_THE_BOARD = ("policy", "policy_sha256", "lengths", "seed", "repeat")
# What a rate's name begins with.
_RATES = ("goodput", "output_throughput", "request_throughput", "total_throughput")
# What a publication chose for each policy on its own.
TUNED = ("slots", "token_budget")
# What the fields of the spec are that have a default.
_DEFAULTS = {
    field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    for field in dataclasses.fields(RunSpec)
    if (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
}


@dataclass(frozen=True, slots=True)
class Change:
    """An arm against the board's baseline in one metric: ratio, 95 % interval, p and word.

    `support` says what each cost model makes of a simulated change, and `support_word` whether they agree; both are
    empty where nobody asked.
    """

    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    word: str
    support: str = ""
    support_word: str = ""


@dataclass(frozen=True, slots=True)
class Arm:
    """The repeats of one policy on a board; `values` and `changes` by metric, distributions as `ttft_s.p99`.

    `headline` has the metrics whose words count, the rate first.
    """

    runs: tuple[PublishedRun, ...]
    values: dict[str, MetricMean]
    changes: dict[str, Change] = dataclasses.field(default_factory=dict)
    refusal: str | None = None
    notes: tuple[str, ...] = ()
    headline: tuple[str, ...] = ()

    @property
    def first(self) -> PublishedRun:
        """The repeat that stands for the arm where one has to."""
        return self.runs[0]

    @property
    def policy(self) -> str:
        """The policy's canonical name."""
        return self.first.run.spec.policy

    @property
    def label(self) -> str:
        """The policy, and what it knew of output lengths."""
        return self.first.run.spec.label

    @property
    def level(self) -> str:
        """The worst verdict of its repeats."""
        return worst(published.run.level for published in self.runs)


@dataclass(frozen=True, slots=True)
class Board:
    """Arms that differ in nothing but the policy: ranked those that are not INVALID, the rest shown beneath.

    `steady` says whether its values leave out the start and the end of a closed loop.
    """

    id: str
    kind: str
    arms: tuple[Arm, ...]
    baseline: str | None
    steady: bool = False

    @property
    def first(self) -> PublishedRun:
        """A run that says what the board is about."""
        return self.arms[0].first

    @property
    def spec(self) -> RunSpec:
        """The spec that all arms share but for the policy and what it knew of lengths."""
        return self.first.run.spec

    @property
    def reference(self) -> Arm:
        """The baseline's arm, or where there is none the first."""
        return next((arm for arm in self.arms if arm.policy == self.baseline), self.arms[0])

    @property
    def rate(self) -> str:
        """The metric that decides: the first headline of its comparisons; with limits what met them."""
        rates = (arm.headline[0] for arm in self.arms if arm.headline)
        found = next((name for name in rates if name.startswith(_RATES)), None)
        return found or self.row("goodput" if self.spec.slo else "output_throughput")

    def row(self, name: str) -> str:
        """The row that a column of this metric shows: the steady one where start and end are left out."""
        return steady_name(name) if self.steady else name

    @property
    def kind_words(self) -> str:
        """The kind of its numbers in words."""
        return kind_words(self.first.run)

    @property
    def newest(self) -> str:
        """When the newest of its runs began, as run.json tells it; empty where none of them does."""
        return max(str(one.run.manifest.get("started_utc") or "") for arm in self.arms for one in arm.runs)

    @property
    def is_toy(self) -> bool:
        """Whether it ran on a CPU: that shows that policies run for real, and says nothing of a GPU."""
        return gpu_name(self.spec.gpu).startswith("cpu")

    @property
    def is_twin(self) -> bool:
        """Whether its lengths are a statistical twin of a data set."""
        return is_twin(self.first.run)


def boards_of(corpus: Corpus, cache: JsonCache) -> list[Board]:
    """Every board of the corpus, measured first and what is doubtful last, then by GPU, model, workload and load."""
    return sorted((board_of(runs, cache) for runs in group_by_board(corpus.runs)), key=_order)


def group_by_board(runs: Sequence[PublishedRun]) -> list[list[PublishedRun]]:
    """The runs that stand on a board together."""
    groups: dict[str, list[PublishedRun]] = {}
    for published in runs:
        groups.setdefault(board_key(published), []).append(published)
    return list(groups.values())


def board_key(published: PublishedRun, without: Sequence[str] = ()) -> str:
    """What must be equal for runs to stand on one board, as text; `without` some fields of the spec."""
    run = published.run
    is_reported = run.kind == "reported"
    left_out = (*_NOT_THE_BOARD, *without, *(TUNED if is_reported else ()))
    # What is as it is by default goes without saying, so that a board keeps its id when specs gain a field.
    default = {} if is_reported else _DEFAULTS
    spec = {
        name: value
        for name, value in run.known_spec.items()
        if name not in left_out and (name not in default or value != default[name])
    }
    provenance = run.manifest.get("provenance", {})
    # Figures of two publications, or of two experiments of one, are of different runs.
    origin = [provenance.get(name) for name in (("paper", "set") if is_reported else ("engine_version",))]
    return json.dumps([run.kind, *origin, spec], sort_keys=True)


def _order(board: Board) -> tuple[Any, ...]:
    """GPUs first; of them what is most to be trusted: measured, then valid, data sets before twins and made-up ones."""
    spec = board.spec
    doubts = (all(arm.level != "VALID" for arm in board.arms), ":" in spec.workload, board.is_twin)
    about = (
        gpu_name(spec.gpu),
        spec.model,
        spec.workload,
        _natural(spec.arrival),
        spec.requests,
        -spec.slots,
        -spec.token_budget,
    )
    return (board.kind == "reported", board.is_toy, KINDS.index(board.kind), *doubts, *about, board.id)


def board_of(runs: list[PublishedRun], cache: JsonCache, reader: RunReader | None = None) -> Board:
    """The board of these runs."""
    kind = runs[0].run.kind
    arms = _arms(_first_of_each_spec(runs))
    baseline = next((name for name in BASELINES for arm in arms if arm.policy == name), None)
    if baseline is not None:
        base = next(arm for arm in arms if arm.policy == baseline)
        reader = reader or RunReader(REMEMBERED)
        arms = [arm if arm is base else _against(base, arm, cache, reader) for arm in arms]
    name = hashlib.sha256(board_key(runs[0]).encode()).hexdigest()[:10]
    counted = [published.run for arm in arms if arm.level != "INVALID" for published in arm.runs]
    board = Board(name, kind, tuple(arms), baseline, bool(counted) and show_steady_rows(counted))

    def place(arm: Arm) -> tuple[Any, ...]:
        # Reported figures are not ranked: the baseline, then by name.
        rank = arm.policy != baseline if kind == "reported" else -_throughput(arm, board)
        return arm.level == "INVALID", rank, arm.policy

    return dataclasses.replace(board, arms=tuple(sorted(arms, key=place)))


def _first_of_each_spec(runs: Sequence[PublishedRun]) -> list[PublishedRun]:
    """Of one spec at one seed the first run: nobody runs until they are lucky, or replaces what is published."""
    first: dict[str, PublishedRun] = {}
    for published in sorted(runs, key=_started):
        first.setdefault(published.run.manifest["digest"], published)
    return list(first.values())


def _started(published: PublishedRun) -> tuple[float, str]:
    """When a run began, as a time and not as text; a reported one never did."""
    started = published.run.manifest.get("started_utc")
    return (datetime.fromisoformat(started).timestamp() if started else 0.0, published.where)


def _arms(runs: Sequence[PublishedRun]) -> list[Arm]:
    """The arms of these runs; broken repeats make an arm of their own, since INVALID averages with nothing."""
    by_path = {published.run.path: published for published in runs}
    arms = []
    for group in arms_of([published.run for published in runs]):
        for part in sound_and_broken(sorted(group, key=lambda run: run.spec.repeat)):
            if part:
                repeats = tuple(by_path[run.path] for run in part)
                arms.append(Arm(repeats, means_of(repeats)))
    return arms


def _natural(text: str) -> tuple[tuple[str, float], ...]:
    """A text as people sort it: the numbers in it by their size."""
    return tuple((word, float(number or 0)) for word, number in re.findall(r"([^\d]+)(\d*\.?\d*)", text))


def _throughput(arm: Arm, board: Board) -> float:
    names = (board.rate, board.row("output_throughput"), "request_throughput")
    value = next((arm.values[name] for name in names if name in arm.values), None)
    return value.mean if value else 0.0


def _against(base: Arm, arm: Arm, cache: JsonCache, reader: RunReader) -> Arm:
    """The arm with its changes against the baseline's."""
    comparison = compare_arms(base, arm, cache, reader)
    support = comparison.get("support", {})
    changes = {
        name: Change(*values[:5], *support.get(name, ("", ""))) for name, values in comparison["changes"].items()
    }
    headline = tuple(comparison.get("headline", ()))
    return Arm(arm.runs, arm.values, changes, comparison["refusal"], tuple(comparison["notes"]), headline)


def compare_arms(base: Arm, arm: Arm, cache: JsonCache, reader: RunReader, allow: Sequence[str] = ()) -> dict[str, Any]:
    """An arm held against another, as JSON values that are kept: `changes` by metric, `refusal`, `notes`.

    A change is ratio, low, high, p, word, and the two values as they were held against each other: an arm has no share
    of gaps over an α that is not its own.
    """
    key = hashlib.sha256(json.dumps([_identity(base), _identity(arm), *allow]).encode()).hexdigest()
    return dict(cache.get_or_make(key, lambda: _compare_arms(base, arm, reader, allow)))


def _identity(arm: Arm) -> list[list[str]]:
    return [[published.where, published.digest] for published in arm.runs]


def _compare_arms(base: Arm, arm: Arm, reader: RunReader, allow: Sequence[str]) -> dict[str, Any]:
    """The comparison of two arms over the repeats that both have; what forbids one is said, not raised."""
    left, right = ({published.run.spec.repeat: published.run for published in side.runs} for side in (base, arm))
    common = sorted(left.keys() & right.keys())
    if base.first.run.kind == "reported":
        allow = (*allow, *TUNED)
    try:
        comparison = compare_runs([left[i] for i in common], [right[i] for i in common], allow, reader=reader)
    except UserError as error:
        line = str(error)
        for published in (*base.runs, *arm.runs):
            # As on every machine.
            line = line.replace(end_of_path(published.run), published.where)
        return {"changes": {}, "refusal": line, "notes": []}
    changes = {
        name: [metric.ratio, metric.low, metric.high, metric.p, metric.word, metric.a, metric.b]
        for name, metric in comparison.metrics.items()
    }
    notes = [comparison.method, *comparison.notes, *phase_lines(comparison)]
    if len(common) < max(len(left), len(right)):
        notes.append(f"over what both have: {len(common)} of {len(left)} and {len(right)} repeats")
    support = {
        name: (support_words(metric), metric.support.word)
        for name, metric in comparison.metrics.items()
        if metric.support
    }
    told = {"changes": changes, "support": support, "headline": comparison.headline}
    return told | {"refusal": comparison.refusal, "notes": notes}
