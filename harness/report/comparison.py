"""Compare two arms: what differs, metric by metric the ratio with its interval, and one word."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.measure.facts import Facts
from harness.measure.looks import share_of_look
from harness.measure.measured import VIRTUAL_ENGINES
from harness.measure.statistics import LONGEST_STAY
from harness.report.alpha import common_alpha
from harness.report.arms import pair_repeats, without_broken
from harness.report.comparable import (
    allowed,
    differences,
    refuse_differences,
    repeats_that_count,
    shared_rows,
    undeployable,
    unequal_clocks,
    unequal_kv,
    unequal_work,
    why_unranked,
)
from harness.report.reader import RunReader
from harness.report.rows import Pair, compared_rows, is_phased, phase_rows, reported_rows, withheld
from harness.report.support import supports
from harness.report.words import REPEATS, ComparedMetric, Rules, decide, headline_of
from harness.runs.run import Run, load_run


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms compared: B relative to A; both with all their runs, also those that count for nothing.

    `differences` maps what differs (a field of the spec or of the provenance) to its values in A and B.
    `refusal` says why no word is given, None where the arms are ranked. `method` says where intervals
    come from, `headline` which rows were named beforehand. Percentiles are metrics of their own, named `ttft_s.p99`.
    `phases` has the rows of each phase of a load that changes by plan.
    """

    a: tuple[Run, ...]
    b: tuple[Run, ...]
    differences: dict[str, tuple[Any, Any]]
    notes: tuple[str, ...]
    method: str
    refusal: str | None
    metrics: dict[str, ComparedMetric] = field(default_factory=dict)
    headline: tuple[str, ...] = ()
    phases: dict[str, dict[str, ComparedMetric]] = field(default_factory=dict)

    @property
    def ranks(self) -> bool:
        """Whether its words may rank the arms: none was refused, and no run that counts is INVALID."""
        sound_a, sound_b, _ = without_broken(self.a, self.b)
        return self.refusal is None and not any(run.level == "INVALID" for run in (*sound_a, *sound_b))

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `bench compare`."""
        return {
            "a": [str(run.path) for run in self.a],
            "b": [str(run.path) for run in self.b],
            "kind": sorted({run.kind for run in self.a + self.b}),
            "differences": {name: {"a": a, "b": b} for name, (a, b) in self.differences.items()},
            "notes": list(self.notes),
            "method": self.method,
            "ranked": self.ranks,
            "refusal": self.refusal,
            "headline": list(self.headline),
            "metrics": {name: metric.to_dict() for name, metric in self.metrics.items()},
            "phases": {
                phase: {name: metric.to_dict() for name, metric in rows.items()} for phase, rows in self.phases.items()
            },
        }


def compare(a_dirs: Sequence[Path], b_dirs: Sequence[Path], allow: Collection[str] = frozenset()) -> Comparison:
    """Compare B's runs with A's, each arm the repeats of one spec, paired by `repeat` and seed.

    `allow` names what may differ besides the policy: fields of the spec, `trace`, `cost_model`,
    `engine_version`, `kind`. UserError, differences named, for anything else that differs. A repeat that is INVALID is
    left out with its partner; arms of which nothing else is left, and runs of different kinds, are never ranked.
    """
    return compare_runs([load_run(path) for path in a_dirs], [load_run(path) for path in b_dirs], allow)


def compare_runs(
    a: Sequence[Run],
    b: Sequence[Run],
    allow: Collection[str] = frozenset(),
    alpha: float | None = None,
    reader: RunReader | None = None,
    rules: Rules | None = None,
) -> Comparison:
    """Compare runs that are loaded already; see `compare`.

    Both arms' gaps are held against one α: `alpha`, or the one that an arm has. `reader` remembers runs from one
    comparison to the next. `rules` name the headline rows and what counts as equal.
    """
    # The runs of a pair are measured for their stay and again for their metrics.
    reader = reader or RunReader(2)
    given = tuple(a), tuple(b)
    a, b, left_out = without_broken(a, b)
    pairing = pair_repeats(a, b, allow)
    pairs = list(pairing.pairs)
    refuse_differences(pairs, allow)
    unranked = why_unranked([*a, *b])
    reason = unranked.reason if unranked else None
    if any(run.kind == "reported" for run in (*a, *b)):
        metrics = reported_rows(pairs[0])
        return Comparison(*given, differences(*pairs[0]), (), "values as reported", reason, metrics)

    facts = [(reader.facts(left), reader.facts(right)) for left, right in pairs]
    paired = all(left.stream == right.stream for left, right in facts)
    if not (paired or unranked or allowed("stream_digest", allow)):
        raise UserError(
            "not comparable, A and B replay different requests (another realised trace): run both policies "
            "in one `bench run` (to compare them all the same: --allow trace)"
        )
    unranked = unranked or unequal_work(facts, pairs)
    reason = unranked.reason if unranked else None
    counted, dependence = _counted_pairs(pairs, [left for left, _ in facts])
    common = common_alpha([*a, *b], alpha)
    rules, named_late = _headline_rules([*a, *b], rules or Rules())
    equals = pairing.equals
    share = _look(counted)
    rows = compared_rows(counted, equals, common, paired, reader, share)
    headline = headline_of(rows, rules)
    if unranked:
        metrics = {name: replace(row, word=unranked.word, why=unranked.reason) for name, row in rows.items()}
        phases = {}
    else:
        kept = withheld(counted, list(rows), reader)
        metrics = decide(rows, headline, replace(rules, share=share), kept, supports(pairs))
        phases = phase_rows(counted, reader, replace(rules, share=share))
    notes = [
        left_out,
        *undeployable([a[0].spec, b[0].spec]),
        None
        if share == 1
        else f"looked at before all repeats were there: intervals hold at {95 + 5 * (1 - share):.2f} %",
        None if paired or unranked else "the arms replay different requests: the comparison is not paired",
        dependence,
        shared_rows(a),
        unequal_kv(pairs),
        unequal_clocks(pairs),
        common.note,
        named_late,
        "the load changes by plan: rates and latencies are of the whole span" if is_phased(a[0]) else None,
        _long_stay(counted, reader),
    ]
    return Comparison(
        a=given[0],
        b=given[1],
        differences=differences(*pairs[0]),
        notes=tuple(note for note in notes if note),
        method=_method(counted, rows, equals),
        refusal=reason,
        metrics=metrics,
        headline=headline,
        phases=phases,
    )


def _counted_pairs(pairs: list[Pair], asked: Sequence[Facts]) -> tuple[list[Pair], str | None]:
    """The pairs that count, the first alone where the repeats say nothing new, and what to say of these.

    `asked` has the facts of each repeat of A.
    """
    note, independent = repeats_that_count(asked, pairs[0][0].spec.engine in VIRTUAL_ENGINES)
    return pairs if independent else pairs[:1], note


def _long_stay(pairs: Sequence[Pair], reader: RunReader) -> str | None:
    """What to say of a single pair whose requests stay for so long that latencies get no interval."""
    if len(pairs) > 1:
        return None
    share = max(reader.facts(run).stay for run in pairs[0])
    if share <= LONGEST_STAY:
        return None
    return (
        f"a request stays for {share:.0%} of the run on average: too few stretches without common requests to "
        "give latencies an interval; use --repeat"
    )


def _method(pairs: Sequence[Pair], rows: Mapping[str, ComparedMetric], equals: Sequence[Sequence[Run]]) -> str:
    """Where the intervals come from."""
    tested = any(row.over == REPEATS for row in rows.values())
    more = sum(len(group) - 1 for group in equals)
    if not tested:
        if len(pairs) > 1:
            return f"{len(pairs)} repeats, nothing to test"
        return "one repeat: intervals over requests (block bootstrap), no words"
    told = f"Student's t over {len(pairs)} paired repeat{'s' if len(pairs) > 1 else ''}"
    return f"{told} and {more} more run{'s' if more > 1 else ''} of equals (A/A)" if more else told


def _look(pairs: Sequence[Pair]) -> float:
    """The share of the chance of a false word that a look at so many repeats may spend; all where nobody looks."""
    looked = any("until" in run.manifest.get("provenance", {}) for pair in pairs for run in pair)
    return (share_of_look(len(pairs)) or 1.0) if looked else 1.0


def _headline_rules(runs: Sequence[Run], rules: Rules) -> tuple[Rules, str | None]:
    """The rules with the rows that the runs' own command named, and what to say where others are named now."""
    before = {tuple(run.manifest.get("provenance", {}).get("headline") or ()) for run in runs}
    own = before.pop() if len(before) == 1 else ()
    if not rules.headline:
        return replace(rules, headline=tuple(map(str, own))), None
    if rules.headline == own:
        return rules, None
    return rules, "the headline rows were named after the runs: words hold where they were chosen without the results"
