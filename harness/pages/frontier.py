"""The frontier pages: what fairness costs and what throughput pays, with α as the path, at the reader's own prices."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.measure.fairness import Fairness, alpha_of_policy
from harness.measure.profit import PAPER, Account, Prices, TokenStep, break_even, profit_money, profit_tokenstep, rate
from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series, script_json
from harness.pages.facets import facets, filters, has_sums, kind_words, pages_of, ranked
from harness.pages.numbers import is_own_profile
from harness.pages.render import Writer
from harness.pages.site import Site
from harness.profiles.figures import Price
from harness.profiles.files import GPU_HOUR, TOKEN_PRICES, load_gpu, load_model
from harness.published.detail import GAPS
from harness.report.prices import MILLION

# What gaps are held against unless the reader says otherwise, tokens: one of GAPS.
HELD_AGAINST = 100
BASELINE = "ljf"
HOUR = 3600.0
NEEDS_PRICES = "needs a price of prompt tokens, of output tokens and of a GPU hour"
PAPER_SOURCE = "the constants behind the tables of arXiv 2608.02244, as far as these give them away (it prints none)"


@dataclass(frozen=True, slots=True)
class Input:
    """A price that the reader can change: its name in the URL, its default (None: there is none) and whose that is."""

    name: str
    label: str
    unit: str
    default: float | None
    source: str
    highest: float | None = None  # of the slider, None where there is none


@dataclass(frozen=True, slots=True)
class Point:
    """An arm as the page's script sees it, too: exact sums over its repeats."""

    arm: Arm
    account: Account
    gap_sum: int
    over: tuple[int, ...]


def write(site: Site, writer: Writer) -> None:
    """frontier.html, which lists the boards, and frontier/BOARD.html."""
    found = [board for board in site.boards if has_sums(board)]
    paths = {board.id: sum(one.account.alpha is not None for one in points(board)) for board in found}
    # Boards with a path come first: they are what the page is about.
    found.sort(key=lambda board: paths[board.id] < 2)
    writer.page(
        "frontier.html",
        "frontier.html.j2",
        boards=[(board, facets(board), paths[board.id]) for board in found],
        filters=filters(found),
        kind_words=kind_words,
    )
    for board in found:
        some = points(board)
        given = inputs(board, some)
        writer.page(
            f"frontier/{board.id}.html",
            "frontier_board.html.j2",
            board=board,
            kind=kind_words(board),
            pages=pages_of(board),
            points=some,
            inputs=given,
            gaps=GAPS,
            held_against=HELD_AGAINST,
            charts=charts(board, some, given),
            ends=ends(some, PAPER.tau),
            baseline=BASELINE,
            data=script_json(data(some)),
        )


def points(board: Board) -> list[Point]:
    """The arms that may stand in a curve: first the path of α from LJF's 0 up, then those without one."""
    found = []
    for arm in ranked(board):
        sums = [entry.detail["sums"] for entry in arm.entries]
        if not all(sums):
            continue
        found.append(_point(arm, sums))
    found = _of_one_knowledge(found)
    return sorted(found, key=lambda one: (one.account.alpha is None, one.account.alpha or 0.0))


def _of_one_knowledge(found: list[Point]) -> list[Point]:
    """The path of α holds arms that knew the same of output lengths, as most of them do; the others stand alone."""
    known = Counter(one.arm.first.run.spec.lengths for one in found if one.account.alpha is not None)
    if len(known) < 2:
        return found
    ((usual, _),) = known.most_common(1)
    return [
        one
        if one.arm.first.run.spec.lengths == usual
        else dataclasses.replace(one, account=dataclasses.replace(one.account, alpha=None))
        for one in found
    ]


def _point(arm: Arm, sums: list[dict[str, Any]]) -> Point:
    works = [one["fairness"] for one in sums]
    told = all(works)

    def total(name: str) -> int:
        return sum(one[name] for one in works) if told else 0

    none = np.zeros(0, dtype=np.int64)
    account = Account(
        policy=arm.policy,
        alpha=0.0 if arm.policy == BASELINE else alpha_of_policy(arm.policy),
        runs=len(sums),
        prompt_tokens=sum(one["prompt_tokens"] for one in sums),
        output_tokens=sum(one["output_tokens"] for one in sums),
        seconds=sum(one["seconds"] for one in sums),
        fairness=None
        if not told
        else Fairness(
            steps=total("steps"),
            working=total("working"),
            busy=total("busy"),
            tokens=total("tokens"),
            charged=total("charged"),
            held=total("held"),
            charged_time=0,
            held_time=0,
            contradictions=0,
            gaps=none,
            counts=none,
            times=none,
        ),
    )
    over = tuple(sum(one["over"][i] for one in works) for i in range(len(GAPS))) if told else ()
    return Point(arm, account, total("gap_sum"), over)


def data(some: list[Point]) -> dict[str, Any]:
    """What the script computes from; the same sums that the Python formulas take."""
    return {
        "gaps": GAPS,
        "baseline": BASELINE,
        "needs_prices": NEEDS_PRICES,
        "arms": [
            {
                "id": one.arm.first.id,
                "label": one.arm.first.run.spec.label,
                "policy": one.account.policy,
                "alpha": one.account.alpha,
                "runs": one.account.runs,
                "prompt_tokens": one.account.prompt_tokens,
                "output_tokens": one.account.output_tokens,
                "seconds": one.account.seconds,
                "work": one.account.fairness
                and {
                    "tokens": one.account.fairness.tokens,
                    "held": one.account.fairness.held,
                    "working": one.account.fairness.working,
                    "busy": one.account.fairness.busy,
                    "externality": one.account.fairness.externality,
                    "over": one.over,
                },
            }
            for one in some
        ],
        # Which arms each series holds, by their place above: the same in all charts of a form.
        "series": {form: [[some.index(one) for one in line] for line in _lines(some, form)] for form in _FORMS},
    }


def inputs(board: Board, some: list[Point]) -> list[Input]:
    """The prices with their defaults and where these come from; a price that nobody told has no default."""
    spec = board.first.run.spec
    known = _profile_prices(spec)
    break_evens = [one.c for one in _break_evens(some, PAPER.tau).values() if one is not None and one.c is not None]
    highest = 2 * max([PAPER.c, *break_evens])

    def price(name: str, key: str, label: str, unit: str, scale: float, slider: float) -> Input:
        one = known.get(key)
        if one is None:
            return Input(name, label, unit, None, "the profiles have no price: enter yours", slider)
        return Input(name, f"{label}", f"{one.currency} {unit}", one.value * scale, f"{one.source}, {one.date}", slider)

    return [
        price("in", TOKEN_PRICES[0], "Prompt tokens", "a million", MILLION, 10),
        price("out", TOKEN_PRICES[1], "Output tokens", "a million", MILLION, 30),
        price("hour", GPU_HOUR, "GPU", "an hour", 1, 20),
        Input("rho0", "ρ0", "a token produced", PAPER.rho0, PAPER_SOURCE),
        Input("tau", "τ", "a token held for a step", PAPER.tau, PAPER_SOURCE),
        Input("c", "c", "a step with work", PAPER.c, PAPER_SOURCE, float(f"{highest:.1g}")),
    ]


def _profile_prices(spec: RunSpec) -> dict[str, Price]:
    known: dict[str, Price] = {}
    for load, name in ((load_gpu, spec.gpu), (load_model, spec.model)):
        if load is load_gpu and is_own_profile(spec):
            continue
        try:
            known |= load(name).prices
        except UserError:
            continue
    return known


def _break_evens(some: list[Point], tau: float) -> dict[int, Any]:
    """By an arm's place: its break-even against the baseline, None where the two did other work; empty without one."""
    base = next((one.account for one in some if one.account.policy == BASELINE), None)
    if base is None:
        return {}
    return {i: break_even(one.account, base, tau) for i, one in enumerate(some) if one.account is not base}


def ends(some: list[Point], tau: float) -> list[tuple[Point, Any]]:
    """Every arm but the baseline with its break-even."""
    return [(some[i], end) for i, end in _break_evens(some, tau).items()]


_FORMS = ("steps", "money")


def _lines(some: list[Point], form: str) -> list[list[Point]]:
    """The series of a form: the path of α, then every other arm alone."""
    there = [one for one in some if form == "money" or (one.account.fairness and one.account.fairness.busy)]
    there = [one for one in there if form != "money" or one.account.seconds]
    path = [one for one in there if one.account.alpha is not None]
    return ([path] if path else []) + [[one] for one in there if one.account.alpha is None]


def charts(board: Board, some: list[Point], given: list[Input]) -> list[Chart]:
    """Profit and violations over throughput in the token-step form, and profit in money where all prices are known."""
    values = {one.name: one.default for one in given}
    constants = TokenStep(values["rho0"] or 0.0, values["tau"] or 0.0, values["c"] or 0.0)
    place = GAPS.index(HELD_AGAINST)
    told = kind_words(board)
    tokens_a_step = "output tokens a step with work"
    found = [
        _chart(
            "profit",
            "Token-step profit over tokens a step",
            tokens_a_step,
            "Π of a run, units of its own",
            told,
            [
                [(one, rate(w), profit_tokenstep(w, constants) / one.account.runs) for one, w in _worked(line)]
                for line in _lines(some, "steps")
            ],
        ),
        _chart(
            "violations",
            "Violations over tokens a step",
            tokens_a_step,
            "% of busy steps with gap > α",
            f"{told}; held against α = {HELD_AGAINST} tokens",
            [
                [(one, rate(w), 100 * one.over[place] / w.busy) for one, w in _worked(line)]
                for line in _lines(some, "steps")
            ],
        ),
    ]
    prices = _prices(values)
    found.append(
        _chart(
            "money",
            "Profit in money over throughput",
            "output tokens per second",
            "profit of a GPU hour, in the prices’ currency",
            told if prices else f"{told}; {NEEDS_PRICES}",
            [
                [
                    (
                        one,
                        one.account.output_tokens / one.account.seconds,
                        profit_money(one.account, prices) / (one.account.seconds / HOUR) if prices else None,
                    )
                    for one in line
                ]
                for line in _lines(some, "money")
            ],
        )
    )
    return [one for one in found if one.series]


def _prices(values: dict[str, float | None]) -> Prices | None:
    prompt, output, hour = values["in"], values["out"], values["hour"]
    if prompt is None or output is None or hour is None:
        return None
    return Prices(prompt / MILLION, output / MILLION, hour, "")


def _worked(line: list[Point]) -> list[tuple[Point, Fairness]]:
    return [(one, one.account.fairness) for one in line if one.account.fairness is not None]


def _chart(
    name: str,
    title: str,
    x_title: str,
    y_title: str,
    note: str,
    lines: list[list[tuple[Point, float, float | None]]],
) -> Chart:
    series = []
    rows: list[tuple[Any, ...]] = []
    for style, line in enumerate(lines):
        is_path = line[0][0].account.alpha is not None
        label = "α as the path (LJF is α = 0)" if is_path else line[0][0].arm.first.run.spec.label
        text = [f"α = {one.account.alpha:g}" if is_path else label for one, _, _ in line]
        mode = "lines+markers+text" if is_path else "markers"
        extra = {"textposition": "top center", "textfont": {"color": "--text"}, "cliponaxis": False} if is_path else {}
        x, y = [x for _, x, _ in line], [y for _, _, y in line]
        series.append(Series(label, x, y, style, mode, text, extra=extra))
        rows += [(one.arm.first.run.spec.label, one.account.alpha, x, y) for one, x, y in line]
    return Chart(name, title, x_title, y_title, tuple(series), ("policy", "α", x_title, y_title), tuple(rows), note)
