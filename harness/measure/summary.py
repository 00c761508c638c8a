"""summary.json: every metric of a run with its unit, interval and count."""

from __future__ import annotations

from typing import Any

from harness.core.runspec import SCHEMA_VERSION, RunSpec
from harness.measure.estimate import Estimate
from harness.measure.measured import Measured, measure
from harness.measure.metrics import METRICS
from harness.measure.sample import Sample
from harness.measure.statistics import PERCENTILES

# What run.json counts of a run (`count`), besides the failures by their name.
COUNTS = (
    "requests",
    "completed",
    "failed",
    "output_tokens",
    "prompt_tokens",
    "steps",
    "mixed_steps",
    "preemptions",
)


def summarise(requests: Any, steps: Any | None, spec: RunSpec, closed_loop: bool) -> dict[str, Any]:
    """The summary of a run's two tables, JSON values only; the same tables give the same bytes.

    A metric that cannot be computed is absent; a percentile without enough samples and an interval from
    fewer than ten units are null.
    """
    return summary_of(measure(requests, steps, spec, closed_loop))


def summary_of(measured: Measured) -> dict[str, Any]:
    """The summary of what was measured."""
    metrics: dict[str, Any] = {}
    for name, metric in METRICS.items():
        if metric.kind == "number":
            rate = measured.rates.get(name)
            if rate is not None:
                metrics[name] = {"value": rate.value, "unit": metric.unit} | _bounds(rate)
                if name.startswith("violation_share") and metrics[name]["high"] is not None:
                    # The interval is made on the log scale, which knows no end; a share does.
                    metrics[name]["high"] = min(1.0, metrics[name]["high"])
        elif name in measured.samples:
            metrics[name] = _distribution(measured.samples[name], metric.unit)
    if measured.phased:
        # Ups and downs by plan are no noise that an interval could be made of.
        for values in metrics.values():
            values["low"] = values["high"] = None
    return {
        "schema": SCHEMA_VERSION,
        "window": measured.window.to_dict() if measured.window else None,
        "metrics": metrics,
    }


def _distribution(sample: Sample, unit: str) -> dict[str, Any]:
    mean = sample.mean()
    return {
        "mean": mean.value if mean else None,
        **{f"p{percent}": sample.percentile_s(percent) for percent in PERCENTILES},
        "max": sample.maximum_s,
        "count": sample.count,
        "unit": unit,
        **_bounds(mean),
    }


def _bounds(estimate: Estimate | None) -> dict[str, float | None]:
    low, high = (estimate.interval() if estimate else None) or (None, None)
    return {"low": low, "high": high}


def count(requests: Any, steps: Any | None) -> dict[str, Any]:
    """What a run did: COUNTS (tokens are those of completed requests), and `finishes` by their name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from harness.core.records import COMPLETED
    from harness.measure.columns import integers, one_of

    completed = one_of(requests.column("finish"), COMPLETED)
    tally = pc.value_counts(requests.column("finish").cast(pa.string())).to_pylist()
    finishes = {str(finish["values"]): int(finish["counts"]) for finish in tally}
    return {
        "requests": requests.num_rows,
        "completed": int(completed.sum()),
        "failed": int((~completed).sum()),
        "output_tokens": int(integers(requests.column("output_tokens"))[completed].sum()),
        "prompt_tokens": int(integers(requests.column("prompt_tokens"))[completed].sum()),
        "steps": steps.num_rows if steps is not None else 0,
        "mixed_steps": int(one_of(steps.column("phase"), ("mixed",)).sum()) if steps is not None else 0,
        "preemptions": int(integers(requests.column("preemptions")).sum()),
        "finishes": dict(sorted(finishes.items())),
    }
