"""Results of GuideLLM (`--output kind=json` or yaml): a run for each of its benchmarks."""

from __future__ import annotations

from typing import Any

from harness.core.errors import UserError
from harness.published.foreign import NOT_TOLD, PERCENTILES, Fields, Foreign

_LATENCIES = {
    "time_to_first_token_ms": ("ttft_from_sent_s", 1e-3, "first token - start of the request, successful requests"),
    "inter_token_latency_ms": (
        "tpot_s",
        1e-3,
        "their inter token latency: (last - first token) / (output tokens - 1), each request as often as it has gaps",
    ),
    "request_latency": ("e2el_s", 1.0, "end - start of the request, successful requests, open loop as well"),
}
_RATES = {
    "requests_per_second": ("request_throughput", "successful requests a second, mean over the measured time"),
    "output_tokens_per_second": ("output_throughput", "output tokens a second, mean over the measured time"),
    "tokens_per_second": ("total_throughput", "prompt and output tokens a second, mean over the measured time"),
}


def is_guidellm(document: Any) -> bool:
    """Whether a document looks like a result of this tool."""
    if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), list):
        return False
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and "guidellm_version" in metadata


def read_guidellm(fields: Fields) -> list[Foreign]:
    """The runs of a file, one a benchmark; UserError where it has none."""
    benchmarks = fields.at("benchmarks")
    if not benchmarks:
        raise UserError(f"{fields.path}: has no benchmark in it: the run was cut short")
    version = fields.text("metadata.guidellm_version")
    several = len(benchmarks) > 1
    return [
        _benchmark(fields.part(f"benchmarks.{place}"), version, f"benchmark {place}" if several else "")
        for place in range(len(benchmarks))
    ]


def _benchmark(fields: Fields, version: str, part: str) -> Foreign:
    completed = fields.count("metrics.request_totals.successful", needed=True) or 0
    failed = fields.count("metrics.request_totals.errored") or 0
    incomplete = fields.count("metrics.request_totals.incomplete") or 0
    counts = {"requests": completed + failed + incomplete, "completed": completed, "failed": failed + incomplete}
    for ours, theirs in (("prompt_tokens", "prompt_token_count"), ("output_tokens", "output_token_count")):
        total = fields.count(f"metrics.{theirs}.successful.total_sum")
        if total is not None:
            counts[ours] = total
    definitions = {}
    for theirs, (ours, meaning) in _RATES.items():
        fields.take(ours, f"metrics.{theirs}.successful.mean")
        definitions[ours] = meaning
    for theirs, (ours, scale, meaning) in _LATENCIES.items():
        base = f"metrics.{theirs}.successful"
        fields.take(f"{ours}.mean", f"{base}.mean", scale)
        for percent in PERCENTILES:
            fields.take(f"{ours}.{percent}", f"{base}.percentiles.{percent}", scale)
        fields.take(f"{ours}.max", f"{base}.max", scale)
        definitions[ours] = meaning
    return Foreign(
        "guidellm",
        version,
        counts,
        fields.figures,
        fields.defined(definitions),
        model=fields.text("config.backend.model"),
        arrival=_arrival(fields),
        notes=(f"{incomplete} requests were cut off at the end, counted as failed",) if incomplete else (),
        part=part,
        started=fields.time("start_time"),
    )


def _arrival(fields: Fields) -> str:
    kind = fields.text("config.strategy.type_")
    streams, rate = fields.count("config.strategy.streams"), fields.number("config.strategy.rate")
    if kind == "concurrent" and streams:
        return f"closed:concurrency={streams}"
    if kind == "synchronous":
        return "closed:concurrency=1"
    if kind in ("constant", "poisson") and rate:
        return f"{kind}:rate={rate!r}"
    return NOT_TOLD
