"""The one place that decides what may be said of two arms, metric by metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.core.errors import UserError
from harness.core.text import nearest, one_line
from harness.measure.facts import metric_names
from harness.measure.metrics import METRICS, PROFITS
from harness.measure.repeats import Shift, holm, repeats_for
from harness.measure.statistics import CONFIDENCE
from harness.report.support import DISAGREE, Support

BETTER, WORSE, NO_DIFFERENCE = "better", "worse", "no difference shown"
# One repeat, or none that is independent: nothing tells how runs spread, so nothing was tested.
NOT_TESTED = "not tested"
SET_BY_ARRIVALS = "set by the arrivals"
ABOVE_CAPACITY = "not compared: above capacity"
FEW_EPISODES = "too few episodes"

HEADLINE, EXPLORATORY = "headline", "exploratory"

# What a row is called for whom nobody named one: the rate, then latencies by their mean.
_RATES = ("goodput_steady", "goodput", "output_throughput_steady", "output_throughput")
_LATENCIES = (("ttft_s_steady", "ttft_s"), ("tpot_s_steady", "tpot_s"))
MOST_HEADLINES = 3
# Shares and counts are compared by difference: their zeros are values.
_SHARES = ("violation_share",)
_COUNTS = ("gap_max", "makespan_steps", "busy_steps")
# What somebody would want to show next, of what could not be shown yet.
_LADDER = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)

REPEATS, REQUESTS = "repeats", "requests"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user says of words: the rows named beforehand (else the usual ones), and what is equal (0.02).

    `share` of one chance in twenty may be spent: less where somebody looked before all repeats were there.
    """

    headline: tuple[str, ...] = ()
    equivalent: float | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Difference:
    """B - A of a metric that is compared by difference, with its 95 % interval, in the metric's unit."""

    value: float
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, float | None]:
        """The difference as the JSON document has it."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """One metric in both arms: values, B over A with its 95 % interval and p-value, and the word for B.

    The interval is `over` repeats or, of a single pair, over the requests within it; such a row has no p-value and no
    word. `difference` stands in place of the interval of the ratio for shares, counts and whatever is 0 in an arm.
    `role` is headline or exploratory, `of` how many rows of that role were tested, `p_family` a headline's p-value
    adjusted for the others (Holm). `shown_from` is the change that could have been shown: half the interval, as a share
    of A or in the unit of a difference; `plan` a smaller share and the repeats that would show it. `why` says what
    keeps a row from its word. `support` says whether the cost models of simulated arms agree, None where they were not
    asked. `values` are both arms' values, a pair a repeat.
    """

    metric: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    word: str
    support: Support | None = None
    role: str = EXPLORATORY
    of: int = 0
    p_family: float | None = None
    over: str | None = None
    difference: Difference | None = None
    shown_from: float | None = None
    plan: tuple[float, int] | None = None
    why: str | None = None
    values: tuple[tuple[float, float], ...] = ()

    @property
    def change(self) -> float | None:
        """The point value of the change: B over A less one, or the difference where there is no ratio."""
        if self.ratio is not None:
            return self.ratio - 1
        return self.difference.value if self.difference else None

    @property
    def is_identical(self) -> bool:
        """Whether every repeat has the same value in both arms."""
        return bool(self.values) and all(a == b for a, b in self.values)

    def to_dict(self) -> dict[str, Any]:
        """The metric as the JSON document has it."""
        keys = ("a", "b", "ratio", "low", "high", "p", "word", "unit", "role", "of", "p_family", "over", "shown_from")
        told = {key: getattr(self, key) for key in keys}
        told["difference"] = self.difference.to_dict() if self.difference else None
        told["plan"] = {"change": self.plan[0], "repeats": self.plan[1]} if self.plan else None
        told["why"] = self.why
        return told | {"support": self.support.to_dict()} if self.support else told


def read_headline(text: str) -> tuple[str, ...]:
    """`output_throughput,ttft_s.p99,tpot_s.p95` as names; UserError for what no comparison has, or more than three."""
    known = [name for name in metric_names() if name not in PROFITS]
    names = tuple(dict.fromkeys(part.strip().removesuffix(".mean") for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise UserError(f"--headline {one_line(name)[:40]}: no such metric{nearest(name, known)}")
    if not 0 < len(names) <= MOST_HEADLINES:
        raise UserError(
            f"--headline {one_line(text)[:80]}: name one to three metrics, such as output_throughput,ttft_s"
        )
    return names


def headline_of(names: Iterable[str], rules: Rules) -> tuple[str, ...]:
    """The rows whose words count: those named, else a rate, TTFT and TPOT, steady ones where both arms have them."""
    there = set(names)
    if rules.headline:
        # A closed loop's steady rows are what is meant by the plain names.
        steady = (steady_name(name) if steady_name(name) in there else name for name in rules.headline)
        return tuple(name for name in steady if name in there)
    rate = next((name for name in _RATES if name in there), None)
    latencies = [next((name for name in pair if name in there), None) for pair in _LATENCIES]
    return tuple(name for name in (rate, *latencies) if name is not None)


def steady_name(name: str) -> str:
    """The name of a metric's steady row: `ttft_s_steady.p99`."""
    base, dot, percent = name.partition(".")
    return f"{base}_steady{dot}{percent}"


def by_difference(name: str, values: Sequence[tuple[float, float]]) -> bool:
    """Whether a metric is compared by B - A: a share, a count, or one that is 0 somewhere."""
    return name.startswith((*_SHARES, *_COUNTS)) or any(a <= 0 or b <= 0 for a, b in values)


def row_over_repeats(
    name: str, values: Sequence[tuple[float, float]], shift: Shift, is_difference: bool, share: float = 1.0
) -> ComparedMetric:
    """A row without its word yet, from the shift of its values (of their logarithms where there is a ratio)."""
    a, b = _means(values)
    unit = METRICS[name.partition(".")[0]].unit
    same = all(a == b for a, b in values)
    half = 0.0 if same else min(shift.half(share), 300.0 if not is_difference else math.inf)
    if is_difference:
        difference = Difference(shift.mean, shift.mean - half, shift.mean + half)
        ratio = 1.0 if same else b / a if a > 0 else None
        low = high = 1.0 if same and a > 0 else None
        plan = None
    else:
        difference, ratio = None, math.exp(shift.mean)
        low, high = (math.exp(shift.mean + side * half) for side in (-1, 1))
        plan = _plan(half, shift, len(values))
        half = math.expm1(half)
    return ComparedMetric(
        name, unit, a, b, ratio, low, high, shift.p, "",
        over=REPEATS, difference=difference, shown_from=half, plan=plan, values=tuple(values),
    )  # fmt: skip


def _plan(half: float, shift: Shift, repeats: int) -> tuple[float, int] | None:
    """The next smaller share of a round number, and the repeats whose interval is no wider than that."""
    more = shift.freedom - (repeats - 1) if shift.pooled else 0
    finer = next((step for step in _LADDER if math.log1p(step) < half), None)
    count = repeats_for(math.log1p(finer), shift.deviation, more) if finer else None
    return (finer, count) if finer and count else None


def _means(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    a, b = (math.fsum(arm) / len(values) for arm in zip(*values, strict=True))
    return a, b


def decide(
    rows: Mapping[str, ComparedMetric],
    headline: Sequence[str],
    rules: Rules,
    withheld: Mapping[str, tuple[str, str]],
    supports: Mapping[str, Support],
) -> dict[str, ComparedMetric]:
    """Every row with its word.

    `withheld` has the word and the reason of rows that get no other (a thin tail only in place of a difference). Of the
    headline rows one in twenty tables has a false word (Holm), of the others one row in twenty: they are exploratory,
    and say of how many they are one.
    """
    tested = [name for name, row in rows.items() if row.over == REPEATS and name not in withheld]
    named = [name for name in headline if name in tested]
    family = dict(zip(named, holm([rows[name].p or 0.0 for name in named]), strict=True))
    rest = len(tested) - len(named)
    decided = {}
    for name, row in rows.items():
        is_headline = name in headline
        base, dot, _ = name.partition(".")
        told = replace(
            row,
            role=HEADLINE if is_headline else EXPLORATORY,
            of=len(named) if is_headline else rest,
            p_family=family.get(name),
            support=_support(base, supports) if not dot else None,
        )
        word, why = _word(told, family.get(name, row.p), rules)
        if name in withheld and (withheld[name][0] != FEW_EPISODES or word in (BETTER, WORSE)):
            word, why = withheld[name]
        decided[name] = replace(told, word=word, why=why)
    return decided


def _support(name: str, supports: Mapping[str, Support]) -> Support | None:
    """What the cost models make of a row; of a steady one what they make of the whole span, where more of them do.

    Older runs were held against the others over their whole span alone.
    """
    own, whole = supports.get(name), supports.get(name.removesuffix("_steady"))
    if own is None or whole is None:
        return own or whole
    return own if len(own.changes) >= len(whole.changes) else whole


def own_word(row: ComparedMetric) -> str:
    """The word of a row that somebody named by itself, as a condition does: its own p-value, no family's."""
    if row.word not in (BETTER, WORSE, NO_DIFFERENCE):
        return row.word
    return _word(row, row.p, Rules())[0]


def _word(row: ComparedMetric, p: float | None, rules: Rules) -> tuple[str, str | None]:
    """The row's word by this p-value, and why it has none."""
    better = METRICS[row.metric.partition(".")[0]].better
    if row.is_identical:
        return NO_DIFFERENCE, None
    if row.over != REPEATS or p is None:
        return NOT_TESTED, "one repeat says nothing of the spread between runs"
    shift = (
        math.log(row.ratio) if row.ratio and row.difference is None else row.difference.value if row.difference else 0
    )
    if p < rules.share * (1 - CONFIDENCE) and better != "neither":
        if row.support is not None and row.support.word == DISAGREE:
            return DISAGREE, None
        return (BETTER if (shift > 0) == (better == "higher") else WORSE), None
    if rules.equivalent is not None and _within(row, rules.equivalent):
        return f"equal within {100 * rules.equivalent:g} %", None
    return NO_DIFFERENCE, None


def _within(row: ComparedMetric, share: float) -> bool:
    """Whether the whole interval lies within plus or minus this share of A."""
    if row.difference is not None:
        ends = (row.difference.low, row.difference.high)
        return bool(row.a) and all(end is not None and abs(end) <= share * abs(row.a or 0) for end in ends)
    return row.low is not None and row.high is not None and row.low >= 1 - share and row.high <= 1 + share
