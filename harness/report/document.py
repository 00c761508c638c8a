"""The JSON document of runs: what scripts read, and what tables and pages are made from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from harness.measure.fairness import OVER_ALPHA, alpha_of
from harness.measure.summary import COUNTS
from harness.runs.run import Run


def run_document(run: Run) -> dict[str, Any]:
    """One entry of `{"runs": […]}`: where the run is, what it was, how far to trust it, and its numbers."""
    manifest, spec = run.manifest, run.spec
    counts = manifest.get("counts", {})
    verdict = manifest.get("verdict", {})
    return {
        "dir": str(run.path),
        "digest": manifest["digest"],
        "gpu": spec.gpu,
        "model": spec.model,
        "workload": spec.workload,
        "policy": spec.policy,
        "lengths": spec.lengths,
        "outlived": manifest.get("lengths", {}).get("outlived"),
        "engine": spec.engine,
        "arrival": spec.arrival,
        "seed": spec.seed,
        "repeat": spec.repeat,
        "alpha": alpha_of(spec),
        "kind": run.kind,
        "twin": is_twin(run),
        "status": run.status,
        "reason": manifest.get("reason"),
        "verdict": {"level": run.level, "reasons": verdict.get("reasons", [])},
        "counts": {name: counts.get(name) for name in COUNTS},
        "window": run.summary.get("window"),
        "metrics": run.summary.get("metrics", {}),
        "notes": manifest.get("notes", []),
    }


def runs_document(runs: Sequence[Run]) -> dict[str, Any]:
    """The JSON document of `bench run`, `bench show` and `bench list`."""
    return {"runs": [run_document(run) for run in runs]}


def at_alpha(run: Run, alpha: float) -> Run:
    """The run as it would be with this α: what depends on it is taken from the step log again, in memory only."""
    from harness.measure.measured import is_closed_loop
    from harness.measure.summary import summarise

    steps = run.steps() if run.kind != "reported" else None
    if steps is None:
        return run
    spec = dataclasses.replace(run.spec, alpha=alpha)
    metrics = summarise(run.requests(), steps, spec, is_closed_loop(spec))["metrics"]
    over_alpha = {name: values for name, values in metrics.items() if name.startswith(OVER_ALPHA)}
    return dataclasses.replace(
        run, spec=spec, summary=run.summary | {"metrics": run.summary.get("metrics", {}) | over_alpha}
    )


def is_twin(run: Run) -> bool:
    """Whether the lengths are a statistical twin of a data set rather than the data."""
    source = run.manifest.get("provenance", {}).get("trace", {})
    return isinstance(source, dict) and source.get("kind") == "twin"


def kind_words(run: Run) -> str:
    """The kind of a run's numbers in words: `simulated, twin lengths`."""
    return f"{run.kind}, twin lengths" if is_twin(run) else run.kind
