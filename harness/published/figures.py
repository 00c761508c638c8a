"""What a build needs of a run: from its tables, or where these are made again only when wanted, as the run tells it."""

from __future__ import annotations

import math
from typing import Any

from harness.core.errors import UserError
from harness.measure.facts import Facts
from harness.measure.phases import phase_marks
from harness.measure.window import leaves_out_waves
from harness.published.bounds import unlike_spec
from harness.published.detail import CURVES, QUANTILES, STRETCHES, detail_of
from harness.published.detail import GAPS as ALPHAS
from harness.published.tables import RunTables
from harness.published.verify import REMEDY, TOLERANCE, first_difference
from harness.runs.run import Run
from harness.runs.tables import FIGURES
from harness.runs.thin import has_figures, told_figures

_TIMES = ("t_s", "prefill", "mixed", "decode", "running", "waiting", "gap", "ttft_s")
_NUMBERS = ("policy_k", "policy_n")
# Rates that were those of another window before the waves were left out: `bench verify` holds them against the tables.
_IN_THE_WINDOW = tuple(f"{name}_steady" for name in ("request_throughput", "output_throughput", "total_throughput"))
_SUMS = ("completed", "prompt_tokens", "output_tokens")
_OF_FAIRNESS = ("steps", "working", "busy", "tokens", "charged", "held", "gap_sum", "gap_max")


def examine(run: Run, tables: RunTables | None = None) -> dict[str, Any]:
    """All that a build needs of a run: what pages draw (`detail`), and the first `difference` of its summary from it.

    `tables` are the run's where somebody has read them. A run that keeps figures in place of its tables is held
    against those; `bench site check` holds them against the tables. A reported run has neither. UserError where a
    table is damaged, or the figures are.
    """
    if run.kind == "reported":
        return {"detail": {"curves": {}, "course": None, "sums": None, "marks": []}, "difference": None}
    if tables is None and has_figures(run.path):
        detail, facts = told_figures(run.path)
        if why := _fault_of(detail):
            raise UserError(f"{run.path / FIGURES}: {why}: take it from a copy, or make it again")
        return {"detail": detail, "difference": unlike_spec(run) or _unlike_summary(run, facts)}
    tables = tables or RunTables.of(run)
    return {"detail": detail_of(run, tables), "difference": first_difference(run, tables)}


def figures_of(run: Run, tables: RunTables) -> dict[str, Any]:
    """What stays of the tables of a run that keeps none, as JSON values."""
    facts = Facts.of(tables.requests, tables.measured, phase_marks(run.manifest))
    return {"detail": detail_of(run, tables), "facts": facts.to_dict()}


def other_figures(run: Run, tables: RunTables) -> str | None:
    """One line on the first of the run's own figures that its tables give otherwise, None where all agree."""
    detail, facts = told_figures(run.path)
    told, made = {"detail": detail, "facts": facts.to_dict()}, figures_of(run, tables)
    where = _difference("", told, made)
    return where and f"{FIGURES}: {where[1:]} is not what the tables give: `bench thin` makes it again"


def _difference(key: str, told: Any, made: Any) -> str | None:
    """The dotted name of the first place where two JSON values differ; floats may in their last digits."""
    if isinstance(told, dict) and isinstance(made, dict) and told.keys() == made.keys():
        return next((found for name in made if (found := _difference(f"{key}.{name}", told[name], made[name]))), None)
    if isinstance(told, list) and isinstance(made, list) and len(told) == len(made):
        pairs = enumerate(zip(told, made, strict=True))
        return next((found for at, pair in pairs if (found := _difference(f"{key}.{at}", *pair))), None)
    if _is_number(told) and _is_number(made):
        # Six digits are written of most, which may be rounded either way.
        return None if math.isclose(told, made, rel_tol=2e-6, abs_tol=TOLERANCE) else key
    return None if told == made else key


def _unlike_summary(run: Run, facts: Facts) -> str | None:
    """The first value of summary.json that the run's figures do not have."""
    if not run.manifest.get("verdict") or not run.summary:
        return f"has no {'summary.json' if run.manifest.get('verdict') else 'verdict'}: {REMEDY}"
    older = not leaves_out_waves(run.summary.get("window"))
    for name, values in run.summary.get("metrics", {}).items():
        if older and name in _IN_THE_WINDOW:
            continue
        for key, value in values.items():
            fact = name if key in ("value", "mean") else f"{name}.{key}"
            if fact not in facts.values:
                continue
            told = facts.values[fact]
            # No comparison has a percentile of 0.
            same = not value if told is None else value is not None and math.isclose(value, told, rel_tol=TOLERANCE)
            if not same:
                return f"summary.metrics.{name}.{key} is {value}, {FIGURES} has {told}: {REMEDY}"
    return None


def _fault_of(detail: Any) -> str | None:
    """Why no page can draw this, None where one can."""
    if not (isinstance(detail, dict) and set(detail) == {"curves", "course", "sums", "marks"}):
        return "it has no curves, course, sums and marks"
    curves, course, sums, marks = (detail[name] for name in ("curves", "course", "sums", "marks"))
    fits = isinstance(curves, dict) and all(
        name in CURVES and _is_column(curve, len(QUANTILES)) and None not in curve for name, curve in curves.items()
    )
    if not fits:
        return "its curves are none"
    if course is not None and not _is_course(course):
        return "its course is none"
    if sums is not None and not _are_sums(sums):
        return "its sums are none"
    fits = isinstance(marks, list) and all(
        isinstance(mark, dict) and isinstance(mark.get("name"), str) and _is_number(mark.get("t_s")) for mark in marks
    )
    return None if fits else "its marks are none"


def _is_course(course: Any) -> bool:
    if not isinstance(course, dict) or not set(_TIMES) <= course.keys() or None in (course["t_s"] or [None]):
        return False
    for name, values in course.items():
        if name in (*_TIMES, *_NUMBERS):
            fits = _is_column(values, STRETCHES)
        else:
            fits = isinstance(values, list) and len(values) == STRETCHES and not any(map(_is_group, values))
        if not fits or not (name in (*_TIMES, *_NUMBERS, "policy_mode") or name.startswith("own.")):
            return False
    return True


def _are_sums(sums: Any) -> bool:
    if not isinstance(sums, dict) or not all(_is_count(sums.get(name)) for name in _SUMS):
        return False
    fairness = sums.get("fairness")
    if not _is_number(sums.get("seconds")) or (fairness is not None and not isinstance(fairness, dict)):
        return False
    if fairness is None:
        return True
    over = fairness.get("over")
    fits = isinstance(over, list) and len(over) == len(ALPHAS) and all(map(_is_count, over))
    return fits and all(_is_count(fairness.get(name)) for name in _OF_FAIRNESS)


def _is_column(values: Any, length: int) -> bool:
    fits = isinstance(values, list) and len(values) == length
    return fits and all(value is None or _is_number(value) for value in values)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_group(value: Any) -> bool:
    return isinstance(value, list | dict)
