"""The competitive ratio of ISJL as arXiv 2608.02244 states it, beside the worst cases of a full search."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations_with_replacement
from typing import Any

from harness.core.errors import UserError
from harness.reproduce.fair_optimum import fair_optimum
from policies.offline.baselines import makespan
from policies.offline.isjl import isjl, isjl_best, isjl_paper

# Beyond these a search takes hours.
LARGEST_LENGTH, MOST_REQUESTS = 16, 6
SLOTS = (2, 3)


def competitive_ratio(gamma: float) -> float:
    """CR(γ) of eq. 10, γ = α/o_1 in (0, 1): falls from 1 to 3/4 at γ = 1/2 and rises to 1 again."""
    if not 0 < gamma < 1:
        raise ValueError(f"γ = {gamma}: CR is given for 0 < γ < 1")
    return (1 + gamma) / (1 + 2 * gamma) if gamma <= 0.5 else (2 - gamma) / (3 - 2 * gamma)


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The least ratio of the fair optimum to a form's makespan, and where: lengths, slots, both makespans."""

    gamma: float
    stated: float
    alpha: int
    form: str
    ratio: float
    lengths: tuple[int, ...]
    slots: int
    steps: int
    optimum: int


def worst_cases(longest: int, requests: int) -> list[WorstCase]:
    """For α = 1 … o_1 − 1 and each form the worst of all instances with o_1 = `longest` and 2 … `requests` requests.

    UserError where the search would take too long. The paper's bound is for lengths without a grain; whole
    numbers of steps may lie below it.
    """
    if not (2 <= longest <= LARGEST_LENGTH and 2 <= requests <= MOST_REQUESTS):
        raise UserError(
            f"--longest {longest} --requests {requests}: the search takes a longest of 2 to {LARGEST_LENGTH} "
            f"and 2 to {MOST_REQUESTS} requests"
        )
    return [worst for alpha in range(1, longest) for worst in _worst_at(longest, requests, alpha)]


def _worst_at(longest: int, requests: int, alpha: int) -> Iterator[WorstCase]:
    worst: dict[str, WorstCase] = {}
    gamma = alpha / longest
    for lengths in _instances(longest, requests):
        for slots in SLOTS:
            steps = {
                "isjl": makespan(lengths, isjl(lengths, slots, alpha)),
                "isjl-best": makespan(lengths, isjl_best(lengths, slots, alpha)),
                "isjl-paper, hold": makespan(lengths, isjl_paper(lengths, slots, alpha, hold=True)),
            }
            optimum = fair_optimum(lengths, slots, alpha)
            for form, taken in steps.items():
                if form not in worst or optimum / taken < worst[form].ratio:
                    stated, ratio = competitive_ratio(gamma), optimum / taken
                    worst[form] = WorstCase(gamma, stated, alpha, form, ratio, lengths, slots, taken, optimum)
    yield from worst.values()


def _instances(longest: int, requests: int) -> Iterator[tuple[int, ...]]:
    for n in range(2, requests + 1):
        for others in combinations_with_replacement(range(longest, 0, -1), n - 1):
            yield (longest, *others)


def curve(points: int = 200) -> list[dict[str, float]]:
    """CR at `points` − 1 equidistant γ in (0, 1), for drawing."""
    return [{"gamma": i / points, "cr": competitive_ratio(i / points)} for i in range(1, points)]


def ratio_document(cases: Sequence[WorstCase]) -> dict[str, Any]:
    """The curve and the worst cases as JSON values."""
    return {"source": "arXiv 2608.02244, eq. 10", "curve": curve(), "worst": [asdict(case) for case in cases]}


def ratio_csv(cases: Sequence[WorstCase]) -> str:
    """The worst cases, a row each."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("gamma", "cr_stated", "form", "ratio_worst", "alpha", "lengths", "slots", "steps", "optimum"))
    for case in cases:
        lengths = " ".join(map(str, case.lengths))
        writer.writerow(
            (case.gamma, case.stated, case.form, case.ratio, case.alpha, lengths, case.slots, case.steps, case.optimum)
        )
    return out.getvalue()


def ratio_text(cases: Sequence[WorstCase], longest: int, requests: int) -> str:
    """A line a γ: CR as stated and the worst ratio of each form, with the instance of `isjl`."""
    forms = list(dict.fromkeys(case.form for case in cases))
    lines = [
        f"fair optimum over makespan, the worst of all with o_1 = {longest}, 2 to {requests} requests, B 2 and 3",
        f"{'γ':>6}{'CR(γ)':>8}" + "".join(f"{form:>18}" for form in forms) + "   isjl's worst instance",
    ]
    for alpha in range(1, longest):
        by_form = {case.form: case for case in cases if case.alpha == alpha}
        case = by_form["isjl"]
        ratios = "".join(f"{by_form[form].ratio:>18.3f}" for form in forms)
        instance = f"o = {case.lengths}, B = {case.slots}, α = {alpha}: {case.steps} steps, optimum {case.optimum}"
        lines.append(f"{case.gamma:>6.3f}{case.stated:>8.3f}{ratios}   {instance}")
    return "\n".join(lines)
