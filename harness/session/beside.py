"""The same run under the other cost models: what a gain that one of them shows is held against."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from harness.core.errors import USER_ERRORS
from harness.core.records import REQUESTS, STEPS
from harness.engines.base import Status, Stopped
from harness.engines.simulated import Simulated
from harness.measure.measured import is_closed_loop
from harness.measure.summary import summarise
from harness.runs.in_memory import RowsInMemory

MODELS = ("kernels", "roofline", "linear")
# The metrics that words are about: a rate's value, a latency's mean.
METRICS = {
    "output_throughput": "value",
    "ttft_s": "mean",
    "tpot_s": "mean",
    "output_throughput_steady": "value",
    "ttft_s_steady": "mean",
    "tpot_s_steady": "mean",
}
# A longer run would visibly wait for the others.
MOST_REQUESTS = 25_000


def beside(engine: Simulated, stopped: Stopped) -> dict[str, dict[str, float]]:
    """By cost model the metrics of the run under it; of those that price the pair, without the run's own.

    Policies are told each model's own constants, unless the run names others. Empty where the user wants to stop.
    """
    found: dict[str, dict[str, float]] = {}
    spec = engine.spec
    for model in MODELS:
        if model == engine.cost.name or engine.pair.refusal(model) is not None:
            continue
        # A host's time is within what linear costs.
        other = replace(spec, cost_model=model, host="" if model == "linear" else spec.host)
        try:
            metrics = _metrics(Simulated(other, engine.stream, engine.profile, engine.policy_file), stopped)
        except USER_ERRORS:
            # A policy that this model cannot serve; the run itself could.
            continue
        if stopped():
            return {}
        if metrics is not None:
            found[model] = metrics
    return found


def _metrics(engine: Simulated, stopped: Stopped) -> dict[str, float] | None:
    """The metrics of a run; None where its policy failed."""
    tables = RowsInMemory()

    def progress(_: Status) -> None:
        pass

    if engine.replay(tables, progress, stopped).status == "failed":
        return None
    requests = pa.Table.from_batches(tables.requests, REQUESTS)
    steps = pa.Table.from_batches(tables.steps, STEPS)
    metrics = summarise(requests, steps, engine.spec, is_closed_loop(engine.spec))["metrics"]
    values = {name: metrics.get(name, {}).get(key) for name, key in METRICS.items()}
    return {name: value for name, value in values.items() if value is not None}
