"""summary.json: every metric of a run with its unit, interval and count."""

from __future__ import annotations

from typing import Any

from harness.core.runspec import RunSpec
from harness.measure.estimate import Estimate
from harness.measure.measured import Measured, measure
from harness.measure.metrics import METRICS
from harness.measure.sample import Sample
from harness.measure.statistics import PERCENTILES

SCHEMA_VERSION = 1


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
        else:
            metrics[name] = _distribution(measured.samples[name], metric.unit)
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
    """What a run did, counted: requests and tokens of completed ones, failures by their name, steps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from harness.core.records import COMPLETED
    from harness.measure.columns import integers, one_of

    completed = one_of(requests.column("finish"), COMPLETED)
    names = pc.value_counts(requests.column("finish").cast(pa.string()))
    finishes = {str(one["values"]): int(one["counts"]) for one in names.to_pylist()}
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
