"""What a board comes to, in a few words for a cell and in sentences for its page; words are the comparison's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.text import spelled
from harness.measure.repeats import dunnett
from harness.measure.statistics import CONFIDENCE
from harness.measure.verdict import worst
from harness.pages.boards import Arm, Board, Change
from harness.pages.facets import ranked_arms
from harness.pages.numbers import change as change_text
from harness.pages.numbers import number, rate_words
from harness.report.sentences import label_of
from harness.report.support import DISAGREE
from harness.report.words import BETTER, NOT_TESTED, WORSE

# What an answer says of the baseline: it is beaten, it is to be kept, nobody can tell, nothing was compared.
GAIN, KEEP, UNSURE, NOTHING = "gain", "keep", "unsure", "nothing"
# What a gain's price is told in, with the words for it.
_PRICES = ("ttft_s", "tpot_s")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a board says of its baseline: `tone` is one of the four above, `arms` those that it is about.

    `arms` are the best ones that are identical (gain), or what the models disagree on (unsure); `tried` counts the
    arms that were held against the baseline, `dearest` is the one that loses most. `beyond` is what gains most with a
    knowledge of lengths that nobody has in production. `chance` is the p-value of the largest of several gains, which
    knows how many were tried (Dunnett): where it is too large, the baseline is kept.
    """

    board: Board
    metric: str
    tone: str
    arms: tuple[Arm, ...]
    tried: int
    dearest: Arm | None
    beyond: Arm | None
    chance: float | None = None

    @property
    def change(self) -> Change | None:
        """The change of the first of `arms` against the baseline."""
        return self.arms[0].changes[self.metric] if self.arms else None

    @property
    def short(self) -> str:
        """A few words: `eb +59.1 %`, `keep v1`, `models disagree`, `not tested`, `one policy`."""
        board = self.board
        if self.tone == GAIN:
            return f"{_names(self.arms)} {_changed(self.change)}"
        if self.tone == KEEP:
            return f"keep {board.baseline}"
        if self.tone == UNSURE:
            return DISAGREE
        return _why_nothing(board)[0]

    @property
    def trust(self) -> str:
        """How far it is to be believed: the models' word of a simulated gain, else the kind of the numbers."""
        return (self.change.support_word if self.change else "") or self.board.kind

    @property
    def level(self) -> str:
        """The worst verdict among the arms that it is about and the baseline."""
        about = [arm.level for arm in (*self.arms, self.board.reference)]
        return worst(about)

    @property
    def sentences(self) -> list[str]:
        """The answer in sentences, the first of them what to do."""
        if self.tone == NOTHING:
            short, why = _why_nothing(self.board)
            return [why, *([] if short.endswith("INVALID") else _unranked(self.board))]
        base = str(self.board.baseline)
        lines = [self._what_to_do(base)]
        if self.tone == GAIN:
            lines += self._its_price()
        elif self.dearest is not None and (lost := self.dearest.changes[self.metric]).word == WORSE:
            lines.append(
                f"{self.dearest.label} costs most: {_changed(lost)} {rate_words(self.metric)}{self._values()}."
            )
        lines += _unranked(self.board)
        if self.beyond is not None:
            gained = _changed(self.beyond.changes[self.metric])
            lines.append(f"{self.beyond.label} gains {gained}, but knew every output length beforehand.")
        return lines

    def _what_to_do(self, base: str) -> str:
        rate = rate_words(self.metric)
        if self.tone == KEEP and self.chance is not None:
            gained = f"{_names(self.arms)} gained most of {self.tried} that were tried ({_changed(self.change)} {rate})"
            return f"Keep {base}: {gained}, which may be chance (p {_p(self.chance)} for the best of so many)."
        if self.tone == KEEP:
            others = f"none of {self.tried} others was" if self.tried > 1 else "the other policy was not"
            return f"Keep {base}: {others} shown to be better in {rate}."
        if self.tone == UNSURE:
            label, told = self.arms[0].label, self.change.support if self.change else ""
            return f"The models of step costs disagree on {label} ({told}): keep {base} until it is measured."
        change = self.change
        assert change is not None
        interval = ""
        if change.low is not None and change.high is not None:
            interval = f" (95 % interval {change_text(change.low)} … {change_text(change.high)})"
        best = f", the best of {self.tried} that were tried" if self.tried > 1 else ""
        if self.chance is not None:
            best += f" (p {_p(self.chance)} for the best of so many)"
        return f"Take {_names(self.arms)}: {_changed(change)} {rate} against {base}{interval}{best}."

    def _its_price(self) -> list[str]:
        arm = self.arms[0]
        named = [name for name in arm.headline if name.startswith(_PRICES)] or _PRICES
        told = [
            f"{label_of(metric)} {_changed(one)} ({one.word})"
            for metric in named
            if (one := arm.changes.get(metric)) is not None and one.ratio is not None
        ]
        lines = [f"With it: {', '.join(told)}."] if told else []
        if self.change and self.change.support:
            lines.append(f"By model of step costs: {self.change.support}.")
        return lines

    def _values(self) -> str:
        """What the dearest arm's rate was, and the baseline's."""
        base, lost = (arm.values.get(self.metric) for arm in (self.board.reference, self.dearest) if arm is not None)
        if base is None or lost is None:
            return ""
        unit = "requests/s within the limits" if self.metric.startswith("goodput") else rate_words(self.metric)
        return f" ({number(base.mean, 3)} → {number(lost.mean, 3)} {unit})"


def answer_of(board: Board) -> Answer:
    """The answer of a board in the rate that decides on it."""
    metric = board.rate
    arms = ranked_arms(board)
    # One repeat's gain is no match for the mean of three: those with the most repeats are held against each other.
    most = max((len(arm.runs) for arm in arms if arm is not board.reference), default=0)
    tried = [arm for arm in arms if len(arm.runs) == most and _ratio(arm, metric) is not None]
    deployable = [arm for arm in tried if arm.first.run.spec.lengths != "oracle"]
    best = _most([arm for arm in deployable if arm.changes[metric].word == BETTER], metric)
    doubtful = _most([arm for arm in deployable if arm.changes[metric].word == DISAGREE], metric)
    beyond = _most([arm for arm in tried if arm not in deployable and arm.changes[metric].word == BETTER], metric)
    dearest = min(deployable, key=lambda arm: arm.changes[metric].ratio or 0.0, default=None)
    tone = KEEP
    about: tuple[Arm, ...] = ()
    if board.reference.level == "INVALID" or not tried or all(arm.changes[metric].word == NOT_TESTED for arm in tried):
        tone, beyond = NOTHING, None
    elif best is not None:
        tone, about = GAIN, tuple(arm for arm in deployable if is_identical(arm, best))
    elif doubtful is not None and (_ratio(doubtful, metric) or 0.0) > 1:
        tone, about = UNSURE, (doubtful,)
    chance = _chance(board, metric, best, tried) if tone == GAIN and best is not None else None
    if chance is not None and chance >= 1 - CONFIDENCE:
        tone = KEEP
    return Answer(board, metric, tone, about, len(tried), dearest, beyond, chance)


def _chance(board: Board, metric: str, best: Arm, tried: Sequence[Arm]) -> float | None:
    """The p-value of the best of several gains; None of one alone, or without repeats."""
    base = _by_repeat(board.reference, metric)
    tables = [_by_repeat(arm, metric) for arm in tried]
    common = sorted(set(base).intersection(*tables))
    if len(tried) < 2 or len(common) < 2:
        return None
    logs = [[math.log(table[repeat]) for repeat in common] for table in (base, *tables)]
    place = next(i for i, arm in enumerate(tried) if arm is best)
    return dunnett(logs[0], logs[1:])[place]


def _by_repeat(arm: Arm, metric: str) -> dict[int, float]:
    """A rate by the repeat's number, where it is above 0."""
    values = {run.spec.repeat: run.summary["metrics"].get(metric, {}).get("value") for run in (p.run for p in arm.runs)}
    return {repeat: value for repeat, value in values.items() if value}


def _p(value: float) -> str:
    return f"= {value:.2g}" if value >= 1e-4 else "< 0.0001"


def is_identical(a: Arm, b: Arm) -> bool:
    """Whether two arms did the very same: every number is equal."""
    return bool(a.values) and a.values == b.values


def twins_of(board: Board) -> dict[str, str]:
    """By an arm's id the label of the first arm that did the very same, the baseline before all others."""
    leaders: list[Arm] = []
    found = {}
    for arm in sorted(ranked_arms(board), key=lambda arm: arm.policy != board.baseline):
        leader = next((other for other in leaders if is_identical(arm, other)), None)
        if leader is None:
            leaders.append(arm)
        else:
            found[arm.first.id] = leader.label
    return found


def ranks_of(board: Board) -> dict[str, int]:
    """Each ranked arm's place by its id: one behind those that are shown to be above it, so that arms share places.

    Shown is what the intervals of the changes against the baseline keep apart; without intervals only arms that did
    the very same share a place.
    """
    ranks: dict[str, int] = {}
    arms = ranked_arms(board)
    last = 1
    for at, arm in enumerate(arms):
        last = max(last, 1 + sum(_is_above(board, other, arm) for other in arms[:at]))
        ranks[arm.first.id] = last
    return ranks


def _is_above(board: Board, first: Arm, second: Arm) -> bool:
    """Whether an arm that stands before another in the ranking is shown to be above it."""
    low, high = _interval(board, first)[0], _interval(board, second)[1]
    if low is None or high is None:
        return not is_identical(first, second)
    return low > high


def _interval(board: Board, arm: Arm) -> tuple[float | None, float | None]:
    """The interval of the arm's change in the rate that decides; of the baseline no change."""
    if arm is board.reference and arm.policy == board.baseline:
        return 1.0, 1.0
    change = arm.changes.get(board.rate)
    return (change.low, change.high) if change else (None, None)


def _ratio(arm: Arm, metric: str) -> float | None:
    return arm.changes[metric].ratio if metric in arm.changes else None


def _most(arms: Sequence[Arm], metric: str) -> Arm | None:
    """The arm with the largest ratio."""
    return max(arms, key=lambda arm: arm.changes[metric].ratio or 0.0, default=None)


def _names(arms: Sequence[Arm]) -> str:
    return " or ".join(arm.label for arm in arms)


def _changed(change: Change | None) -> str:
    return change_text(change.ratio if change else None)


def _why_nothing(board: Board) -> tuple[str, str]:
    """Why a board has no answer: in two words, and in a sentence."""
    arms = ranked_arms(board)
    if board.kind == "reported":
        return "reported", "Nobody ran these here: they are figures as they were published."
    if not arms:
        return "INVALID", f"There is no answer: every run here is INVALID{_why_invalid(board.arms[0])}."
    if board.reference.level == "INVALID" and board.reference.policy == board.baseline:
        held = f"{board.baseline}, which the others are held against, is INVALID{_why_invalid(board.reference)}"
        return f"{board.baseline} INVALID", f"There is no answer: {held}."
    if len(arms) == 1:
        return "one policy", f"There is nothing to compare: only {arms[0].label} ran."
    if board.baseline is None:
        return (
            "no baseline",
            "There is no answer: no baseline (v1, stock or v0) ran here.",
        )
    if all(arm.refusal for arm in arms if arm is not board.reference):
        return (
            "not compared",
            "There is no answer: the arms cannot be held against each other, for the reasons below.",
        )
    return NOT_TESTED, "There is no answer yet: too little ran to test anything. More repeats would."


def _why_invalid(arm: Arm) -> str:
    """In brackets, the first reason of an arm's first INVALID repeat."""
    broken = next((one.run for one in arm.runs if one.run.level == "INVALID"), arm.first.run)
    if broken.is_overloaded:
        return " (the rate is above its capacity, so that latencies depend on how long the run is)"
    reasons = broken.manifest.get("verdict", {}).get("reasons") or ["no check was made"]
    return f" ({spelled(str(reasons[0]).removeprefix('INVALID: '), 160)})"


def _unranked(board: Board) -> list[str]:
    """A sentence on the policies of which no repeat counts, and one on those that lost repeats; none without any."""
    ranked = {arm.label for arm in ranked_arms(board)}
    lost = [arm for arm in board.arms if arm.level == "INVALID" and board.kind != "reported"]
    gone = [f"{arm.label}{_why_invalid(arm)}" for arm in lost if arm.label not in ranked]
    part = [f"{len(arm.runs)} of {arm.label}{_why_invalid(arm)}" for arm in lost if arm.label in ranked]
    lines = [f"Ranked nowhere, since INVALID: {', '.join(gone)}."] if gone else []
    return [*lines, f"Repeats that are INVALID and count for nothing: {', '.join(part)}."] if part else lines
