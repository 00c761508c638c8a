"""A run of ours as a benchmark report of llm-d-benchmark, version 0.2.1, in JSON."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

from harness import __version__
from harness.published.answers import answers_of, spread
from harness.runs.run import Run
from workloads.core.arrivals import Closed, Constant, Gamma, Poisson, parse_arrival

VERSION = "0.2.1"
_NAMES = {"median": "p50", "std": "stddev"}


def to_llmd(run: Run) -> dict[str, Any]:
    """The report: latencies from the send, rates over the whole duration, what ran as one inference engine."""
    answers, spec = answers_of(run), run.spec
    completed = answers.completed
    duration = answers.duration_s
    inputs = [tokens for tokens, ok in zip(answers.prompt_tokens, completed, strict=True) if ok]
    outputs = [tokens for tokens, ok in zip(answers.output_tokens, completed, strict=True) if ok]

    def rate(count: int, units: str) -> dict[str, Any]:
        return {"units": units, "mean": count / duration if duration > 0 else 0.0}

    return {
        "version": VERSION,
        "run": {"uid": run.manifest["digest"][:32], "time": _time(run, duration), "description": spec.label},
        "scenario": {"stack": [_engine(run)], "load": _load(run, inputs, outputs)},
        "results": {
            "request_performance": {
                "aggregate": {
                    "requests": {
                        "total": len(completed),
                        "failures": int((~completed).sum()),
                        "input_length": _statistics(inputs, "count"),
                        "output_length": _statistics(outputs, "count"),
                    },
                    "throughput": {
                        "request_rate": rate(len(outputs), "queries/s"),
                        "output_token_rate": rate(sum(outputs), "tokens/s"),
                        "total_token_rate": rate(sum(inputs) + sum(outputs), "tokens/s"),
                    },
                    "latency": {
                        "time_to_first_token": _statistics(answers.ttft_s[completed], "s"),
                        "time_per_output_token": _statistics(answers.tpot_s, "s/token"),
                        "inter_token_latency": _statistics(answers.itl_s, "s/token"),
                        "request_latency": _statistics(answers.e2el_s[completed], "s"),
                    },
                }
            }
        },
    }


def _statistics(values: Any, units: str) -> dict[str, Any] | None:
    import numpy as np

    found = spread(np.asarray(values, dtype=np.float64))
    if not found:
        return None
    return {"units": units, **{_NAMES.get(key, key): value for key, value in found.items()}}


def _time(run: Run, duration_s: float) -> dict[str, str]:
    finished = run.manifest.get("finished_utc")
    times = {"start": run.started.isoformat(), "duration": f"PT{duration_s:.9f}S"}
    return times | ({"end": datetime.fromisoformat(finished).isoformat()} if finished else {})


def _engine(run: Run) -> dict[str, Any]:
    """What served the requests."""
    spec, provenance = run.spec, run.manifest.get("provenance", {})
    native = {"slots": spec.slots, "token_budget": spec.token_budget, "policy": spec.label, "kind": run.kind}
    return {
        "metadata": {"schema_version": "0.0.1", "label": "engine-0", "cfg_id": _digest(native)},
        "standardized": {
            "kind": "inference_engine",
            "tool": f"schedbench {spec.engine}" if run.kind != "measured" else spec.engine,
            "tool_version": str(provenance.get("engine_version", "unknown")),
            "role": "replica",
            "replicas": 1,
            "model": {"name": spec.model},
            "accelerator": {"model": spec.gpu, "count": spec.tp, "parallelism": {"tp": spec.tp}},
        },
        "native": {"args": native},
    }


def _load(run: Run, inputs: list[int], outputs: list[int]) -> dict[str, Any]:
    """What was asked, and by whom."""
    spec = run.spec
    native = {"workload": spec.workload, "arrival": spec.arrival, "requests": spec.requests, "seed": spec.seed}
    standardized: dict[str, Any] = {
        "tool": "schedbench",
        "tool_version": __version__,
        "input_seq_len": _length(inputs),
        "output_seq_len": _length(outputs),
        "source": "sampled",
    }
    match parse_arrival(spec.arrival):
        case Closed(concurrency):
            standardized["concurrency"] = concurrency
        case Poisson(rate) | Constant(rate) | Gamma(rate):
            standardized["rate_qps"] = rate
        case _:
            pass
    return {
        "metadata": {"schema_version": "0.0.1", "cfg_id": _digest(native)},
        "standardized": standardized,
        "native": {"args": native},
    }


def _length(tokens: list[int]) -> dict[str, Any]:
    """What the report says of lengths that follow no law: their mean."""
    return {"distribution": "other", "value": sum(tokens) / len(tokens) if tokens else 0.0}


def _digest(native: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(native, sort_keys=True).encode()).hexdigest()
