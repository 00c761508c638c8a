"""How pages write numbers, and what people call what a spec has in a form of its own."""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.core.runspec import RunSpec
from harness.core.text import percent
from harness.report.sentences import label_of

# Forms of a load that everybody reads at once; any other stands as it was given.
_LOADS: tuple[tuple[str, Callable[[str], str]], ...] = (
    (r"closed:concurrency=(\d+)", lambda n: f"{int(n):,} in flight"),
    (r"closed-phases:concurrency=([\d/]+)(?:,.*)?", lambda n: f"{n.replace('/', ' → ')} in flight"),
    (r"poisson:rate=([\d.]+)", lambda n: f"Poisson, {float(n):g} req/s"),
    (r"constant:rate=([\d.]+)", lambda n: f"constant, {float(n):g} req/s"),
)


def is_own_profile(spec: RunSpec) -> bool:
    """Whether a run's GPU has a profile of somebody's own, which is no part of the project: nothing reads it here."""
    return bool(spec.profile) or spec.gpu.endswith(".toml")


def load_words(arrival: str) -> str:
    """How requests arrive, in words where there are some."""
    for form, words in _LOADS:
        if match := re.fullmatch(form, arrival):
            return words(match[1])
    return arrival


def rate_words(name: str) -> str:
    """What a page calls a rate: `steady output tok/s`."""
    return f"{'steady ' if '_steady' in name else ''}{label_of(name)}"


def number(value: float | None, digits: int = 4) -> str:
    """A number for eyes: grouped thousands, four digits, a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def seconds(value: float | None) -> str:
    """A time with its unit: milliseconds under one second."""
    if value is None:
        return "–"
    return f"{number(value * 1e3, 3)} ms" if abs(value) < 1 else f"{number(value, 3)} s"


def change(ratio: float | None) -> str:
    """A ratio as a change in percent, as a factor beyond ten."""
    if ratio is None:
        return "–"
    if ratio > 10:
        return f"×{ratio:,.3g}"
    # Of less nobody could tell, and four digits of it would look like much.
    if abs(ratio - 1) < 5e-5:
        return "0.0 %"
    return f"{percent(ratio)} %"


def exact(value: float | None) -> str:
    """A number as an input holds it: the shortest form that reads back the same, nothing where there is none."""
    return "" if value is None else repr(value)
