"""Whether a run's verdict, counts and summary are those that its tables give."""

from __future__ import annotations

import math
from typing import Any

from harness.measure.summary import count, summary_of
from harness.measure.verdict import Evidence, judge
from harness.pages.tables import Tables
from harness.runs import Run

# Sums of floats may differ in their last digits between processors.
TOLERANCE = 1e-9
REMEDY = "`bench recover` makes it again"


def differs(run: Run, tables: Tables, whole: bool = False) -> str | None:
    """One line on the first value that the tables give otherwise, None where all agree.

    Metrics and checks that the run does not know (it is older than they are) are a difference only where it is to be
    `whole`.
    """
    requests, steps, measured = tables.requests, tables.steps, tables.measured
    evidence = Evidence(run.spec, run.manifest, requests, steps, measured, run.path / "engine.log")
    verdict = judge(evidence, run.status, run.manifest.get("reason"))
    told = run.manifest.get("verdict")
    if not told or not run.summary:
        return f"has no {'summary.json' if told else 'verdict'}: {REMEDY}"
    for name in ("level", "reasons"):
        if told[name] != verdict[name]:
            return f"verdict.{name} is {told[name]}, the tables give {verdict[name]}: {REMEDY}"
    known = {one["name"]: one for one in verdict["checks"]}
    summary = summary_of(measured)
    found = (
        _first("counts", run.manifest.get("counts", {}), count(requests, steps))
        or next((why for one in told.get("checks", ()) if (why := _check(one, known))), None)
        or _first("summary", run.summary, summary)
    )
    if found is None and whole:
        lacking = [name for name in summary["metrics"] if name not in run.summary["metrics"]]
        lacking += [name for name in known if name not in {one["name"] for one in told.get("checks", ())}]
        found = f"lacks {', '.join(lacking[:4])}, which came later" if lacking else None
    return found and f"{found}: {REMEDY}"


def _check(told: dict[str, Any], known: dict[str, dict[str, Any]]) -> str | None:
    name = told.get("name")
    if name not in known:
        return f"verdict.checks has {str(name)[:40]!r}, which is no check"
    return _first(f"verdict.checks.{name}", told, known[name])


def _first(key: str, told: Any, found: Any) -> str | None:
    """The first place where what is told differs from what was found."""
    if isinstance(told, dict) and isinstance(found, dict):
        for name, value in told.items():
            if name not in found:
                return f"{key}.{name} is told, the tables do not give it"
            if why := _first(f"{key}.{name}", value, found[name]):
                return why
        return None
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (told, found))
    same = math.isclose(told, found, rel_tol=TOLERANCE) if numbers else told == found
    return None if same else f"{key} is {str(told)[:60]}, the tables give {str(found)[:60]}"
