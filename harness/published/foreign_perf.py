"""Results of NVIDIA's AIPerf (profile_export_aiperf.json) and of GenAI-Perf before it."""

from __future__ import annotations

from typing import Any

from harness.core.errors import UserError
from harness.published.foreign import NOT_TOLD, PERCENTILES, Fields, Foreign

# Their names, ours, and what they mean by them.
_LATENCIES = {
    "time_to_first_token": ("ttft_from_sent_s", "first response with content - start of the request"),
    "inter_token_latency": (
        "tpot_s",
        "their inter token latency: (request latency - TTFT) / (output tokens - 1), one value a request",
    ),
    "inter_chunk_latency": ("itl_s", "time between two responses of an answer, each once"),
    "request_latency": ("e2el_s", "last response - start of the request, open loop as well"),
}
_RATES = {
    "request_throughput": ("request_throughput", "valid requests / benchmark duration"),
    "output_token_throughput": ("output_throughput", "output tokens / benchmark duration"),
    "total_token_throughput": ("total_throughput", "prompt and output tokens / benchmark duration"),
    "goodput": ("goodput", "requests that meet every --goodput limit / benchmark duration"),
}
_SCALES = {"ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}


def is_perf(document: Any) -> bool:
    """Whether a document looks like a result of one of them."""
    if not isinstance(document, dict):
        return False
    stats = [name for name in (*_LATENCIES, *_RATES) if isinstance(document.get(name), dict)]
    return bool(stats) and ("input_config" in document or "aiperf_version" in document)


def read_perf(fields: Fields) -> list[Foreign]:
    """The one run of a file."""
    version = fields.text("aiperf_version")
    definitions = {}
    for theirs, (ours, meaning) in _RATES.items():
        fields.take(ours, f"{theirs}.avg")
        definitions[ours] = meaning
    for theirs, (ours, meaning) in _LATENCIES.items():
        scale = _scale(fields, theirs)
        for key, field in (("mean", "avg"), *((percent, percent) for percent in PERCENTILES), ("max", "max")):
            fields.take(f"{ours}.{key}", f"{theirs}.{field}", scale)
        definitions[ours] = meaning
    counts = _counts(fields)
    return [
        Foreign(
            "aiperf" if version else "genai-perf",
            version,
            counts,
            fields.figures,
            fields.defined(definitions),
            model=_model(fields),
            arrival=_arrival(fields),
            notes=("it was cancelled before its end",) if fields.at("was_cancelled") is True else (),
        )
    ]


def _scale(fields: Fields, metric: str) -> float:
    unit = fields.at(f"{metric}.unit")
    if unit is None:
        return 1e-3
    if unit not in _SCALES:
        raise fields.wrong(f"{metric}.unit", unit, f"it must be one of {', '.join(_SCALES)}")
    return _SCALES[unit]


def _counts(fields: Fields) -> dict[str, int]:
    completed = fields.count("request_count.avg")
    if completed is None:
        # GenAI-Perf's JSON may leave it out: each latency counts its requests.
        completed = fields.count("request_latency.count")
    if completed is None:
        raise UserError(f"{fields.path}: request_count is missing: the file was cut short, or another tool wrote it")
    failed = fields.count("error_request_count.avg") or 0
    counts = {"requests": completed + failed, "completed": completed, "failed": failed}
    for ours, total, each in (
        ("prompt_tokens", "total_isl.avg", "input_sequence_length.avg"),
        ("output_tokens", "total_osl.avg", "output_sequence_length.avg"),
    ):
        told, mean = fields.count(total), fields.number(each)
        if told is None and mean is not None:
            told = round(mean * completed)
        if told is not None:
            counts[ours] = told
    return counts


def _model(fields: Fields) -> str:
    for place in ("input_config.models.items.0.name", "input_config.model_names.0", "input_config.endpoint.model.0"):
        if name := fields.text(place):
            return name
    return ""


def _arrival(fields: Fields) -> str:
    """The load of the phase that is profiled, where the configuration tells it."""
    phases = fields.at("input_config.phases")
    places = [place for place, one in enumerate(phases) if _is_profiled(one)] if isinstance(phases, list) else []
    if len(places) == 1:
        base = f"input_config.phases.{places[0]}"
        if fields.at(f"{base}.type") == "concurrency" and (limit := fields.count(f"{base}.concurrency")):
            return f"closed:concurrency={limit}"
        return NOT_TOLD
    for name in ("input_config.loadgen.concurrency", "input_config.perf_analyzer.stimulus.concurrency"):
        if limit := fields.count(name):
            return f"closed:concurrency={limit}"
    return NOT_TOLD


def _is_profiled(phase: Any) -> bool:
    return isinstance(phase, dict) and phase.get("kind", "profiling") == "profiling"
