"""What fairness costs and what throughput pays, with α as the path, at prices that the reader sets."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.measure.fairness import Fairness
from harness.measure.profit import (
    PAPER,
    Account,
    BreakEven,
    Prices,
    TokenStep,
    alpha_on_path,
    break_even,
    profit_money,
    profit_tokenstep,
    rate,
)
from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import ranked_arms
from harness.pages.numbers import is_own_profile
from harness.profiles.files import GPU_HOUR, TOKEN_PRICES
from harness.published.detail import GAPS, fairness_of_sums
from harness.report.prices import MILLION, profile_prices

# What gaps are held against unless the reader says otherwise, tokens: one of GAPS.
HELD_AGAINST = 100
BASELINE = "ljf"
HOUR = 3600.0
NEEDS_PRICES = "needs a price of prompt tokens, of output tokens and of a GPU hour"
# What draws at once where nobody told a price: a million tokens and an hour, in any currency.
EXAMPLES = {"in": 0.1, "out": 0.4, "hour": 2.0}
EXAMPLE_SOURCE = "an example, which nobody told: enter yours"
PAPER_SOURCE = "the constants behind the tables of arXiv 2608.02244, as far as these give them away (it prints none)"


@dataclass(frozen=True, slots=True)
class PriceInput:
    """A price that the reader can change: its name in the URL, its default and whose that is."""

    name: str
    label: str
    unit: str
    default: float
    source: str
    highest: float | None = None  # of the slider, None where there is none


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """An arm as the page's script sees it, too: exact sums over its repeats.

    `over` counts the busy steps with a gap beyond each of GAPS; empty without a step log.
    """

    arm: Arm
    account: Account
    gap_sum: int
    over: tuple[int, ...]


def points_of(board: Board) -> list[FrontierPoint]:
    """The arms that may stand in a curve: first the path of α from LJF's 0 up, then those without one."""
    points = []
    for arm in ranked_arms(board):
        sums = [published.detail["sums"] for published in arm.runs]
        if all(sums):
            points.append(_point(arm, sums))
    return sorted(
        _of_one_knowledge(points), key=lambda point: (point.account.alpha is None, point.account.alpha or 0.0)
    )


def _of_one_knowledge(points: list[FrontierPoint]) -> list[FrontierPoint]:
    """The path of α holds arms that knew the same of output lengths, as most of them do; the others stand alone."""
    known = Counter(point.arm.first.run.spec.lengths for point in points if point.account.alpha is not None)
    if len(known) < 2:
        return points
    ((usual, _),) = known.most_common(1)
    return [
        point
        if point.arm.first.run.spec.lengths == usual
        else dataclasses.replace(point, account=dataclasses.replace(point.account, alpha=None))
        for point in points
    ]


def _point(arm: Arm, sums: list[dict[str, Any]]) -> FrontierPoint:
    """An arm with the sums of its repeats added up."""
    fairness = fairness_of_sums(sums)
    works = [repeat["fairness"] for repeat in sums] if fairness is not None else []
    account = Account(
        policy=arm.policy,
        alpha=alpha_on_path(arm.policy),
        runs=len(sums),
        prompt_tokens=sum(repeat["prompt_tokens"] for repeat in sums),
        output_tokens=sum(repeat["output_tokens"] for repeat in sums),
        seconds=sum(repeat["seconds"] for repeat in sums),
        fairness=fairness,
    )
    over = tuple(map(sum, zip(*(work["over"] for work in works), strict=True)))
    return FrontierPoint(arm, account, sum(work["gap_sum"] for work in works), over)


def script_data(points: Sequence[FrontierPoint]) -> dict[str, Any]:
    """What the script computes from; the same sums that the Python formulas take."""
    return {
        "gaps": GAPS,
        "baseline": BASELINE,
        "needs_prices": NEEDS_PRICES,
        "arms": [
            {
                "id": point.arm.first.id,
                "label": point.arm.label,
                "policy": point.account.policy,
                "alpha": point.account.alpha,
                "runs": point.account.runs,
                "prompt_tokens": point.account.prompt_tokens,
                "output_tokens": point.account.output_tokens,
                "seconds": point.account.seconds,
                "work": _work_document(point),
            }
            for point in points
        ],
        # Which arms each series holds, by their place above: the same in all charts of a form.
        "series": {
            form: [[points.index(point) for point in line] for line in lines_of(points)]
            for form, lines_of in _FORMS.items()
        },
    }


def _work_document(point: FrontierPoint) -> dict[str, Any] | None:
    work = point.account.fairness
    if work is None:
        return None
    return {
        "tokens": work.tokens,
        "held": work.held,
        "working": work.working,
        "busy": work.busy,
        "externality": work.externality,
        "over": point.over,
    }


def inputs_of(board: Board, points: Sequence[FrontierPoint]) -> list[PriceInput]:
    """The prices with their defaults and where these come from; where nobody told a price an example, which says so."""
    spec = board.spec
    prices = profile_prices(None if is_own_profile(spec) else spec.gpu, spec.model, spec.gpus)
    paying = [end.c for _, end in break_evens(points, PAPER.tau) if end is not None and end.c is not None]
    highest = 2 * max([PAPER.c, *paying])

    def money(name: str, key: str, label: str, unit: str, scale: float, slider: float) -> PriceInput:
        price = prices.get(key)
        if price is None:
            return PriceInput(name, label, unit, EXAMPLES[name], EXAMPLE_SOURCE, slider)
        source = f"{price.source}, {price.date}"
        return PriceInput(name, label, f"{price.currency} {unit}", price.value * scale, source, slider)

    return [
        money("in", TOKEN_PRICES[0], "Prompt tokens", "a million", MILLION, 10),
        money("out", TOKEN_PRICES[1], "Output tokens", "a million", MILLION, 30),
        money("hour", GPU_HOUR, "GPU", "an hour", 1, 20),
        PriceInput("rho0", "ρ0", "a token produced", PAPER.rho0, PAPER_SOURCE),
        PriceInput("tau", "τ", "a token held for a step", PAPER.tau, PAPER_SOURCE),
        PriceInput("c", "c", "a step with work", PAPER.c, PAPER_SOURCE, float(f"{highest:.1g}")),
    ]


def break_evens(points: Sequence[FrontierPoint], tau: float) -> list[tuple[FrontierPoint, BreakEven | None]]:
    """Every arm but the baseline with its break-even, None where the two did other work; empty without a baseline."""
    baseline = next((point.account for point in points if point.account.policy == BASELINE), None)
    if baseline is None:
        return []
    others = [point for point in points if point.account is not baseline]
    return [(point, break_even(point.account, baseline, tau)) for point in others]


Line = list[FrontierPoint]


def _step_lines(points: Sequence[FrontierPoint]) -> list[Line]:
    return _path_and_others([point for point in points if point.account.fairness and point.account.fairness.busy])


def _money_lines(points: Sequence[FrontierPoint]) -> list[Line]:
    return _path_and_others([point for point in points if point.account.seconds])


def _path_and_others(points: Sequence[FrontierPoint]) -> list[Line]:
    """The series of a chart: the path of α, then every other arm alone."""
    path = [point for point in points if point.account.alpha is not None]
    return ([path] if path else []) + [[point] for point in points if point.account.alpha is None]


# The series of each form of profit.
_FORMS: dict[str, Callable[[Sequence[FrontierPoint]], list[Line]]] = {"steps": _step_lines, "money": _money_lines}


def charts_of(board: Board, points: Sequence[FrontierPoint], inputs: Sequence[PriceInput]) -> list[Chart]:
    """Profit and violations over throughput in the token-step form, and profit in money where all prices are known."""
    defaults = {price.name: price.default for price in inputs}
    constants = TokenStep(defaults["rho0"], defaults["tau"], defaults["c"])
    prices = Prices(defaults["in"] / MILLION, defaults["out"] / MILLION, defaults["hour"], "")
    place = GAPS.index(HELD_AGAINST)
    kind = board.kind_words

    def step_profit(point: FrontierPoint, work: Fairness) -> float:
        return profit_tokenstep(work, constants) / point.account.runs

    def violations(point: FrontierPoint, work: Fairness) -> float:
        return 100 * point.over[place] / work.busy

    charts = [
        _chart(
            "tokenstep",
            "Token-step profit over tokens a step",
            _TOKENS_A_STEP,
            "Π of a run, units of its own",
            kind,
            _over_tokens_a_step(points, step_profit),
        ),
        _chart(
            "violations",
            "Violations over tokens a step",
            _TOKENS_A_STEP,
            "% of busy steps with gap > α",
            f"{kind}; held against α = {HELD_AGAINST} tokens",
            _over_tokens_a_step(points, violations),
        ),
        _chart(
            "money",
            "Profit in money over throughput",
            "output tokens per second",
            "profit of a GPU hour, in the prices’ currency",
            kind,
            [[_in_money(point, prices) for point in line] for line in _money_lines(points)],
        ),
    ]
    return [chart for chart in charts if chart.series]


_TOKENS_A_STEP = "output tokens a step with work"

# A point with its place on a chart.
Placed = tuple[FrontierPoint, float, float]


def _over_tokens_a_step(
    points: Sequence[FrontierPoint], y: Callable[[FrontierPoint, Fairness], float]
) -> list[list[Placed]]:
    """The lines of the token-step form with tokens a step as x."""
    return [
        [
            (point, rate(point.account.fairness), y(point, point.account.fairness))
            for point in line
            if point.account.fairness is not None
        ]
        for line in _step_lines(points)
    ]


def _in_money(point: FrontierPoint, prices: Prices) -> Placed:
    account = point.account
    profit = profit_money(account, prices) / (account.seconds / HOUR)
    return point, account.output_tokens / account.seconds, profit


def _chart(name: str, title: str, x_title: str, y_title: str, note: str, lines: list[list[Placed]]) -> Chart:
    series = []
    rows: list[tuple[Any, ...]] = []
    for style, line in enumerate(lines):
        first = line[0][0]
        is_path = first.account.alpha is not None
        label = "α as the path (LJF is α = 0)" if is_path else first.arm.label
        text = [f"α = {point.account.alpha:g}" if is_path else label for point, _, _ in line]
        mode = "lines+markers" if is_path else "markers"
        xs, ys = [x for _, x, _ in line], [y for _, _, y in line]
        series.append(Series(label, xs, ys, style, mode, text, labels=text if is_path else None))
        rows += [(point.arm.label, point.account.alpha, x, y) for point, x, y in line]
    return Chart(name, title, x_title, y_title, tuple(series), ("policy", "α", x_title, y_title), tuple(rows), note)
