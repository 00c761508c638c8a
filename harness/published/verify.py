"""Whether a run's verdict, counts and summary are those that its tables give."""

from __future__ import annotations

import math
from typing import Any

from harness.measure.summary import count, summary_of
from harness.measure.verdict import Evidence, judge
from harness.published.bounds import beyond
from harness.published.tables import Tables
from harness.runs.run import Run
from policies.catalog import VLLM_OWN, read_policy

# Sums of floats may differ in their last digits between processors.
TOLERANCE = 1e-9
REMEDY = "`bench recover` makes it again"


def differs(run: Run, tables: Tables, whole: bool = False) -> str | None:
    """One line on the first value that the tables give otherwise, None where all agree.

    What the run does not know (it is older than a metric, a check) is a difference only where it is to be `whole`.
    """
    if why := beyond(run, tables):
        return why
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
        _first("counts", run.manifest.get("counts", {}), count(requests, steps), whole)
        or _checks(told.get("checks", []), known, whole)
        or _first("summary", run.summary, summary, whole)
    )
    return found and f"{found}: {REMEDY}"


def lacking(run: Run, tables: Tables) -> list[str]:
    """What the verdict on a run of a server that bench started is made from, and what of it is not there.

    Without it the check would not apply, and the run look better than one that tells.
    """
    if run.spec.engine != "vllm":
        return []
    manifest = run.manifest
    there = {
        "client.cpu_share": manifest.get("client", {}).get("cpu_share") is not None,
        "client.wait_share": manifest.get("client", {}).get("wait_share") is not None,
        "machine.elsewhere": (manifest.get("machine") or {}).get("elsewhere") is not None,
        "engine.log": (run.path / "engine.log").is_file(),
    }
    # vLLM's own scheduler writes no steps.
    if read_policy(run.spec.policy)[0] not in VLLM_OWN:
        there |= {"engine_steps": bool(manifest.get("engine_steps")), "steps": tables.steps is not None}
    return [name for name, known in there.items() if not known]


def unlike_figures(run: Run) -> str | None:
    """Where a reported run's summary is not what its provenance says was read; None where it tells no figures."""
    figures = run.manifest.get("provenance", {}).get("figures")
    if not isinstance(figures, dict):
        return None
    for name, values in run.summary.get("metrics", {}).items():
        for key, value in values.items():
            if key == "unit" or value is None:
                continue
            told = figures.get(name if key == "value" else f"{name}.{key}")
            read = told.get("value") if isinstance(told, dict) else None
            if not isinstance(read, int | float) or not math.isclose(value, read, rel_tol=TOLERANCE):
                return f"summary.metrics.{name}.{key} is {value}, provenance.figures says {read}: read the source again"
    return None


def _checks(told: list[dict[str, Any]], known: dict[str, dict[str, Any]], whole: bool) -> str | None:
    names = [one.get("name") for one in told]
    for name, one in zip(names, told, strict=True):
        if name not in known:
            return f"verdict.checks has {str(name)[:40]!r}, which is no check"
        if why := _first(f"verdict.checks.{name}", one, known[name], whole):
            return why
    if len(set(names)) < len(names):
        return "verdict.checks has a check twice"
    return _lacks("verdict", [name for name in known if name not in names]) if whole else None


def _first(key: str, told: Any, found: Any, whole: bool) -> str | None:
    """The first place where what is told differs from what was found."""
    if isinstance(told, dict) and isinstance(found, dict):
        for name, value in told.items():
            if name not in found:
                return f"{key}.{name} is told, the tables do not give it"
            if why := _first(f"{key}.{name}", value, found[name], whole):
                return why
        return _lacks(key, [name for name in found if name not in told]) if whole else None
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (told, found))
    same = math.isclose(told, found, rel_tol=TOLERANCE) if numbers else told == found
    return None if same else f"{key} is {str(told)[:60]}, the tables give {str(found)[:60]}"


def _lacks(key: str, names: list[str]) -> str | None:
    return f"{key} lacks {', '.join(names[:4])}, which came later or was taken out" if names else None
