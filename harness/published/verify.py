"""Whether a run's verdict, counts and summary are those that its tables give."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from harness.core.records import STEPS
from harness.measure.evidence import Evidence
from harness.measure.measured import by_the_older_rule
from harness.measure.summary import count, summary_of
from harness.measure.verdict import judge
from harness.measure.window import leaves_out_waves
from harness.published.bounds import outside_spec
from harness.published.tables import RunTables
from harness.runs.run import Run, load_run
from harness.runs.step_log import ENGINE_LOG
from harness.runs.tables import DIGESTS
from harness.runs.thin import other_than_told
from policies.catalog import VLLM_OWN, read_policy

# Sums of floats may differ in their last digits between processors.
TOLERANCE = 1e-9
REMEDY = "`bench recover` makes it again"


def first_difference(run: Run, tables: RunTables, whole: bool = False) -> str | None:
    """One line on the first value that the tables give otherwise, None where all agree.

    What the run does not know (it is older than a metric, a check) is a difference only where it is to be `whole`.
    """
    if why := outside_spec(run, tables):
        return why
    steps = STEPS.empty_table() if tables.steps is None else tables.steps
    held = {"requests": tables.requests, "steps": steps}
    if (run.path / DIGESTS).is_file() and (why := other_than_told(run.path, held)):
        return why
    requests, steps, measured = tables.requests, tables.steps, tables.measured
    if not leaves_out_waves(run.summary.get("window")):
        measured = by_the_older_rule(measured, run.spec)
    evidence = Evidence(run.spec, run.manifest, requests, steps, measured, run.path / ENGINE_LOG)
    made = judge(evidence, run.status, run.manifest.get("reason"))
    verdict = run.manifest.get("verdict")
    if not verdict or not run.summary:
        return f"has no {'summary.json' if verdict else 'verdict'}: {REMEDY}"
    for name in ("level", "reasons"):
        if verdict[name] != made[name]:
            return f"verdict.{name} is {verdict[name]}, the tables give {made[name]}: {REMEDY}"
    difference = (
        _difference("counts", run.manifest.get("counts", {}), count(requests, steps), whole)
        or _difference_of_checks(verdict.get("checks", []), made["checks"], whole)
        or _difference("summary", run.summary, summary_of(measured), whole)
    )
    return difference and f"{difference}: {REMEDY}"


def verify_run(path: Path) -> str | None:
    """One line on the first thing in a run's directory that does not follow from the rest of it, None where all does.

    Schema, digest of the spec, verdict, counts and summary against the tables; of a reported run the summary against
    the figures that were read. UserError where a file cannot be read at all.
    """
    run = load_run(path)
    if run.kind == "reported":
        return difference_from_figures(run) if run.summary else "has no summary.json: read the source again"
    return first_difference(run, RunTables.of(run), whole=True)


def missing_evidence(run: Run, tables: RunTables) -> list[str]:
    """What the verdict on a run of a server that bench started is made from, and what of it is not there.

    Without it the check would not apply, and the run look better than one that tells.
    """
    if run.spec.engine != "vllm":
        return []
    manifest = run.manifest
    is_known = {
        "client.cpu_share": manifest.get("client", {}).get("cpu_share") is not None,
        "client.wait_share": manifest.get("client", {}).get("wait_share") is not None,
        "machine.elsewhere": (manifest.get("machine") or {}).get("elsewhere") is not None,
        ENGINE_LOG: (run.path / ENGINE_LOG).is_file(),
    }
    # vLLM's own scheduler writes no steps.
    if read_policy(run.spec.policy)[0] not in VLLM_OWN:
        is_known |= {"engine_steps": bool(manifest.get("engine_steps")), "steps": tables.steps is not None}
    return [name for name, known in is_known.items() if not known]


def difference_from_figures(run: Run) -> str | None:
    """Where a reported run's summary is not what its provenance says was read; None where it tells no figures."""
    figures = run.manifest.get("provenance", {}).get("figures")
    if not isinstance(figures, dict):
        return None
    for name, values in run.summary.get("metrics", {}).items():
        for key, value in values.items():
            if key == "unit" or value is None:
                continue
            figure = figures.get(name if key == "value" else f"{name}.{key}")
            read = figure.get("value") if isinstance(figure, dict) else None
            if not isinstance(read, int | float) or not math.isclose(value, read, rel_tol=TOLERANCE):
                return f"summary.metrics.{name}.{key} is {value}, provenance.figures says {read}: read the source again"
    return None


def _difference_of_checks(published: list[dict[str, Any]], made: list[dict[str, Any]], whole: bool) -> str | None:
    """The first place where the published checks of a verdict are not those that the tables give."""
    made_by_name = {check["name"]: check for check in made}
    names = [check.get("name") for check in published]
    for name, check in zip(names, published, strict=True):
        if name not in made_by_name:
            return f"verdict.checks has {str(name)[:40]!r}, which is no check"
        if why := _difference(f"verdict.checks.{name}", check, made_by_name[name], whole):
            return why
    if len(set(names)) < len(names):
        return "verdict.checks has a check twice"
    return _lacks("verdict", [name for name in made_by_name if name not in names]) if whole else None


def _difference(key: str, published: Any, made: Any, whole: bool) -> str | None:
    """The first place where a published value is not the one that the tables give."""
    if isinstance(published, dict) and isinstance(made, dict):
        for name, value in published.items():
            if name not in made:
                return f"{key}.{name} is told, the tables do not give it"
            if why := _difference(f"{key}.{name}", value, made[name], whole):
                return why
        return _lacks(key, [name for name in made if name not in published]) if whole else None
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (published, made))
    same = math.isclose(published, made, rel_tol=TOLERANCE) if numbers else published == made
    return None if same else f"{key} is {str(published)[:60]}, the tables give {str(made)[:60]}"


def _lacks(key: str, names: list[str]) -> str | None:
    return f"{key} lacks {', '.join(names[:4])}, which came later or was taken out" if names else None
