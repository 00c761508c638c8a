"""Benchmark reports of llm-d-benchmark, versions 0.1 and 0.2: what any of its load generators measured."""

from __future__ import annotations

from typing import Any

from harness.core.errors import UserError
from harness.published.foreign import NOT_TOLD, PERCENTILES, Fields, Foreign

_LATENCIES = {
    "time_to_first_token": "ttft_from_sent_s",
    "time_per_output_token": "tpot_s",
    "inter_token_latency": "itl_s",
    "request_latency": "e2el_s",
}
_SCALES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "s/token": 1.0, "ms/token": 1e-3}
# By the version's first two numbers: where the aggregate stands, and its rates by our names.
_PLACES = {
    "0.1": (
        "metrics",
        {
            "request_throughput": "requests_per_sec",
            "output_throughput": "output_tokens_per_sec",
            "total_throughput": "total_tokens_per_sec",
        },
    ),
    "0.2": (
        "results.request_performance.aggregate",
        {
            "request_throughput": "request_rate.mean",
            "output_throughput": "output_token_rate.mean",
            "total_throughput": "total_token_rate.mean",
        },
    ),
}


def is_llmd(document: Any) -> bool:
    """Whether a document looks like a report of this schema."""
    if not isinstance(document, dict) or not isinstance(document.get("version"), str | float):
        return False
    return "scenario" in document and ("metrics" in document or "results" in document)


def read_llmd(fields: Fields) -> list[Foreign]:
    """The one run of a report; UserError for a version that is not known."""
    version = str(fields.at("version"))
    place = _PLACES.get(".".join(version.split(".")[:2]))
    if place is None:
        raise fields.wrong("version", version, f"known are {', '.join(_PLACES)}")
    base, rates = place
    total = fields.count(f"{base}.requests.total", needed=True) or 0
    failed = fields.count(f"{base}.requests.failures") or 0
    if failed > total:
        raise fields.wrong(f"{base}.requests.failures", failed, f"there were {total} requests")
    counts = {"requests": total, "completed": total - failed, "failed": failed}
    generator = fields.text("scenario.load.standardized.tool") or fields.text("scenario.load.name") or NOT_TOLD
    for ours, theirs in rates.items():
        fields.take(ours, f"{base}.throughput.{theirs}")
    for theirs, ours in _LATENCIES.items():
        where = f"{base}.latency.{theirs}"
        if fields.at(where) is None:
            continue
        unit = fields.at(f"{where}.units")
        if unit not in _SCALES:
            raise fields.wrong(f"{where}.units", unit, f"it must be one of {', '.join(_SCALES)}")
        for key in ("mean", *PERCENTILES, "max"):
            fields.take(f"{ours}.{key}", f"{where}.{key}", _SCALES[unit])
    if not fields.figures:
        raise UserError(f"{fields.path}: {base} has no figure in it: the report was cut short")
    return [
        Foreign(
            "llm-d-benchmark",
            version,
            counts,
            fields.figures,
            fields.defined(
                dict.fromkeys((*rates, *_LATENCIES.values()), f"as the load generator, {generator}, has it")
            ),
            model=fields.text("scenario.model.name") or fields.text("scenario.stack.0.standardized.model.name"),
            arrival=_arrival(fields),
            notes=(f"load generator: {generator}",),
            started=fields.time("run.time.start") or fields.time("run.time.end") or fields.time("metrics.time.start"),
        )
    ]


def _arrival(fields: Fields) -> str:
    limit = fields.at("scenario.load.standardized.concurrency")
    return f"closed:concurrency={limit}" if isinstance(limit, int) and limit > 0 else NOT_TOLD
