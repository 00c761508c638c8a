"""Results of inference-perf: the report of a stage, or of all stages together."""

from __future__ import annotations

from typing import Any

from harness.published.foreign import NOT_TOLD, PERCENTILES, Fields, Foreign

_LATENCIES = {
    "time_to_first_token": ("ttft_from_sent_s", "first token - start of the request, successful requests"),
    "time_per_output_token": ("tpot_s", "(last - first token) / (output tokens - 1), one value a request"),
    "inter_token_latency": ("itl_s", "time between two tokens of an answer, each once"),
    "request_latency": ("e2el_s", "end - start of the request, successful requests, open loop as well"),
}
_RATES = {
    "requests_per_sec": ("request_throughput", "successful requests / benchmark time"),
    "output_tokens_per_sec": ("output_throughput", "output tokens / benchmark time"),
    "total_tokens_per_sec": ("total_throughput", "prompt and output tokens / benchmark time"),
}


def is_inference_perf(document: Any) -> bool:
    """Whether a document looks like a result of this tool."""
    return isinstance(document, dict) and isinstance(document.get("successes"), dict) and "load_summary" in document


def read_inference_perf(fields: Fields) -> list[Foreign]:
    """The one run of a file, which does not tell its model."""
    completed = fields.count("successes.count", needed=True) or 0
    failed = fields.count("failures.count", needed=True) or 0
    counts = {"requests": completed + failed, "completed": completed, "failed": failed}
    for name in ("prompt_tokens", "output_tokens"):
        total = fields.count(f"successes.{name}.total")
        if total is not None:
            counts[name] = total
    definitions = {}
    for theirs, (ours, meaning) in _RATES.items():
        fields.take(ours, f"successes.throughput.{theirs}")
        definitions[ours] = meaning
    for theirs, (ours, meaning) in _LATENCIES.items():
        base = f"successes.latency.{theirs}"
        for key, field in (("mean", "mean"), ("p50", "median"), *((one, one) for one in PERCENTILES), ("max", "max")):
            fields.take(f"{ours}.{key}", f"{base}.{field}")
        definitions[ours] = meaning
    rate = fields.number("load_summary.requested_rate")
    return [
        Foreign(
            "inference-perf",
            "",
            counts,
            fields.figures,
            fields.defined(definitions),
            arrival=NOT_TOLD,
            notes=(f"a rate of {rate:g} requests/s was asked for",) if rate else (),
        )
    ]
