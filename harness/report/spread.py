"""How the runs of an arm spread: what would have been said of them, and the repeats that show a difference."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError
from harness.core.text import short
from harness.measure.repeats import repeats_to_show, shift_of
from harness.measure.statistics import CONFIDENCE
from harness.report.alpha import common_alpha
from harness.report.arms import arms_of, pair_repeats
from harness.report.reader import RunReader
from harness.report.rows import compared_rows
from harness.report.sentences import label_of
from harness.report.words import BETTER, WORSE, Rules, by_difference, decide, headline_of, row_over_repeats
from harness.runs.run import Run

if TYPE_CHECKING:
    from rich.console import RenderableType

LEAST_RUNS = 4
MOST_SPLITS = 200
# A difference of two runs spreads by so much more than a run.
_OF_TWO = math.sqrt(2)


@dataclass(frozen=True, slots=True)
class Itself:
    """An arm held against itself: in how many of `splits` into pairs a row had a word, and how its runs spread."""

    label: str
    runs: int
    pairs: int
    splits: int
    words: dict[str, int]
    any_word: int
    deviation: dict[str, float]

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a headline metric."""
        return [
            {
                "policy": self.label,
                "metric": name,
                "runs": self.runs,
                "splits": self.splits,
                "words": self.words[name],
                "any_word": self.any_word,
                "deviation_percent": 100 * self.deviation[name],
            }
            for name in self.words
        ]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of an arm of `bench aa`."""
        return {
            "policy": self.label,
            "runs": self.runs,
            "pairs": self.pairs,
            "splits": self.splits,
            "rows": self.rows(),
        }


def against_itself(arm: Sequence[Run], rules: Rules) -> Itself:
    """What a comparison would have said of an arm's own runs, split into two sides in many ways.

    UserError below LEAST_RUNS runs.
    """
    if len(arm) < LEAST_RUNS:
        raise UserError(
            f"{short(arm[0].spec.label)}: {len(arm)} runs: a policy against itself takes {LEAST_RUNS} or more: "
            "`bench run --repeat 8` (simulated), `--aa 7` (a real engine)"
        )
    values = _values(arm, rules)
    half = len(arm) // 2
    splits = _splits(len(arm), half)
    words, any_word = dict.fromkeys(values, 0), 0
    for left, right in splits:
        rows = {}
        for name, own in values.items():
            pairs = [(own[a], own[b]) for a, b in zip(left, right, strict=True)]
            is_difference = by_difference(name, pairs)
            shift = shift_of([b - a if is_difference else math.log(b / a) for a, b in pairs], scale=max(own))
            if shift is not None:
                rows[name] = row_over_repeats(name, pairs, shift, is_difference)
        told = [name for name, row in decide(rows, list(rows), rules, {}, {}).items() if row.word in (BETTER, WORSE)]
        any_word += bool(told)
        for name in told:
            words[name] += 1
    deviation = {name: deviation_of(own) for name, own in values.items()}
    return Itself(arm[0].spec.label, len(arm), half, len(splits), words, any_word, deviation)


def _splits(runs: int, half: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ways to make pairs of so many runs; a seeded choice of them where there are many."""
    if math.comb(runs, half) <= MOST_SPLITS // 2:
        sides = [
            (left, tuple(place for place in range(runs) if place not in left)[:half])
            for left in itertools.combinations(range(runs), half)
        ]
        return [pair for pair in sides if pair[0][0] == 0]
    draw = random.Random(0)  # noqa: S311 - a choice of splits, no secret
    orders = [draw.sample(range(runs), 2 * half) for _ in range(MOST_SPLITS)]
    return [(tuple(order[:half]), tuple(order[half:])) for order in orders]


def _values(arm: Sequence[Run], rules: Rules) -> dict[str, list[float]]:
    """Each headline metric's values, a run each."""
    reader = RunReader(2)
    alpha = common_alpha(arm, None)
    first = compared_rows([(arm[0], arm[0])], (), alpha, True, reader)
    names = headline_of(first, rules)
    of_runs = [reader.values(run, alpha.alpha) for run in arm]
    values = {}
    for name in names:
        known = [value for one in of_runs if (value := one.get(name)) is not None]
        if len(known) == len(arm):
            values[name] = known
    if not values:
        raise UserError(f"{short(arm[0].spec.label)}: its runs have none of the headline metrics")
    return values


def deviation_of(values: Sequence[float]) -> float:
    """The deviation of one run's logarithm; of the value itself where one is 0."""
    moved = [math.log(value) for value in values] if min(values) > 0 else list(values)
    mean = math.fsum(moved) / len(moved)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in moved) / (len(moved) - 1))


@dataclass(frozen=True, slots=True)
class Plan:
    """The repeats that show a difference in a metric as often as wanted, None where a thousand would not."""

    metric: str
    deviation: float
    difference: float
    repeats: int | None

    def to_dict(self) -> dict[str, Any]:
        """The plan as a flat row."""
        return {
            "metric": self.metric,
            "deviation_percent": 100 * self.deviation,
            "difference_percent": 100 * self.difference,
            "repeats": self.repeats,
        }


def plans_of(runs: Sequence[Run], differences: Sequence[float], wanted: float, rules: Rules) -> list[Plan]:
    """The repeats for each headline metric and difference; UserError where the runs are no one or two arms, or few.

    The level is that of the strictest of the headline rows (Holm): one chance in twenty shared by all of them.
    """
    arms = arms_of(runs)
    if len(arms) > 2 or len(runs) <= len(arms):
        raise UserError(
            f"bench power takes the repeats of one arm or two, at least two of each: these are {len(runs)} runs of "
            f"{len(arms)} arms"
        )
    values = [_values(arm, rules) for arm in arms]
    if len(arms) == 1:
        spread = {name: _OF_TWO * deviation_of(own) for name, own in values[0].items()}
    else:
        spread = _of_pairs(arms, values)
    level = (1 - CONFIDENCE) / max(1, len(spread))
    return [
        Plan(name, deviation, share, repeats_to_show(math.log1p(share), deviation, wanted, level))
        for name, deviation in spread.items()
        for share in differences
    ]


def _of_pairs(arms: Sequence[Sequence[Run]], values: Sequence[dict[str, list[float]]]) -> dict[str, float]:
    """The deviation of the log ratio of a pair, by metric."""
    pairs = pair_repeats(arms[0], arms[1], ("seed",) if len(arms[0]) == len(arms[1]) else ()).pairs
    place = [{run.path: at for at, run in enumerate(arm)} for arm in arms]
    found = {}
    for name in values[0].keys() & values[1].keys():
        both = [(values[0][name][place[0][a.path]], values[1][name][place[1][b.path]]) for a, b in pairs]
        if all(a > 0 and b > 0 for a, b in both):
            shift = shift_of([math.log(b / a) for a, b in both])
            found[name] = shift.deviation if shift is not None else 0.0
    return {name: found[name] for name in values[0] if name in found}


def itself_table(found: Itself) -> RenderableType:
    """An arm against itself, for a terminal."""
    from rich.table import Table

    from harness.core.folding import Folding

    title = f"{found.label} against itself: {found.runs} runs, {found.splits} ways into {found.pairs} pairs"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("metric", no_wrap=True)
    for column in ("a run spreads by", "false words"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, words in found.words.items():
        told = f"{words} of {found.splits}"
        table.add_row(label_of(name), f"{100 * found.deviation[name]:.2g} %", told)
    table.add_row("any of them", "", f"{found.any_word} of {found.splits}")
    return Folding(table)


def plan_table(plans: Sequence[Plan], wanted: float) -> RenderableType:
    """Repeats by metric and difference, for a terminal."""
    from rich.table import Table

    from harness.core.folding import Folding

    differences = list(dict.fromkeys(plan.difference for plan in plans))
    title = f"repeats that show a difference in {100 * wanted:g} % of cases"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("metric", no_wrap=True)
    for column in ("a pair spreads by", *(f"{100 * share:g} %" for share in differences)):
        table.add_column(column, justify="right", no_wrap=True)
    for name in dict.fromkeys(plan.metric for plan in plans):
        own = [plan for plan in plans if plan.metric == name]
        counts = [str(plan.repeats) if plan.repeats else "> 1000" for plan in own]
        table.add_row(label_of(name), f"{100 * own[0].deviation:.2g} %", *counts)
    return Folding(table)
